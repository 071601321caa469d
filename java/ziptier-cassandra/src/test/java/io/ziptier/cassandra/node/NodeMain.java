package io.ziptier.cassandra.node;

import java.io.IOException;

/** Runs a Cassandra node that ends with its parent: whatever happens to the tests, their end of the pipe closes. */
public final class NodeMain {
    private NodeMain() {
    }

    public static void main(String[] arguments) throws Exception {
        Thread watcher = new Thread(NodeMain::awaitParent, "parent-watcher");
        watcher.setDaemon(true);
        watcher.start();
        // The tests' class path has Cassandra, too, but a node must not need it.
        Class.forName("org.apache.cassandra.service.CassandraDaemon")
             .getMethod("main", String[].class)
             .invoke(null, (Object) arguments);
    }

    private static void awaitParent() {
        try {
            while (System.in.read() >= 0) {
                // Nobody writes; only the end counts.
            }
        } catch (IOException closed) {
            // The pipe is gone, and so is the parent.
        }
        Runtime.getRuntime().halt(1);
    }
}
