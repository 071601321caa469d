package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Random;

import org.junit.jupiter.api.Test;

/** Damaged chunks must never stop the JVM, and never give other bytes where blocks have a checksum. */
class DamageIsFoundTest {
    private static final int CHUNKS = 100_000;

    @Test
    void damagedChunksAreErrorsOrTheSameBytes() {
        List<String> formats = List.of("lz4", "zstd", "deflate");
        for (String frame : List.of("yes", "no")) {
            for (String format : formats) {
                damage(Map.of("format", format, "frame", frame), CHUNKS / 2 / formats.size() + 1);
            }
        }
    }

    private static void damage(Map<String, String> setting, int chunks) {
        boolean framed = setting.get("frame").equals("yes");
        byte[] raw = Samples.text(4096, 7);
        Random random = new Random(8);
        int found = 0;
        try (Codec codec = Codec.open(setting)) {
            byte[] packed = new byte[codec.maxCompressedLength(raw.length)];
            int length = codec.compress(raw, 0, raw.length, packed, 0, packed.length);
            ByteBuffer chunk = ByteBuffer.allocateDirect(length), back = ByteBuffer.allocateDirect(raw.length + 64);
            for (int i = 0; i < chunks; i++) {
                chunk.clear().put(packed, 0, length).flip();
                for (int flips = 1 + random.nextInt(3); flips > 0; flips--) {
                    int at = random.nextInt(length);
                    chunk.put(at, (byte) (chunk.get(at) ^ 1 << random.nextInt(8)));
                }
                chunk.limit(random.nextInt(4) == 0 ? random.nextInt(length) : length);
                try {
                    codec.decompress(chunk, back.clear());
                    if (framed) {
                        assertArrayEquals(raw, Samples.before(back, 0), setting.toString());
                    }
                } catch (DamagedException | OutputTooSmallException error) {
                    found++;
                }
            }
        }
        assertTrue(found > (framed ? chunks * 9 / 10 : chunks / 100), setting + " found " + found);
    }

    @Test
    void strangersBytesAreNoDictionary() {
        byte[] stored;
        try (Dictionary dictionary = Dictionary.train("zstd", Samples.texts(200, 1000), 2000, 1)) {
            stored = dictionary.store();
        }
        stored[stored.length / 2] ^= 1;
        assertThrows(DamagedException.class, () -> Dictionary.load(stored));
        assertThrows(DamagedException.class, () -> Dictionary.load(new byte[0]));
        assertThrows(DamagedException.class, () -> Tokens.load(Samples.noise(5000, 1)));
    }

    @Test
    void aWrongDictionaryIsFound() {
        byte[] raw = Samples.text(1000, 999), packed = new byte[2000], back = new byte[1000];
        Map<String, String> options = Map.of("format", "zstd", "frame", "yes");
        try (Dictionary dictionary = Dictionary.train("zstd", Samples.texts(200, 1000), 2000, 1);
                Codec with = Codec.open(options, dictionary); Codec without = Codec.open(options)) {
            int length = with.compress(raw, 0, raw.length, packed, 0, packed.length);
            assertThrows(DamagedException.class,
                () -> without.decompress(packed, 0, length, back, 0, back.length));
        }
    }
}
