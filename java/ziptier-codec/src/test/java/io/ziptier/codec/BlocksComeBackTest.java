package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

import org.junit.jupiter.api.Test;

/** A position that is off by a slice's base, or a length that is the capacity, would give other bytes. */
class BlocksComeBackTest {
    private static final Map<String, String> DEFLATE = Map.of("format", "deflate");

    /** Inputs of every kind; the bytes remain in each. */
    private static final List<Function<byte[], ByteBuffer>> INPUTS = List.of(
        ByteBuffer::wrap,
        Samples::direct,
        bytes -> Samples.direct(bytes).asReadOnlyBuffer(),
        bytes -> ByteBuffer.wrap(bytes).asReadOnlyBuffer(),
        bytes -> ByteBuffer.allocate(bytes.length + 30).position(7).put(bytes).flip().position(7).slice(),
        bytes -> ByteBuffer.allocateDirect(bytes.length + 30).position(9).put(bytes).flip().position(9).slice(),
        bytes -> ByteBuffer.allocateDirect(bytes.length + 30).position(11).put(bytes).flip().position(11));

    /** Outputs of every kind, with so much room from the position to the limit. */
    private static final List<Function<Integer, ByteBuffer>> OUTPUTS = List.of(
        ByteBuffer::allocate,
        ByteBuffer::allocateDirect,
        room -> ByteBuffer.allocate(room + 40).position(13).limit(room + 13),
        room -> ByteBuffer.allocateDirect(room + 40).position(17).slice().position(3).limit(room + 3));

    @Test
    void everyFormatFitsEveryPairOfBuffers() {
        for (Map<String, String> setting : Samples.settings()) {
            try (Codec codec = Codec.open(setting)) {
                for (byte[] raw : List.of(Samples.text(16384, 1), Samples.noise(4096, 2), new byte[0], new byte[1])) {
                    everyPair(codec, raw, setting.toString());
                }
            }
        }
    }

    private static void everyPair(Codec codec, byte[] raw, String setting) {
        for (Function<byte[], ByteBuffer> inputs : INPUTS) {
            for (Function<Integer, ByteBuffer> outputs : OUTPUTS) {
                ByteBuffer input = inputs.apply(raw);
                ByteBuffer packed = outputs.apply(codec.maxCompressedLength(raw.length));
                int start = packed.position(), limit = packed.limit();
                int length = codec.compress(input, packed);
                assertEquals(0, input.remaining(), setting);
                assertEquals(start + length, packed.position(), setting);
                assertEquals(limit, packed.limit(), setting);

                ByteBuffer block = inputs.apply(Samples.before(packed, start)), back = outputs.apply(raw.length);
                int backStart = back.position();
                assertEquals(raw.length, codec.decompress(block, back), setting);
                assertEquals(0, block.remaining(), setting);
                assertArrayEquals(raw, Samples.before(back, backStart), setting);

                ByteBuffer exact = outputs.apply(raw.length);
                codec.decompressExact(inputs.apply(Samples.before(packed, start)), exact);
                assertArrayEquals(raw, Samples.before(exact, backStart), setting);
            }
        }
    }

    @Test
    void partsOfOneArrayAreInputAndOutput() {
        byte[] raw = Samples.text(5000, 3), all = new byte[20000];
        System.arraycopy(raw, 0, all, 100, raw.length);
        try (Codec codec = Codec.open(DEFLATE)) {
            int length = codec.compress(all, 100, raw.length, all, 5100, 6000);
            assertTrue(length < raw.length / 2);
            assertEquals(0, all[5100 + length], "nothing lies behind the block");
            assertEquals(raw.length, codec.decompress(all, 5100, length, all, 12000, 6000));
            assertArrayEquals(raw, Arrays.copyOfRange(all, 12000, 17000));
            codec.decompressExact(all, 5100, length, all, 13000, raw.length);
            assertArrayEquals(raw, Arrays.copyOfRange(all, 13000, 18000));
        }
    }

    @Test
    void overlappingBuffersAreRefused() {
        try (Codec codec = Codec.open(DEFLATE)) {
            byte[] bytes = new byte[1000];
            assertThrows(IllegalArgumentException.class, () -> codec.compress(bytes, 0, 500, bytes, 499, 500));
            ByteBuffer heap = ByteBuffer.wrap(bytes);
            assertThrows(IllegalArgumentException.class, () -> codec.compress(heap, heap.duplicate()));
            ByteBuffer direct = ByteBuffer.allocateDirect(1000);
            IllegalArgumentException error = assertThrows(IllegalArgumentException.class,
                () -> codec.compress(direct.duplicate().limit(500), direct.duplicate().position(499)));
            assertTrue(error.getMessage().contains("overlap"), error.getMessage());
        }
    }

