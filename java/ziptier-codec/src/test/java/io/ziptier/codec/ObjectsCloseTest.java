package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

import org.junit.jupiter.api.Test;

/** A call on freed memory would end the JVM. */
class ObjectsCloseTest {
    private static final int THREADS = 8;

    private static void inThreads(Callable<Void> work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<Void>> results = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                results.add(threads.submit(work));
            }
            for (Future<Void> result : results) {
                result.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void threadsShareACodec() throws Exception {
        AtomicInteger seeds = new AtomicInteger();
        try (Codec codec = Codec.open(Map.of("format", "zstd"))) {
            inThreads(() -> {
                byte[] raw = Samples.text(8192, seeds.incrementAndGet()), back = new byte[8192];
                ByteBuffer packed = ByteBuffer.allocateDirect(codec.maxCompressedLength(raw.length));
                for (int i = 0; i < 300; i++) {
                    codec.compress(ByteBuffer.wrap(raw), packed.clear());
                    codec.decompressExact(packed.flip(), ByteBuffer.wrap(back));
                    assertArrayEquals(raw, back);
                }
                return null;
            });
            assertEquals(THREADS * 300, codec.statistics().counters().get("compress_calls"));
        }
    }

    @Test
    void aCloseBesideCallsIsAnException() throws Exception {
        byte[] raw = Samples.text(2048, 9);
        for (int round = 0; round < 200; round++) {
            Codec codec = Codec.open(Map.of("format", "lz4"));
            AtomicInteger running = new AtomicInteger();
            inThreads(() -> {
                byte[] packed = new byte[4096];
                if (running.incrementAndGet() == THREADS) {
                    codec.close();
                }
                assertThrows(IllegalStateException.class, () -> {
                    while (true) {
                        codec.compress(raw, 0, raw.length, packed, 0, packed.length);
                    }
                });
                return null;
            });
            codec.close();
        }
    }

    @Test
    void everyCallAfterCloseIsAnException() {
        Dictionary dictionary = Dictionary.train("zstd", Samples.texts(200, 1000), 2000, 1);
        Codec codec = Codec.open(Map.of("format", "zstd"), dictionary);
        dictionary.close();
        byte[] raw = Samples.text(1000, 1000), packed = new byte[2000], back = new byte[1000];
        int length = codec.compress(raw, 0, 1000, packed, 0, 2000);
        assertEquals(1000, codec.decompress(packed, 0, length, back, 0, 1000), "the codec keeps its share");
        codec.close();
        codec.close();
        Tokens tokens = Tokens.train(Samples.texts(100, 1000), 12, 1);
        tokens.close();
        ByteBuffer buffer = ByteBuffer.allocate(10);
        List<Runnable> calls = List.of(
            () -> codec.compress(ByteBuffer.allocate(1), buffer),
            () -> codec.decompress(ByteBuffer.allocate(1), buffer),
            () -> codec.maxCompressedLength(1),
            codec::statistics,
            dictionary::store,
            () -> Codec.open(Map.of("format", "zstd"), dictionary),
            () -> tokens.encode(ByteBuffer.allocate(1), buffer),
            () -> tokens.decode(ByteBuffer.allocate(1), buffer),
            () -> tokens.maxEncodedLength(1),
            tokens::store);
        for (Runnable call : calls) {
            IllegalStateException error = assertThrows(IllegalStateException.class, call::run);
            assertTrue(error.getMessage().contains("closed"), error.getMessage());
        }
    }

    @Test
    void aForgottenCodecIsFreed() throws Exception {
        AtomicInteger freed = new AtomicInteger();
        for (int i = 0; i < 10; i++) {
            new Handle("thing", 1, address -> freed.incrementAndGet()).closeWith(new Object());
        }
        for (int i = 0; i < 200 && freed.get() < 10; i++) {
            System.gc();
            Thread.sleep(10);
        }
        assertEquals(10, freed.get());
    }
}
