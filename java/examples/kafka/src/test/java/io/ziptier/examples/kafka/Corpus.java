package io.ziptier.examples.kafka;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** Values cut from the longest of the real files whose folder {@code ZIPTIER_CORPUS} names. */
final class Corpus {
    private static final byte[] BYTES = read();

    private Corpus() {
    }

    private static byte[] read() {
        byte[] longest = {};
        try (Stream<Path> tree = Files.walk(Path.of(System.getenv("ZIPTIER_CORPUS")))) {
            for (Path file : (Iterable<Path>) tree.filter(Files::isRegularFile)::iterator) {
                if (!file.toString().endsWith(".zst") && Files.size(file) > longest.length) {
                    longest = Files.readAllBytes(file);
                }
            }
        } catch (IOException failure) {
            throw new IllegalStateException("ZIPTIER_CORPUS names no folder of files", failure);
        }
        return longest;
    }

    static byte[] piece(int number, int length) {
        int at = (int) ((long) number * length % (BYTES.length - length));
        return Arrays.copyOfRange(BYTES, at, at + length);
    }

    static List<byte[]> pieces(int from, int count, int length) {
        return IntStream.range(from, from + count).mapToObj(number -> piece(number, length))
            .collect(Collectors.toList());
    }
}
