package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Dictionaries and tokens that Java has trained and stored work, and others are refused. */
class DictionariesAndTokensTest {
    private static final List<byte[]> SAMPLES =
        IntStream.range(0, 2_000).mapToObj(i -> Blocks.text(200, i)).collect(Collectors.toList());

    @Test
    void blocksOfTokensComeBackByTheirDictionary() {
        byte[] raw = Blocks.text(20_000, 5_000);
        assertThrows(InvalidOptionException.class, () -> Codec.open(Map.of("format", "token")));
        try (Dictionary trained = Dictionary.train("token", SAMPLES, 40_000, 7);
             Codec codec = Codec.open(Map.of("format", "token"), trained)) {
            byte[] packed = Blocks.compress(codec, raw), unpacked = new byte[raw.length];
            assertTrue(packed.length < raw.length * 6 / 10, packed.length + " bytes");
            assertEquals(raw.length, codec.decompress(packed, 0, packed.length, unpacked, 0, raw.length));
            assertArrayEquals(raw, unpacked);
        }
    }

    @Test
    void dictionariesMakeSmallBlocksSmaller() {
        byte[] raw = Blocks.text(200, 5_000);
        for (String format : List.of("lz4", "zstd", "deflate")) {
            Map<String, String> options = Map.of("format", format, "frame", "yes");
            byte[] stored;
            try (Dictionary trained = Dictionary.train(format, SAMPLES, 4_096, 7)) {
                stored = trained.store();
            }
            Dictionary dictionary = Dictionary.load(stored);
            try (Codec codec = Codec.open(options, dictionary); Codec plain = Codec.open(options)) {
                dictionary.close();
                byte[] packed = Blocks.compress(codec, raw), unpacked = new byte[raw.length];
                assertTrue(packed.length < Blocks.compress(plain, raw).length, format);
                assertEquals(raw.length, codec.decompress(packed, 0, packed.length, unpacked, 0, raw.length));
                assertArrayEquals(raw, unpacked);
                assertThrows(DamagedException.class,
                    () -> plain.decompress(packed, 0, packed.length, unpacked, 0, raw.length));
            }
            stored[stored.length / 2] ^= 1;
            assertThrows(DamagedException.class, () -> Dictionary.load(stored));
            assertThrows(IllegalStateException.class, dictionary::store);
            assertThrows(IllegalStateException.class, () -> Codec.open(options, dictionary));
        }
        assertThrows(DamagedException.class, () -> Dictionary.load(new byte[0]));
        assertThrows(IllegalArgumentException.class, () -> Dictionary.train("none", SAMPLES, 4_096, 7));
        assertThrows(IllegalArgumentException.class, () -> Dictionary.train("zstd", List.of(), 4_096, 7));
    }

    @Test
    void valuesComeBackByTokens() {
        try (Tokens trained = Tokens.train(SAMPLES, 12, 3); Tokens tokens = Tokens.load(trained.store())) {
            for (byte[] value : List.of(new byte[0], Blocks.text(200, 9_000), Blocks.noise(500, 1))) {
                byte[] coded = new byte[tokens.maxEncodedLength(value.length)], decoded = new byte[value.length];
                int length = trained.encode(value, 0, value.length, coded, 0, coded.length);
                assertEquals(value.length, tokens.decode(coded, 0, length, decoded, 0, decoded.length));
                assertArrayEquals(value, decoded);
                OutputTooSmallException error = assertThrows(OutputTooSmallException.class,
                    () -> tokens.encode(value, 0, value.length, coded, 0, 0));
                assertEquals(length, error.neededBytes());
            }
            assertThrows(DamagedException.class, () -> tokens.decode(new byte[1], 0, 1, new byte[99], 0, 99));
        }
        assertThrows(DamagedException.class, () -> Tokens.load(new byte[100]));
        assertThrows(IllegalArgumentException.class, () -> Tokens.train(SAMPLES, 17, 3));
    }

    @Test
    void groupsComeBackByTokens() {
        List<byte[]> values = List.of(Blocks.text(100, 1), new byte[0], Blocks.text(250, 2));
        try (Tokens tokens = Tokens.train(SAMPLES, 12, 3)) {
            for (Blocks.Kind kind : Blocks.Kind.values()) {
                ByteBuffer all = Blocks.room(kind, 350), coded = Blocks.room(kind, 1_000);
                values.forEach(all.duplicate()::put);
                int start = coded.position();
                int[] ends = {100, 100, 350}, codedEnds = new int[3], decodedEnds = new int[3];
                byte[] expected = Blocks.remaining(all);
                int length = tokens.encodeGroup(all, ends, coded, codedEnds);
                assertEquals(length, codedEnds[2]);
                coded.limit(start + length).position(start);
                ByteBuffer single = ByteBuffer.allocate(100);
                tokens.decode(coded.duplicate().limit(start + codedEnds[0]), single);
                assertArrayEquals(values.get(0), single.array());
                ByteBuffer decoded = Blocks.room(kind, 350);
                int decodedStart = decoded.position();
                assertEquals(350, tokens.decodeGroup(coded, codedEnds, decoded, decodedEnds));
                assertArrayEquals(ends, decodedEnds);
                assertArrayEquals(expected, Blocks.remaining(decoded.position(decodedStart)));
            }
            ByteBuffer in = ByteBuffer.allocate(10), out = ByteBuffer.allocate(100);
            for (int[] wrong : List.of(new int[] {5}, new int[] {6, 5, 10}, new int[] {11}, new int[] {-1, 10})) {
                assertThrows(IllegalArgumentException.class, () -> tokens.encodeGroup(in, wrong, out, new int[3]),
                    Arrays.toString(wrong));
            }
            assertThrows(IllegalArgumentException.class,
                () -> tokens.encodeGroup(in, new int[] {5, 10}, out, new int[1]));
            assertThrows(OutputTooSmallException.class,
                () -> tokens.encodeGroup(in, new int[] {5, 10}, ByteBuffer.allocate(1), new int[2]));
        }
    }
}
