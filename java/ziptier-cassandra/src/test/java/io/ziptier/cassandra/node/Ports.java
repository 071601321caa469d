package io.ziptier.cassandra.node;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;

/**
 * Ports that are free on the first four addresses of the loopback device.
 *
 * <p>A node takes its ports seconds after the test has chosen them. So they lie below those that the kernel hands out
 * by itself (32,768 and above unless an operator changed that): no connection of another process gets one meanwhile.
 */
final class Ports {
    private static final int ADDRESSES = 4;
    private static final int FIRST = 20_000;
    private static final int COUNT = 12_000;
    /** As many as a cluster takes, and more: tests that run beside each other begin at different ports. */
    private static final int FOR_EACH_PROCESS = 16;

    private static int next = (int) (ProcessHandle.current().pid() * FOR_EACH_PROCESS % COUNT);

    private Ports() {
    }

    static synchronized int free() throws IOException {
        for (int tries = 0; tries < COUNT; tries++) {
            int port = FIRST + next;
            next = (next + 1) % COUNT;
            if (isFree(port))
                return port;
        }
        throw new BindException("looked for a free port from " + FIRST + " to " + (FIRST + COUNT - 1)
                                + ", and found none");
    }

    private static boolean isFree(int port) throws IOException {
        for (int host = 1; host <= ADDRESSES; host++) {
            try (ServerSocket socket = new ServerSocket()) {
                socket.bind(new InetSocketAddress(InetAddress.getByName(Cluster.address(host)), port));
            } catch (BindException taken) {
                return false;
            }
        }
        return true;
    }
}
