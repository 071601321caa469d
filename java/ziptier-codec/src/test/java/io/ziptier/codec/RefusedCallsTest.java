package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Wrong options, outputs, ranges and closed objects are exceptions whose sentences say what to do. */
class RefusedCallsTest {
    private static void assertSaid(Throwable error, String... parts) {
        for (String part : parts) {
            assertTrue(error.getMessage().contains(part), error.getMessage());
        }
    }

    @Test
    void wrongOptions() {
        assertRefused(Map.of(), "needs the option format", "lz4");
        assertRefused(Map.of("format", "lzo"), "format", "lzo");
        assertRefused(Map.of("format", "lz4", "speed", "9"), "no option \"speed\"", "choose among");
        assertRefused(Map.of("format", "lz4", "level", "13"), "13");
        assertRefused(Map.of("format", "lz4", "level", "fast"), "option level is \"fast\"");
        assertRefused(Map.of("format", "lz4", "huffman", "fixed"), "no option huffman");
        assertRefused(Map.of("format", "lz4", "split", "2"), "no option split");
        assertRefused(Map.of("format", "deflate", "split", "17"), "17 parts", "choose 1 to 16");
        assertRefused(Map.of("format", "l\0z4"), "without zeros");
    }

    private static void assertRefused(Map<String, String> options, String... parts) {
        assertSaid(assertThrows(InvalidOptionException.class, () -> Codec.open(options)), parts);
    }

    @Test
    void nothingStoredIsRefused() {
        assertThrows(NullPointerException.class, () -> Dictionary.load(null));
        assertThrows(NullPointerException.class, () -> Tokens.load(null));
    }

    @Test
    void aMissingEngineIsNoWrongOption() {
        Map<String, String> options = Map.of("format", "deflate", "engine", "iaa", "path", "hardware");
        if (!new java.io.File("/sys/bus/dsa/devices").exists()) {
            assertThrows(EngineException.class, () -> Codec.open(options));
        }
    }

    @Test
    void tooSmallOutputsChangeNothing() {
        byte[] raw = Blocks.noise(1_000, 1);
        for (String frame : new String[] {"no", "yes"}) {
            try (Codec codec = Codec.open(Map.of("format", "lz4", "frame", frame))) {
                for (Blocks.Kind kind : Blocks.Kind.values()) {
                    ByteBuffer from = Blocks.of(kind, raw), packed = Blocks.room(kind, 500);
                    int start = from.position(), target = packed.position();
                    assertThrows(OutputTooSmallException.class, () -> codec.compress(from, packed));
                    assertEquals(start, from.position());
                    assertEquals(target, packed.position());
                }
                byte[] packed = Blocks.compress(codec, raw), small = new byte[999], exact = new byte[1_000];
                OutputTooSmallException error = assertThrows(OutputTooSmallException.class,
                    () -> codec.decompress(packed, 0, packed.length, small, 0, small.length));
                assertEquals(frame.equals("yes") ? 1_000 : 0, error.neededBytes());
                assertArrayEquals(new byte[999], small);
                codec.decompress(packed, 0, packed.length, exact, 0, exact.length);
                assertArrayEquals(raw, exact);
                assertThrows(DamagedException.class,
                    () -> codec.decompressExact(packed, 0, packed.length, small, 0, small.length));
            }
        }
    }

    @Test
    void wrongBuffers() {
        try (Codec codec = Codec.open(Map.of("format", "lz4"))) {
            ByteBuffer raw = ByteBuffer.wrap(Blocks.text(1_000, 2));
            for (ByteBuffer packed : new ByteBuffer[] {ByteBuffer.allocate(2_000), ByteBuffer.allocateDirect(2_000)}) {
                assertThrows(ReadOnlyBufferException.class, () -> codec.compress(raw, packed.asReadOnlyBuffer()));
            }
            for (ByteBuffer both : new ByteBuffer[] {ByteBuffer.allocate(4_000), ByteBuffer.allocateDirect(4_000)}) {
                ByteBuffer input = both.duplicate().limit(2_000), output = both.duplicate().position(1_999);
                assertSaid(assertThrows(IllegalArgumentException.class, () -> codec.compress(input, output)),
                    "overlap");
                assertEquals(0, input.position());
                codec.compress(input, output.position(2_000));
            }
            byte[] bytes = new byte[100];
            assertThrows(IllegalArgumentException.class, () -> codec.compress(bytes, 0, 50, bytes, 49, 51));
            assertThrows(IndexOutOfBoundsException.class, () -> codec.compress(bytes, 51, 50, new byte[99], 0, 99));
            assertThrows(IndexOutOfBoundsException.class, () -> codec.compress(bytes, 0, 50, new byte[99], -1, 9));
            assertThrows(NullPointerException.class, () -> codec.compress(bytes, 0, 50, null, 0, 9));
            assertThrows(NullPointerException.class, () -> codec.compress(null, raw));
            assertThrows(IllegalArgumentException.class, () -> codec.maxCompressedLength(-1));
            assertThrows(IllegalArgumentException.class, () -> codec.maxCompressedLength(Integer.MAX_VALUE));
        }
    }

    @Test
    void closedObjects() {
        Codec codec = Codec.open(Map.of("format", "zstd"));
        codec.close();
        codec.close();
        assertSaid(assertThrows(IllegalStateException.class, () -> Blocks.compress(codec, new byte[9])), "is closed");
        assertThrows(IllegalStateException.class, codec::statistics);
        assertThrows(IllegalStateException.class,
            () -> codec.compress(ByteBuffer.allocate(9), ByteBuffer.allocateDirect(99)));
    }
}
