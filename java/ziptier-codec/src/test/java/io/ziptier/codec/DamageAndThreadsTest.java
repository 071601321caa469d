package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Neither damaged blocks nor threads that close what others use crash the JVM or give other bytes. */
class DamageAndThreadsTest {
    private static final int DAMAGED = 25_000;
    private static final int THREADS = 8;

    /** Four formats, so 100,000 blocks. */
    @Test
    void damagedFramesNeverGiveOtherBytes() {
        Random random = new Random(1);
        for (String format : List.of("none", "lz4", "zstd", "deflate")) {
            try (Codec codec = Codec.open(Map.of("format", format, "frame", "yes"))) {
                byte[] raw = Blocks.text(2_000, 1), packed = Blocks.compress(codec, raw), unpacked = new byte[4_000];
                int refused = 0;
                for (int i = 0; i < DAMAGED; i++) {
                    byte[] damaged = damage(packed, random);
                    refused += refuses(codec, damaged, unpacked, raw) ? 1 : 0;
                }
                assertTrue(refused > DAMAGED * 9 / 10, format + ": only " + refused + " were refused");
            }
        }
    }

    /** Flips some bits, cuts the end, or writes noise. */
    private static byte[] damage(byte[] packed, Random random) {
        int length = random.nextInt(4) == 0 ? random.nextInt(packed.length + 1) : packed.length;
        byte[] damaged = Arrays.copyOf(packed, length);
        for (int flips = random.nextInt(4); length > 0 && flips >= 0; flips--) {
            damaged[random.nextInt(length)] ^= 1 << random.nextInt(8);
        }
        return damaged;
    }

    /** Whether a block is refused. A block that is not must give the bytes. */
    private static boolean refuses(Codec codec, byte[] damaged, byte[] unpacked, byte[] raw) {
        try {
            int length = codec.decompress(damaged, 0, damaged.length, unpacked, 0, unpacked.length);
            assertArrayEquals(raw, Arrays.copyOf(unpacked, length));
            return false;
        } catch (DamagedException | OutputTooSmallException error) {
            return true;
        }
    }

    private static void inThreads(Callable<?> work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<?>> results = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            results.add(threads.submit(work));
        }
        threads.shutdown();
        for (Future<?> result : results) {
            result.get(60, TimeUnit.SECONDS);
        }
    }

    @Test
    void eightThreadsShareACodec() throws Exception {
        for (String format : List.of("lz4", "zstd", "deflate")) {
            try (Codec codec = Codec.open(Map.of("format", format))) {
                inThreads(() -> {
                    ByteBuffer packed = ByteBuffer.allocateDirect(codec.maxCompressedLength(4_000));
                    for (int i = 0; i < 300; i++) {
                        byte[] raw = Blocks.text(4_000, Thread.currentThread().getId() * 1_000 + i);
                        codec.compress(ByteBuffer.wrap(raw), packed.clear());
                        ByteBuffer unpacked = ByteBuffer.allocate(4_000);
                        codec.decompress(packed.flip(), unpacked);
                        assertArrayEquals(raw, unpacked.array());
                    }
                    return null;
                });
            }
        }
    }

    /** A thread that opens the next codec closes the last one, which seven others may be using. */
    @Test
    void codecsCloseWhileOthersUseThem() throws Exception {
        AtomicReference<Codec> shared = new AtomicReference<>(Codec.open(Map.of("format", "lz4")));
        byte[] raw = Blocks.text(4_000, 1);
        Random random = new Random(2);
        int[] found = new int[2];
        inThreads(() -> {
            int worked = 0, closed = 0;
            byte[] unpacked = new byte[4_000];
            for (int i = 0; i < 2_000; i++) {
                try {
                    Codec codec = shared.get();
                    byte[] packed = Blocks.compress(codec, raw);
                    codec.decompressExact(packed, 0, packed.length, unpacked, 0, unpacked.length);
                    assertArrayEquals(raw, unpacked);
                    worked++;
                } catch (IllegalStateException error) {
                    assertEquals("the codec is closed: open another one", error.getMessage());
                    closed++;
                }
                if (random.nextInt(4) == 0) {
                    shared.getAndSet(Codec.open(Map.of("format", "lz4"))).close();
                }
            }
            synchronized (found) {
                found[0] += worked;
                found[1] += closed;
            }
            return null;
        });
        shared.get().close();
        assertEquals(THREADS * 2_000, found[0] + found[1]);
        assertTrue(found[0] > 0 && found[1] > 0, Arrays.toString(found));
    }
}
