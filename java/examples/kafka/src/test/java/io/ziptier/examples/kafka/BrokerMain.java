package io.ziptier.examples.kafka;

import java.io.IOException;

/** Runs a broker that ends with its parent: whatever happens to the tests, their end of the pipe closes. */
public final class BrokerMain {
    private BrokerMain() {
    }

    public static void main(String[] arguments) {
        Thread watcher = new Thread(BrokerMain::awaitParent, "parent-watcher");
        watcher.setDaemon(true);
        watcher.start();
        kafka.Kafka.main(arguments);
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
