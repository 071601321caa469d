package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.junit.jupiter.api.Test;

/** Dictionaries and tokens that were stored must read what the trained ones wrote. */
class ValuesComeBackTest {
    private static final byte[] VALUE = Samples.text(128, 12345);

    @Test
    void storedTokensReadValues() {
        try (Tokens trained = Tokens.train(Samples.texts(300, 1000), 12, 7);
                Tokens loaded = Tokens.load(trained.store())) {
            ByteBuffer coded = ByteBuffer.allocateDirect(trained.maxEncodedLength(VALUE.length));
            int length = trained.encode(ByteBuffer.wrap(VALUE), coded);
            assertTrue(length < VALUE.length / 2, "a value takes " + length);
            ByteBuffer back = ByteBuffer.allocate(VALUE.length);
            assertEquals(VALUE.length, loaded.decode(coded.flip(), back));
            assertArrayEquals(VALUE, back.array());

            byte[] array = new byte[length];
            assertEquals(length, trained.encode(VALUE, 0, VALUE.length, array, 0, length));
            OutputTooSmallException error = assertThrows(OutputTooSmallException.class,
                () -> loaded.decode(array, 0, length, new byte[VALUE.length], 0, VALUE.length - 1));
            assertEquals(VALUE.length, error.neededBytes());
            array[length / 2] ^= 4;
            assertThrows(DamagedException.class,
                () -> loaded.decode(array, 0, length, new byte[4 * VALUE.length], 0, 4 * VALUE.length));
        }
    }

    @Test
    void groupsAreTheSingleValues() {
        List<byte[]> values = Samples.texts(100, 60);
        ByteBuffer all = ByteBuffer.allocate(6000 + 20).position(20);
        int[] ends = new int[values.size()];
        for (int i = 0; i < ends.length; i++) {
            all.put(values.get(i));
            ends[i] = all.position() - 20;
        }
        all.position(20);
        try (Tokens tokens = Tokens.train(Samples.texts(300, 1000), 12, 7)) {
            for (ByteBuffer coded : List.of(ByteBuffer.allocate(9000), ByteBuffer.allocateDirect(9000))) {
                int[] codedEnds = new int[ends.length], backEnds = new int[ends.length];
                coded.position(5);
                tokens.encodeGroup(all.duplicate(), ends, coded, codedEnds);
                byte[] codedBytes = Samples.before(coded, 5), single = new byte[200];
                for (int i = 0, start = 0; i < ends.length; start = codedEnds[i++]) {
                    int length = tokens.encode(values.get(i), 0, 60, single, 0, 200);
                    byte[] ofGroup = Arrays.copyOfRange(codedBytes, start, codedEnds[i]);
                    assertArrayEquals(Arrays.copyOf(single, length), ofGroup);
                }
                ByteBuffer back = ByteBuffer.allocateDirect(6000);
                assertEquals(6000, tokens.decodeGroup(ByteBuffer.wrap(codedBytes), codedEnds, back, backEnds));
                assertArrayEquals(ends, backEnds);
                assertEquals(all, back.flip());
            }
            assertThrows(IllegalArgumentException.class,
                () -> tokens.encodeGroup(all, new int[] {5, 4, 6000}, ByteBuffer.allocate(9), new int[3]));
            assertThrows(IllegalArgumentException.class,
                () -> tokens.encodeGroup(all, new int[] {5999}, ByteBuffer.allocate(9), new int[3]));
            assertThrows(IllegalArgumentException.class,
                () -> tokens.encodeGroup(all, ends, ByteBuffer.allocate(9000), new int[99]));
            OutputTooSmallException error = assertThrows(OutputTooSmallException.class,
                () -> tokens.encodeGroup(all, ends, ByteBuffer.allocate(9), new int[100]));
            assertTrue(error.neededBytes() > 100);
        }
    }

    @Test
    void storedDictionariesReadBlocks() {
        byte[] raw = Samples.text(1024, 4711), packed = new byte[2048];
        for (String format : List.of("lz4", "zstd", "deflate")) {
            try (Dictionary trained = Dictionary.train(format, Samples.texts(200, 1000), 4096, 3);
                    Dictionary loaded = Dictionary.load(trained.store());
                    Codec writer = Codec.open(Map.of("format", format), trained);
                    Codec reader = Codec.open(Map.of("format", format), loaded);
                    Codec plain = Codec.open(Map.of("format", format))) {
                int without = plain.compress(raw, 0, raw.length, packed, 0, packed.length);
                int length = writer.compress(raw, 0, raw.length, packed, 0, packed.length);
                assertTrue(length < without, format + " takes " + length + ", without a dictionary " + without);
                byte[] back = new byte[raw.length];
                reader.decompressExact(packed, 0, length, back, 0, back.length);
                assertArrayEquals(raw, back);
            }
        }
    }

    @Test
    void wrongOptionsAreNamed() {
        options("choose among", Map.of("format", "zstd", "levle", "3"));
        options("format", Map.of());
        options("level", Map.of("format", "zstd", "level", "99"));
        options("yes or no", Map.of("format", "zstd", "frame", "perhaps"));
        options("huffman", Map.of("format", "lz4", "huffman", "fixed"));
        options("without zeros", Map.of("format", "zs\0td"));
        EngineException error = assertThrows(EngineException.class,
            () -> Codec.open(Map.of("format", "deflate", "path", "hardware")).close());
        assertTrue(error.getMessage().contains("device"), error.getMessage());
        assertThrows(IllegalArgumentException.class, () -> Tokens.train(List.of(VALUE), 9, 1));
        assertThrows(IllegalArgumentException.class, () -> Dictionary.train("none", List.of(VALUE), 1000, 1));
        assertThrows(IllegalArgumentException.class, () -> Dictionary.train("zstd", List.of(VALUE), -1, 1));
    }

    private static void options(String expected, Map<String, String> options) {
        InvalidOptionException error = assertThrows(InvalidOptionException.class, () -> Codec.open(options).close());
        assertTrue(error.getMessage().contains(expected), error.getMessage());
    }
}
