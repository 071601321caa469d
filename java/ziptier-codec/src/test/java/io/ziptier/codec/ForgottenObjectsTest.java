package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.util.AbstractList;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

/** An object that nobody closes is freed with its owner, once, and never under a call. */
class ForgottenObjectsTest {
    @Test
    void garbageIsFreed() throws InterruptedException {
        AtomicInteger freed = new AtomicInteger();
        for (int i = 0; i < 10; i++) {
            new Handle("thing", 1, address -> freed.incrementAndGet());
        }
        // The thread that frees them may have no processor for a while.
        while (freed.get() < 10) {
            System.gc();
            Thread.sleep(10);
        }
        assertEquals(10, freed.get());
    }

    /** The list of the last call collects all garbage, and the owner of the call is garbage. */
    @Test
    void theLastCallWorks() {
        Map<String, String> software = Map.of("path", "software");
        Collecting jobs = new Collecting();
        try (Analytics analytics = Analytics.open(software)) {
            // Compiled code forgets an owner that it needs no more.
            for (int i = 0; i < 20_000; i++) {
                analytics.run(jobs);
            }
        }
        jobs.collects = true;
        for (int i = 0; i < 3; i++) {
            assertEquals(8, Analytics.open(software).run(jobs).get(0).sum());
        }
    }

    /** One job. Whoever looks at it waits for the garbage collector. */
    private static final class Collecting extends AbstractList<AnalyticsJob> {
        private final ByteBuffer bits = ByteBuffer.allocate(1);
        private final AnalyticsJob job =
            AnalyticsJob.scan(Column.of(ByteBuffer.allocate(8), 8, 8), 0, 0, bits);
        private boolean collects;

        @Override
        public AnalyticsJob get(int index) {
            bits.clear();
            for (int i = 0; collects && i < 5; i++) {
                System.gc();
                LockSupport.parkNanos(10_000_000);
            }
            return job;
        }

        @Override
        public int size() {
            return 1;
        }
    }

    @Test
    void theLastCallFrees() {
        AtomicInteger freed = new AtomicInteger();
        Handle handle = new Handle("thing", 1, address -> freed.incrementAndGet());
        handle.acquire();
        handle.acquire();
        handle.close();
        assertThrows(IllegalStateException.class, handle::acquire);
        handle.release();
        assertEquals(0, freed.get());
        handle.release();
        assertEquals(1, freed.get());
        assertThrows(IllegalStateException.class, handle::acquire);
        assertEquals(1, freed.get());
    }
}
