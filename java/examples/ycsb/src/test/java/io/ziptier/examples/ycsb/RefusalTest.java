package io.ziptier.examples.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import site.ycsb.DBException;

/** A server that refused a database was told to be missing. */
class RefusalTest {
    private static final byte[] REQUEST = bytes("*2\r\n$9\r\nZT.DB.USE\r\n$4\r\nnone\r\n");

    @Test
    void theWordsOfTheServerAreTold() throws Exception {
        try (ServerSocket listening = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread server = new Thread(() -> refuse(listening));
            server.start();
            Properties properties = new Properties();
            properties.setProperty("ziptier.port", Integer.toString(listening.getLocalPort()));
            properties.setProperty("ziptier.database", "none");
            ZiptierClient client = new ZiptierClient();
            client.setProperties(properties);
            String said = assertThrows(DBException.class, client::init).getMessage();
            client.cleanup();
            server.join();
            assertEquals("cannot use the server at 127.0.0.1:" + listening.getLocalPort() + ": ERR no such database",
                said);
        }
    }

    private static void refuse(ServerSocket listening) {
        try (Socket client = listening.accept()) {
            client.getInputStream().readNBytes(REQUEST.length);
            client.getOutputStream().write(bytes("-ERR no such database\r\n"));
        } catch (IOException failure) {
            throw new AssertionError(failure);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
