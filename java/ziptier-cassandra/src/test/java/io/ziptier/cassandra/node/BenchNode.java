package io.ziptier.cassandra.node;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * A node for benchmarks. It listens at {@code ziptier.host} until standard input ends.
 *
 * <p>The first line of output is {@code PORT ORDERS}: the port of the native protocol, and a port of the loopback
 * device. A client sends an order of {@code nodetool} there as one line. The answer is what the order prints, and then
 * {@code done}, or {@code failed: } and the reason. A {@code nodetool} of its own would be a JVM for each order.
 */
public final class BenchNode {
    private BenchNode() {
    }

    public static void main(String[] arguments) throws Exception {
        try (Cluster cluster = Cluster.single();
             ServerSocket orders = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            // A flush writes by the compressor of the table, and a read unpacks a chunk each time.
            Node node = cluster.add()
                               .withYaml("flush_compression: table")
                               .withYaml("file_cache_enabled: false")
                               .start();
            Thread server = new Thread(() -> serve(orders, node), "orders");
            server.setDaemon(true);
            server.start();
            System.out.println(cluster.nativePort + " " + orders.getLocalPort());
            while (System.in.read() >= 0) {
                // Only the end counts.
            }
        }
    }

    private static void serve(ServerSocket orders, Node node) {
        while (!orders.isClosed()) {
            try (Socket client = orders.accept();
                 PrintStream answer = new PrintStream(client.getOutputStream(), true, StandardCharsets.UTF_8)) {
                BufferedReader lines =
                    new BufferedReader(new InputStreamReader(client.getInputStream(), StandardCharsets.UTF_8));
                answer.print(answer(node, lines.readLine()));
            } catch (Exception failure) {
                // The client has read the reason, or is gone.
            }
        }
    }

    private static String answer(Node node, String order) {
        try {
            return carriedOut(node.operations(), order.split("[ .]")) + "done\n";
        } catch (Exception failure) {
            return "failed: " + failure.toString().replace('\n', ' ') + "\n";
        }
    }

    private static String carriedOut(Operations operations, String[] order) throws Exception {
        switch (order[0]) {
            case "flush":
                operations.flush(order[1], order[2]);
                return "";
            case "compact":
                operations.compact(order[1], order[2]);
                return "";
            case "tablestats":
                return operations.tablestats(order[1], order[2]);
            default:
                throw new IOException("there is no order " + order[0] + ", only flush, compact and tablestats");
        }
    }
}
