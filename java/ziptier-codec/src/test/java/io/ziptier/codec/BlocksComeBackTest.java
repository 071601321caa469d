package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;
import org.junit.jupiter.api.Test;

/** Every format and level gives back the bytes, from and to every kind of buffer, and zlib reads raw DEFLATE. */
class BlocksComeBackTest {
    private static final List<byte[]> RAW = List.of(new byte[0], new byte[1], Blocks.text(300, 1),
        Blocks.text(16 << 10, 2), Blocks.noise(16 << 10, 3), new byte[100_000], Blocks.text(300_000, 4));

    @Test
    void everyFormatAndLevelInArrays() {
        for (Map<String, String> options : Blocks.OPTIONS) {
            try (Codec codec = Codec.open(options)) {
                RAW.forEach(raw -> assertArraysComeBack(codec, raw));
            }
        }
    }

    private static void assertArraysComeBack(Codec codec, byte[] raw) {
        byte[] packed = new byte[5 + codec.maxCompressedLength(raw.length)];
        int length = codec.compress(raw, 0, raw.length, packed, 5, packed.length - 5);
        byte[] unpacked = new byte[raw.length + 3];
        assertEquals(raw.length, codec.decompress(packed, 5, length, unpacked, 3, raw.length));
        assertArrayEquals(raw, Arrays.copyOfRange(unpacked, 3, unpacked.length));
        Arrays.fill(unpacked, (byte) 1);
        codec.decompressExact(packed, 5, length, unpacked, 3, raw.length);
        assertArrayEquals(raw, Arrays.copyOfRange(unpacked, 3, unpacked.length));
        assertArrayEquals(new byte[5], Arrays.copyOf(packed, 5), "bytes before the start are the caller's");
    }

    @Test
    void everyPairOfBuffers() {
        for (Map<String, String> options : Blocks.OPTIONS) {
            try (Codec codec = Codec.open(options)) {
                for (Blocks.Kind source : Blocks.Kind.values()) {
                    for (Blocks.Kind target : Blocks.Kind.values()) {
                        assertBuffersComeBack(codec, source, target, Blocks.text(2_000, 5));
                        assertBuffersComeBack(codec, source, target, new byte[0]);
                    }
                }
            }
        }
    }

    private static void assertBuffersComeBack(Codec codec, Blocks.Kind source, Blocks.Kind target, byte[] raw) {
        ByteBuffer from = Blocks.of(source, raw).asReadOnlyBuffer();
        ByteBuffer packed = Blocks.room(target, codec.maxCompressedLength(raw.length));
        int start = packed.position(), limit = packed.limit();
        int length = codec.compress(from, packed);
        assertEquals(0, from.remaining());
        assertEquals(start + length, packed.position());
        assertEquals(limit, packed.limit());
        packed.limit(packed.position()).position(start);
        ByteBuffer unpacked = Blocks.room(source, raw.length), exact = unpacked.duplicate();
        int unpackedStart = unpacked.position();
        assertEquals(raw.length, codec.decompress(packed.duplicate(), unpacked));
        assertEquals(0, unpacked.remaining());
        assertArrayEquals(raw, Blocks.remaining(unpacked.position(unpackedStart)));
        exact.duplicate().put(new byte[raw.length]);
        codec.decompressExact(packed.asReadOnlyBuffer(), exact);
        assertArrayEquals(raw, Blocks.remaining(exact.position(unpackedStart)));
    }

    @Test
    void zlibReadsRawDeflateAndIsRead() throws DataFormatException {
        for (int level = 1; level <= 12; level++) {
            try (Codec codec = Codec.open(Map.of("format", "deflate", "level", "" + level))) {
                for (byte[] raw : RAW) {
                    assertArrayEquals(raw, inflate(Blocks.compress(codec, raw), raw.length));
                    byte[] unpacked = new byte[raw.length];
                    byte[] packed = deflate(raw, Math.min(level, 9));
                    assertEquals(raw.length, codec.decompress(packed, 0, packed.length, unpacked, 0, raw.length));
                    assertArrayEquals(raw, unpacked);
                }
            }
        }
    }

    private static byte[] inflate(byte[] packed, int length) throws DataFormatException {
        Inflater inflater = new Inflater(true);
        // The documentation of Inflater asks for a byte more of raw streams.
        inflater.setInput(Arrays.copyOf(packed, packed.length + 1));
        byte[] raw = new byte[length + 1];
        int found = inflater.inflate(raw);
        assertTrue(inflater.finished());
        inflater.end();
        return Arrays.copyOf(raw, found);
    }

    private static byte[] deflate(byte[] raw, int level) {
        Deflater deflater = new Deflater(level, true);
        deflater.setInput(raw);
        deflater.finish();
        byte[] packed = new byte[raw.length + raw.length / 100 + 100];
        int length = deflater.deflate(packed);
        assertTrue(deflater.finished());
        deflater.end();
        return Arrays.copyOf(packed, length);
    }

    @Test
    void textShrinks() {
        byte[] raw = Blocks.text(16 << 10, 6);
        for (Map<String, String> options : List.of(Map.of("format", "lz4"), Map.of("format", "zstd"),
                Map.of("format", "deflate"))) {
            try (Codec codec = Codec.open(options)) {
                assertTrue(Blocks.compress(codec, raw).length < raw.length / 2, options.toString());
            }
        }
    }

    @Test
    void statisticsCountTheWork() {
        try (Codec codec = Codec.open(Map.of("format", "deflate", "path", "software"))) {
            Blocks.compress(codec, Blocks.text(1_000, 7));
            Statistics statistics = codec.statistics();
            assertEquals("deflate", statistics.format());
            assertEquals(codec.worker(), statistics.worker());
            assertEquals(0, statistics.fallbacks());
            assertEquals(1L, statistics.counters().get("compress_calls"), statistics.toString());
        }
    }
}
