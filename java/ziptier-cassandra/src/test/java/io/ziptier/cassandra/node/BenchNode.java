package io.ziptier.cassandra.node;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.io.compress.ZiptierCompressor;

import io.ziptier.cassandra.ChunkCountersMXBean;

/**
 * A node for benchmarks. It listens at {@code ziptier.host} until standard input ends.
 *
 * <p>The first line of output is {@code PORT ORDERS}: the port of the native protocol, and another of the same
 * address. A client sends an order of {@code nodetool} there as one line. The answer is what the order prints, and then
 * {@code done}, or {@code failed: } and the reason. A {@code nodetool} of its own would be a JVM for each order.
 */
public final class BenchNode {
    /** The device that ziptier models on the node; null for none. */
    private static final String MODEL = System.getProperty("ziptier.model");

    private BenchNode() {
    }

    public static void main(String[] arguments) throws Exception {
        if (MODEL != null)
            checkModel();
        try (Cluster cluster = Cluster.single();
             ServerSocket orders = new ServerSocket(0, 50, InetAddress.getByName(Cluster.address(1)))) {
            // A flush writes by the compressor of the table, and a read unpacks a chunk each time.
            Node node = cluster.add()
                               .withYaml("flush_compression: table")
                               .withYaml("file_cache_enabled: false");
            if (MODEL != null)
                node.withOption("-Dziptier.model=" + MODEL);
            node.start();
            Thread server = new Thread(() -> serve(orders, node), "orders");
            server.setDaemon(true);
            server.start();
            System.out.println(cluster.nativePort + " " + orders.getLocalPort());
            while (System.in.read() >= 0) {
                // Only the end counts.
            }
        }
    }

    /** Ends this process in a second if the model is misspelled, and not when a node makes its first table. */
    private static void checkModel() {
        try {
            ZiptierCompressor.create(Map.of("format", "deflate"));
        } catch (ConfigurationException refused) {
            System.err.println(refused.getMessage());
            System.exit(2);
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
        } catch (Exception | LinkageError failure) {
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
            case "compressiondictionary":
                return trained(operations, order);
            case "sjk":
                return workers(operations);
            default:
                throw new IOException("there is no order " + order[0] + ", only flush, compact, tablestats, "
                                      + "compressiondictionary and sjk");
        }
    }

    /** Who compresses, in a line for each set of options: all that a client asks of {@code nodetool sjk mx}. */
    private static String workers(Operations operations) throws Exception {
        StringBuilder workers = new StringBuilder();
        for (ChunkCountersMXBean compressor : operations.compressors("format=*"))
            workers.append(compressor.getWorker()).append('\n');
        return workers.toString();
    }

    private static String trained(Operations operations, String[] order) throws Exception {
        if (order.length != 5 || !order[1].equals("train") || !order[2].equals("--force"))
            throw new IOException("the node knows compressiondictionary train --force KEYSPACE TABLE alone");
        String state = operations.trainDictionary(order[3], order[4]);
        if (!state.contains("COMPLETED"))
            throw new IOException("the training ended as " + state);
        return state + "\n";
    }
}