    @Test
    void wrongArgumentsChangeNothing() {
        byte[] raw = Samples.text(4096, 4);
        try (Codec codec = Codec.open(Map.of("format", "zstd", "frame", "yes"))) {
            ByteBuffer input = Samples.direct(raw), small = ByteBuffer.allocateDirect(40);
            assertThrows(OutputTooSmallException.class, () -> codec.compress(input, small));
            assertEquals(0, input.position());
            assertEquals(0, small.position());
            ByteBuffer packed = ByteBuffer.allocateDirect(5000);
            codec.compress(input, packed);
            packed.flip();
            OutputTooSmallException error =
                assertThrows(OutputTooSmallException.class, () -> codec.decompress(packed, small));
            assertEquals(raw.length, error.neededBytes());
            assertTrue(error.getMessage().contains("40 bytes"), error.getMessage());
            ByteBuffer readOnly = ByteBuffer.allocateDirect(5000).asReadOnlyBuffer();
            assertThrows(ReadOnlyBufferException.class, () -> codec.decompress(packed, readOnly));
            assertThrows(ReadOnlyBufferException.class, () -> codec.decompress(packed, readOnly.duplicate()));
            assertEquals(0, packed.position());
            assertThrows(IndexOutOfBoundsException.class, () -> codec.compress(raw, 1, 4096, new byte[9], 0, 9));
            assertThrows(IndexOutOfBoundsException.class, () -> codec.compress(raw, 0, 10, new byte[9], 5, 5));
            assertThrows(IndexOutOfBoundsException.class, () -> codec.compress(raw, -1, 10, new byte[9], 0, 5));
            assertThrows(NullPointerException.class, () -> codec.compress(null, packed));
            assertThrows(NullPointerException.class, () -> codec.compress(packed, null));
            assertThrows(IllegalArgumentException.class, () -> codec.maxCompressedLength(-1));
            assertThrows(IllegalArgumentException.class, () -> codec.maxCompressedLength(Integer.MAX_VALUE));
        }
    }

    @Test
    void javaReadsOurDeflateAndTheOtherWayRound() throws DataFormatException {
        byte[] raw = Samples.text(16384, 5);
        for (String huffman : List.of("fixed", "dynamic")) {
            try (Codec codec = Codec.open(Map.of("format", "deflate", "huffman", huffman))) {
                byte[] packed = new byte[codec.maxCompressedLength(raw.length)], back = new byte[raw.length];
                int length = codec.compress(raw, 0, raw.length, packed, 0, packed.length);
                Inflater inflater = new Inflater(true);
                inflater.setInput(packed, 0, length);
                assertEquals(raw.length, inflater.inflate(back));
                assertTrue(inflater.finished());
                inflater.end();
                assertArrayEquals(raw, back);

                // Fixed and canned codes have a decoder of our own, with a window of 4 KiB as accelerators have.
                int rawLength = huffman.equals("dynamic") ? raw.length : 4096;
                length = deflated(raw, rawLength, packed);
                Arrays.fill(back, (byte) 0);
                codec.decompressExact(packed, 0, length, back, 0, rawLength);
                assertArrayEquals(Arrays.copyOf(raw, rawLength), Arrays.copyOf(back, rawLength));
            }
        }
    }

    private static int deflated(byte[] raw, int length, byte[] packed) {
        Deflater deflater = new Deflater(9, true);
        deflater.setInput(raw, 0, length);
        deflater.finish();
        int bytes = deflater.deflate(packed);
        deflater.end();
        return bytes;
    }

    @Test
    void statisticsCountWhoWorked() {
        byte[] raw = Samples.text(4096, 6);
        try (Codec codec = Codec.open(Map.of("format", "deflate", "engine", "iaa", "model", "devices=1"))) {
            assertEquals("modelled", codec.worker());
            codec.compress(ByteBuffer.wrap(raw), ByteBuffer.allocate(5000));
            Statistics statistics = codec.statistics();
            assertEquals("deflate", statistics.format());
            assertEquals("iaa", statistics.engine());
            assertEquals(4096, statistics.counters().get("compress_bytes_in"), statistics.toString());
            assertEquals(0, statistics.fallbacks());
        }
    }
}
