package io.ziptier.cassandra.node;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Stream;

/** Nodes that know each other. Closing it stops all of them and deletes their files. */
public final class Cluster implements AutoCloseable {
    /** The address of the first node. Runs beside each other have addresses of their own. */
    private static final String FIRST_HOST = System.getProperty("ziptier.host", "127.0.0.1");

    final Path dir;
    final int nativePort;
    final int storagePort;
    final int heapMiB;
    private final List<Node> nodes = new ArrayList<>();

    private Cluster(int heapMiB) throws IOException {
        this.heapMiB = heapMiB;
        dir = Files.createTempDirectory("ziptier-cassandra-");
        nativePort = Ports.free();
        storagePort = Ports.free();
    }

    /** A cluster of one node. */
    public static Cluster single() throws IOException {
        return new Cluster(768);
    }

    /** A cluster of several nodes, each with a smaller heap. */
    public static Cluster ofSeveral() throws IOException {
        return new Cluster(512);
    }

    /** The address of a node; the first one has number 1. */
    static String address(int number) {
        int end = FIRST_HOST.lastIndexOf('.') + 1;
        return FIRST_HOST.substring(0, end) + (Integer.parseInt(FIRST_HOST.substring(end)) + number - 1);
    }

    /** Another node, not started. */
    public Node add() throws IOException {
        Node node = new Node(this, nodes.size() + 1);
        nodes.add(node);
        return node;
    }

    /** Waits until all running nodes know the same tables. One that does not fails its writes and its repairs. */
    public void awaitSchema() throws InterruptedException {
        Set<UUID> versions;
        do {
            Thread.sleep(200);
            versions = new HashSet<>();
            for (Node node : nodes) {
                if (node.isRunning())
                    versions.add(node.session().execute("SELECT schema_version FROM system.local").one().getUuid(0));
            }
        } while (versions.size() > 1);
    }

    @Override
    public void close() throws IOException {
        for (Node node : nodes)
            node.kill();
        try (Stream<Path> files = Files.walk(dir)) {
            for (Path file : (Iterable<Path>) files.sorted(Comparator.reverseOrder())::iterator)
                Files.delete(file);
        }
    }
}
