package io.ziptier.codec;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

/**
 * An object of the native library. It is freed once: when it is closed and the last call that uses it has ended.
 *
 * <p>A word counts the calls that use the object, and holds a bit for {@code closed}. A call that finds the bit ends
 * without the object. Whoever brings the word to exactly that bit frees the object.
 */
final class Handle implements Runnable {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int CLOSED = Integer.MIN_VALUE;

    private final String what;
    private final long address;
    private final LongConsumer free;
    private final AtomicInteger word = new AtomicInteger();

    /** @param opened the object's address, or the status of the call that should have made it */
    Handle(String what, long opened, LongConsumer free) {
        if (opened < 0) {
            throw Native.failure(opened, 0);
        }
        this.what = what;
        this.address = opened;
        this.free = free;
    }

    /** Closes the handle once the owner is garbage. */
    Cleaner.Cleanable closeWith(Object owner) {
        return CLEANER.register(owner, this);
    }

    /** The address, for a call that ends with {@link #release}. */
    long acquire() {
        if (word.getAndIncrement() < 0) {
            release();
            throw new IllegalStateException("the " + what + " is closed: open another one");
        }
        return address;
    }

    void release() {
        if (word.decrementAndGet() == CLOSED) {
            freeOnce();
        }
    }

    /** Closes the handle. A {@link Cleaner} runs this once. */
    @Override
    public void run() {
        if (word.getAndAdd(CLOSED) == 0) {
            freeOnce();
        }
    }

    /** A late call may bring the word to the bit again. */
    private void freeOnce() {
        if (word.compareAndSet(CLOSED, CLOSED + (1 << 30))) {
            free.accept(address);
        }
    }
}
