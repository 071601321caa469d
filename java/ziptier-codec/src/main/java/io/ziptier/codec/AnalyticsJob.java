package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;

/**
 * An operation on a column, and the buffer for its output. {@link Analytics} runs it.
 *
 * <p>The output has the width of the column, or one bit for each element of a scan. It is little-endian. A width of its
 * own turns bits into the indices of the ones, and any other output into wider integers.
 */
public final class AnalyticsJob {
    private static final int SCAN = 0;
    private static final int EXTRACT = 1;
    private static final int SELECT = 2;
    private static final int EXPAND = 3;
    private static final BitMask NO_MASK = BitMask.of(ByteBuffer.allocate(0), 0);

    final Column column;
    final BitMask mask;
    final ByteBuffer output;
    private final int operation;
    private final int first;
    private final int last;
    private int flags;
    private int outputWidth;

    private AnalyticsJob(int operation, Column column, int first, int last, BitMask mask, ByteBuffer output) {
        if (output.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        this.operation = operation;
        this.column = column;
        this.first = first;
        this.last = last;
        this.mask = mask;
        this.output = output;
        flags = column.flags | mask.flags;
    }

    /**
     * Gives a bit for each element: 1 if the element is at least {@code low} and at most {@code high}.
     *
     * @throws IllegalArgumentException if a bound is not 0 to 2^32 - 1
     */
    public static AnalyticsJob scan(Column column, long low, long high, ByteBuffer output) {
        return new AnalyticsJob(SCAN, column, unsigned(low), unsigned(high), NO_MASK, output);
    }

    /** As {@link #scan}, with every bit inverted. */
    public static AnalyticsJob scanOutside(Column column, long low, long high, ByteBuffer output) {
        AnalyticsJob job = scan(column, low, high, output);
        job.flags |= Analytics.NEGATE;
        return job;
    }

    /** Gives the elements from an index to another, both included. */
    public static AnalyticsJob extract(Column column, int first, int last, ByteBuffer output) {
        return new AnalyticsJob(EXTRACT, column, first, last, NO_MASK, output);
    }

    /** Gives the elements whose bit is set. The mask has a bit for each element. */
    public static AnalyticsJob select(Column column, BitMask mask, ByteBuffer output) {
        return new AnalyticsJob(SELECT, column, 0, 0, mask, output);
    }

    /** Gives an element for each bit of the mask: the column's next one for a set bit, 0 for any other. */
    public static AnalyticsJob expand(Column column, BitMask mask, ByteBuffer output) {
        return new AnalyticsJob(EXPAND, column, 0, 0, mask, output);
    }

    /**
     * Sets the bits of an element of the output.
     *
     * @return this job
     * @throws IllegalArgumentException if the bits are not 8, 16 or 32
     */
    public AnalyticsJob outputBits(int bits) {
        if (bits != 8 && bits != 16 && bits != 32) {
            throw new IllegalArgumentException("the output has elements of " + bits + " bits: give 8, 16 or 32");
        }
        outputWidth = bits;
        return this;
    }

    /**
     * Fills each byte of the output from its high bit; integers of whole bytes are big-endian.
     *
     * @return this job
     */
    public AnalyticsJob outputBigEndian() {
        flags |= Analytics.OUTPUT_BIG_ENDIAN;
        return this;
    }

    private static int unsigned(long number) {
        if (number >>> 32 != 0) {
            throw new IllegalArgumentException("a bound is " + number + ": give 0 to " + 0xFFFF_FFFFL);
        }
        return (int) number;
    }

    /** The numbers of the job, in the order of the native library. */
    int[] numbers() {
        return new int[] {operation, flags, column.width, column.count, first, last, mask.count, outputWidth};
    }
}
