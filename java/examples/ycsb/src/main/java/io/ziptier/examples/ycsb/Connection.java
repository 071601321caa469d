package io.ziptier.examples.ycsb;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A connection to a server that speaks RESP2, as far as the binding needs it. Not for several threads. */
final class Connection implements AutoCloseable {
    private final Socket socket;
    private final DataInputStream input;
    private final OutputStream output;

    Connection(String host, int port) throws IOException {
        socket = new Socket(host, port);
        socket.setTcpNoDelay(true);
        input = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 64 << 10));
        output = new BufferedOutputStream(socket.getOutputStream(), 64 << 10);
    }

    /**
     * Sends one request.
     *
     * @return the bytes of a bulk or simple string, a {@code Long}, a list of such objects, or null for no value
     * @throws IOException if the connection is broken, or with the words of the server's refusal
     */
    Object ask(byte[]... words) throws IOException {
        output.write(("*" + words.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
        for (byte[] word : words) {
            output.write(("$" + word.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
            output.write(word);
            output.write('\r');
            output.write('\n');
        }
        output.flush();
        return reply();
    }

    private Object reply() throws IOException {
        byte kind = input.readByte();
        String line = line();
        switch (kind) {
            case '+':
                return line.getBytes(StandardCharsets.ISO_8859_1);
            case ':':
                return Long.valueOf(line);
            case '$':
                return bulk(Integer.parseInt(line));
            case '*':
                int count = Integer.parseInt(line);
                List<Object> elements = new ArrayList<>(count);
                for (int index = 0; index < count; index++) {
                    elements.add(reply());
                }
                return elements;
            case '-':
                throw new IOException(line);
            default:
                throw new IOException("a reply begins with byte " + kind);
        }
    }

    private byte[] bulk(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        input.readFully(bytes);
        input.readFully(new byte[2]);
        return bytes;
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = input.read(); next != '\r'; next = input.read()) {
            if (next < 0) {
                throw new EOFException("the server closed the connection");
            }
            line.append((char) next);
        }
        input.readByte();
        return line.toString();
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
