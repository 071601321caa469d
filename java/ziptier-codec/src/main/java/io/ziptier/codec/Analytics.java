package io.ziptier.codec;

import java.util.List;
import java.util.Map;

/**
 * Answers questions to packed integers: scan, extract, select and expand. One object serves all threads.
 *
 * <p>The options are {@code path} (auto, hardware, software) and {@code model}, as of a {@link Codec}. By default a
 * device does the work if the machine has one. On path auto the CPU does the jobs that a device cannot do.
 *
 * <p>Buffers may be direct or on the heap. Direct buffers save a copy. An output must not overlap a column, a mask or
 * another output.
 */
public final class Analytics implements AutoCloseable {
    static final int DEFLATED = 1;
    static final int BIG_ENDIAN = 2;
    static final int MASK_BIG_ENDIAN = 4;
    static final int OUTPUT_BIG_ENDIAN = 8;
    static final int NEGATE = 16;

    private final Handle handle;
    private final String worker;

    private Analytics(Handle handle) {
        this.handle = handle;
        long analytics = handle.acquire();
        try {
            worker = Native.text(Native.analyticsWorker(analytics));
        } finally {
            handle.release();
        }
    }

    /**
     * Opens analytics.
     *
     * @throws InvalidOptionException if an option is unknown or wrong
     * @throws EngineException if the native library is missing, or a device on path hardware
     */
    public static Analytics open(Map<String, String> options) {
        NativeLibrary.load();
        long opened = Native.analyticsOpen(Native.options(options));
        return new Analytics(new Handle("analytics object", opened, Native::analyticsClose));
    }

    /** Runs one job, as {@link #run(List)} does. */
    public AnalyticsAnswer run(AnalyticsJob job) {
        return run(List.of(job)).get(0);
    }

    /**
     * Runs jobs that do not depend on each other; a device works on several at a time. The output of each is written
     * from the position of its buffer, which advances. If a job fails, no position advances, and the contents of all
     * outputs are undefined.
     *
     * @return the answers, in the order of the jobs
     * @throws IllegalArgumentException if a job makes no sense, its column or mask is too short, its integers or
     *     indices do not fit the width of the output, or its output overlaps its input
     * @throws OutputTooSmallException if an output has too little room; it says how much is enough
     * @throws DamagedException if a compressed column is damaged or too short
     * @throws EngineException if a device fails on path hardware
     */
    public List<AnalyticsAnswer> run(List<AnalyticsJob> jobs) {
        return Native.run(handle, jobs);
    }

    /** Who does the work: {@code cpu}, {@code hardware}, or {@code modelled}. */
    public String worker() {
        return worker;
    }

    /** Jobs that a device should have done until now, and the CPU did. */
    public long fallbacks() {
        long analytics = handle.acquire();
        try {
            return Native.analyticsFallbacks(analytics);
        } finally {
            handle.release();
        }
    }

    /** Frees the object once the calls that use it have ended. Closing it again does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
