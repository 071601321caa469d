package io.ziptier.examples.ycsb;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A server on a free port, in a process that ends with this. */
final class Server implements AutoCloseable {
    final int port;
    private final Process process;

    private Server(Process process, int port) {
        this.process = process;
        this.port = port;
    }

    static Server start(String backend, Path dir) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getProperty("ziptier.server"), "serve", "--port", "0",
            "--backend", backend, "--dir", dir.toString()));
        if (backend.equals("rocksdb")) {
            command.addAll(List.of("--rocksdb-library", System.getProperty("ziptier.rocksdb")));
        }
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said =
            new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = said.readLine();
        if (line == null) {
            throw new AssertionError("the server did not start");
        }
        String address = line.replaceFirst(".* listens on (\\S+) .*", "$1");
        return new Server(process, Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
    }

    /** Stops the server as a service manager does. */
    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(2, TimeUnit.MINUTES)) {
                process.destroyForcibly();
                throw new AssertionError("the server does not stop");
            }
        } catch (InterruptedException interruption) {
            process.destroyForcibly();
            throw new AssertionError("the test was interrupted", interruption);
        }
        if (process.exitValue() != 0) {
            throw new AssertionError("the server ended with status " + process.exitValue());
        }
    }
}
