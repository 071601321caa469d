package io.ziptier.cassandra.node;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import io.ziptier.codec.Dictionary;

/** Real files, one behind the other, to cut values from. {@code ZIPTIER_CORPUS} names their folder. */
public final class Corpus {
    private static final int BYTES_MAX = 8 << 20;

    private final byte[] bytes;

    private Corpus(byte[] bytes) {
        this.bytes = bytes;
    }

    public static Corpus read() throws IOException {
        String folder = System.getenv("ZIPTIER_CORPUS");
        if (folder == null)
            throw new IOException("ZIPTIER_CORPUS names no folder: make corpus makes one");
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        try (Stream<Path> tree = Files.walk(Path.of(folder))) {
            List<Path> files = tree.filter(Files::isRegularFile)
                                   .filter(path -> !path.toString().endsWith(".zst"))
                                   .sorted()
                                   .collect(Collectors.toList());
            for (Path file : files) {
                if (all.size() < BYTES_MAX)
                    all.write(Files.readAllBytes(file));
            }
        }
        if (all.size() < 1 << 20)
            throw new IOException(folder + " has " + all.size() + " bytes of files, and 1 MiB is needed");
        return new Corpus(all.toByteArray());
    }

    /** A piece of so many bytes; neighbouring numbers have neighbouring text. */
    public ByteBuffer piece(long number, int length) {
        int at = (int) Math.floorMod(number * length, (long) bytes.length - length);
        return ByteBuffer.wrap(bytes, at, length).slice();
    }

    /** Tokens that are trained on a quarter of a MiB from a piece of 4 KiB on, as an option of a table. */
    public String dictionary(int from) {
        List<byte[]> samples = new ArrayList<>();
        for (int number = 0; number < 60; number++) {
            byte[] sample = new byte[4096];
            piece(from + number, sample.length).get(sample);
            samples.add(sample);
        }
        try (Dictionary dictionary = Dictionary.train("token", samples, 40_000, 0)) {
            return Base64.getEncoder().encodeToString(dictionary.store());
        }
    }
}
