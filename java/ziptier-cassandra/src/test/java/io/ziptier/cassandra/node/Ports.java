package io.ziptier.cassandra.node;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;

/** Ports that are free on the first four addresses of the loopback device. */
final class Ports {
    private static final int ADDRESSES = 4;

    private Ports() {
    }

    static int free() throws IOException {
        for (;;) {
            List<ServerSocket> sockets = new ArrayList<>();
            try {
                int port = 0;
                for (int host = 1; host <= ADDRESSES; host++) {
                    ServerSocket socket = new ServerSocket();
                    sockets.add(socket);
                    socket.bind(new InetSocketAddress(InetAddress.getByName(Cluster.address(host)), port));
                    port = socket.getLocalPort();
                }
                return port;
            } catch (java.net.BindException taken) {
                // Another port may be free on all addresses.
            } finally {
                for (ServerSocket socket : sockets)
                    socket.close();
            }
        }
    }
}
