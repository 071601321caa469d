package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Data of the tests. */
final class Samples {
    private static final String[] WORDS = {"leaf", "landing", "body", "packs", "the", "store", "a", "reads", "device",
        "of", "memory", "writes", "block", "dictionary", "places", "by", "value", "and", "tokens", "far"};

    private Samples() {
    }

    /** Text that compresses, of so many bytes. */
    static byte[] text(int length, long seed) {
        Random random = new Random(seed);
        StringBuilder text = new StringBuilder(length + 20);
        while (text.length() < length) {
            text.append(WORDS[random.nextInt(WORDS.length)]).append(random.nextInt(9) == 0 ? ".\n" : " ");
        }
        return text.substring(0, length).getBytes(StandardCharsets.US_ASCII);
    }

    static byte[] noise(int length, long seed) {
        byte[] noise = new byte[length];
        new Random(seed).nextBytes(noise);
        return noise;
    }

    static List<byte[]> texts(int count, int length) {
        List<byte[]> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            texts.add(text(length, i));
        }
        return texts;
    }

    /** All formats and the ends of their levels, without and with a frame. */
    static List<Map<String, String>> settings() {
        List<Map<String, String>> settings = new ArrayList<>();
        for (String frame : new String[] {"no", "yes"}) {
            settings.add(Map.of("format", "none", "frame", frame));
            for (String level : new String[] {"-10", "1", "12"}) {
                settings.add(Map.of("format", "lz4", "level", level, "frame", frame));
            }
            for (String level : new String[] {"-5", "3", "19"}) {
                settings.add(Map.of("format", "zstd", "level", level, "frame", frame));
            }
            for (String huffman : new String[] {"fixed", "dynamic"}) {
                settings.add(Map.of("format", "deflate", "huffman", huffman, "frame", frame));
            }
            settings.add(Map.of("format", "deflate", "level", "12", "path", "software", "frame", frame));
            settings.add(Map.of("format", "deflate", "engine", "iaa", "model", "devices=1", "frame", frame));
        }
        return settings;
    }

    static ByteBuffer direct(byte[] bytes) {
        return ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
    }

    /** What lies before the position. */
    static byte[] before(ByteBuffer buffer, int start) {
        ByteBuffer written = buffer.duplicate().flip().position(start);
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return bytes;
    }
}
