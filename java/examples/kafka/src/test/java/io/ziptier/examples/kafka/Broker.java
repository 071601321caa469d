package io.ziptier.examples.kafka;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A real broker in a process of its own, which is also its controller, on the loopback device. */
final class Broker implements AutoCloseable {
    private static final long START_MAX_NS = TimeUnit.MINUTES.toNanos(3);
    /** Several runs beside each other have addresses of their own. */
    private static final String HOST = System.getProperty("ziptier.host", "127.0.0.1");

    final String address;
    private final Path dir;
    private final Process process;

    private Broker(String address, Path dir, Process process) {
        this.address = address;
        this.dir = dir;
        this.process = process;
    }

    /** Starts a broker in an empty folder, and waits until it takes connections. */
    static Broker start(Path dir) throws Exception {
        int port = free(), controllerPort = free();
        Path properties = Files.write(dir.resolve("server.properties"), List.of(
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.bootstrap.servers=" + HOST + ":" + controllerPort,
            "listeners=PLAINTEXT://" + HOST + ":" + port + ",CONTROLLER://" + HOST + ":" + controllerPort,
            "controller.listener.names=CONTROLLER",
            "log.dirs=" + dir.resolve("data"),
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=0"));
        Process format = java(dir, "kafka.tools.StorageTool", "format", "--standalone",
            "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--config", properties.toString());
        if (format.waitFor() != 0) {
            throw new AssertionError("the storage tool failed: " + Files.readString(dir.resolve("log")));
        }
        Process process = java(dir, BrokerMain.class.getName(), properties.toString());
        Broker broker = new Broker(HOST + ":" + port, dir, process);
        broker.await(port);
        return broker;
    }

    private static Process java(Path dir, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx512m",
            "-cp", System.getProperty("java.class.path")));
        command.addAll(Arrays.asList(arguments));
        return new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(dir.resolve("log").toFile())).start();
    }

    private static int free() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
            return socket.getLocalPort();
        }
    }

    private void await(int port) throws Exception {
        long start = System.nanoTime();
        while (true) {
            if (!process.isAlive() || System.nanoTime() - start > START_MAX_NS) {
                throw new AssertionError("the broker does not run: " + Files.readString(dir.resolve("log")));
            }
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(HOST, port));
                return;
            } catch (IOException notYet) {
                Thread.sleep(100);
            }
        }
    }

    @Override
    public void close() {
        process.destroyForcibly().onExit().join();
    }
}
