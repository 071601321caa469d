package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Blocks that the tests compress, and the kinds of buffers that they pass. */
final class Blocks {
    /** Each is a format and a level: the least, the usual, the greatest. */
    static final List<Map<String, String>> OPTIONS = options();

    private Blocks() {
    }

    private static List<Map<String, String>> options() {
        List<Map<String, String>> all = new ArrayList<>(List.of(Map.of("format", "none")));
        Map<String, int[]> levels = Map.of("lz4", new int[] {-65537, 1, 12}, "zstd", new int[] {-131072, 3, 22},
            "deflate", new int[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
        levels.forEach((format, values) -> Arrays.stream(values).forEach(level -> {
            for (String frame : List.of("no", "yes")) {
                all.add(Map.of("format", format, "level", "" + level, "frame", frame));
            }
        }));
        all.add(Map.of("format", "deflate", "split", "4"));
        all.add(Map.of("format", "deflate", "split", "16", "engine", "iaa", "model", "devices=2"));
        return all;
    }

    /** Records with fields that repeat, as a table has them. */
    static byte[] text(int length, long seed) {
        Random random = new Random(seed);
        StringBuilder text = new StringBuilder(length + 100);
        while (text.length() < length) {
            text.append("{\"user\":").append(random.nextInt(100_000)).append(",\"city\":\"Lisbon\",\"state\":\"")
                .append(random.nextBoolean() ? "active" : "closed").append("\"}\n");
        }
        return Arrays.copyOf(text.toString().getBytes(StandardCharsets.US_ASCII), length);
    }

    static byte[] noise(int length, long seed) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    /** Where the bytes of a buffer lie. */
    enum Kind { HEAP, HEAP_SLICE, DIRECT, DIRECT_SLICE, DIRECT_LATER }

    /** An empty buffer with exactly so much room. */
    static ByteBuffer room(Kind kind, int length) {
        switch (kind) {
            case HEAP:
                return ByteBuffer.allocate(length);
            case HEAP_SLICE:
                return slice(ByteBuffer.allocate(length + 20), length);
            case DIRECT:
                return ByteBuffer.allocateDirect(length);
            case DIRECT_SLICE:
                return slice(ByteBuffer.allocateDirect(length + 20), length);
            default:
                ByteBuffer buffer = ByteBuffer.allocateDirect(length + 20);
                return buffer.position(11).limit(11 + length);
        }
    }

    private static ByteBuffer slice(ByteBuffer buffer, int length) {
        return buffer.position(7).limit(7 + length).slice();
    }

    static ByteBuffer of(Kind kind, byte[] bytes) {
        ByteBuffer buffer = room(kind, bytes.length);
        buffer.duplicate().put(bytes);
        return buffer;
    }

    static byte[] remaining(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    static byte[] compress(Codec codec, byte[] raw) {
        byte[] packed = new byte[codec.maxCompressedLength(raw.length)];
        return Arrays.copyOf(packed, codec.compress(raw, 0, raw.length, packed, 0, packed.length));
    }
}
