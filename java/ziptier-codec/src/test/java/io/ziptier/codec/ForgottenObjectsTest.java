package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** An object that nobody closes is freed with its owner, once, and never under a call. */
class ForgottenObjectsTest {
    @Test
    void garbageIsFreed() throws InterruptedException {
        AtomicInteger freed = new AtomicInteger();
        for (int i = 0; i < 10; i++) {
            new Handle("thing", 1, address -> freed.incrementAndGet()).closeWith(new Object());
        }
        for (int i = 0; i < 500 && freed.get() < 10; i++) {
            System.gc();
            Thread.sleep(10);
        }
        assertEquals(10, freed.get());
    }

    @Test
    void theLastCallFrees() {
        AtomicInteger freed = new AtomicInteger();
        Handle handle = new Handle("thing", 1, address -> freed.incrementAndGet());
        handle.acquire();
        handle.acquire();
        handle.run();
        assertThrows(IllegalStateException.class, handle::acquire);
        handle.release();
        assertEquals(0, freed.get());
        handle.release();
        assertEquals(1, freed.get());
        assertThrows(IllegalStateException.class, handle::acquire);
        assertEquals(1, freed.get());
    }
}
