package io.ziptier.codec;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

/**
 * An object of the native library. It is freed once: when its handle is closed or garbage, and the last call that uses
 * it has ended.
 *
 * <p>A call takes the handle from its owner, and ends with {@link #release}. So the owner may be garbage during its
 * last call, and the handle is not.
 */
final class Handle {
    private static final Cleaner CLEANER = Cleaner.create();

    private final State state;
    private final Cleaner.Cleanable cleanable;

    /** @param opened the object's address, or the status of the call that should have made it */
    Handle(String what, long opened, LongConsumer free) {
        if (opened < 0) {
            throw Native.failure(opened, 0);
        }
        state = new State(what, opened, free);
        cleanable = CLEANER.register(this, state);
    }

    /** The address, for a call that ends with {@link #release}. */
    long acquire() {
        return state.acquire();
    }

    void release() {
        state.release();
        Reference.reachabilityFence(this);
    }

    void close() {
        cleanable.clean();
    }

    /**
     * The object, and who uses it. A word counts the calls that use the object, and holds a bit for {@code closed}. A
     * call that finds the bit ends without the object. Whoever brings the word to exactly that bit frees the object.
     */
    private static final class State implements Runnable {
        private static final int CLOSED = Integer.MIN_VALUE;

        private final String what;
        private final long address;
        private final LongConsumer free;
        private final AtomicInteger word = new AtomicInteger();

        State(String what, long address, LongConsumer free) {
            this.what = what;
            this.address = address;
            this.free = free;
        }

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

        /** Closes the object. A {@link Cleaner} runs this once. */
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
}
