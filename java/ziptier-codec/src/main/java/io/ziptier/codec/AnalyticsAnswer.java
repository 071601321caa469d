package io.ziptier.codec;

/** The figures that a job has counted on the way. The output itself lies in the buffer of the job. */
public final class AnalyticsAnswer {
    private final long count;
    private final int bytes;
    private final long min;
    private final long max;
    private final long sum;

    /** The numbers behind the status of an answer. */
    AnalyticsAnswer(long[] numbers, int at) {
        count = numbers[at];
        bytes = (int) numbers[at + 1];
        min = numbers[at + 2];
        max = numbers[at + 3];
        sum = numbers[at + 4];
    }

    /** Bits, integers or indices of the output. */
    public long count() {
        return count;
    }

    /** Bytes of the output. */
    public int bytes() {
        return bytes;
    }

    /** The smallest integer, or the index of the first one of bits; 0 if there is none. */
    public long min() {
        return min;
    }

    /** The largest integer, or the index of the last one of bits; 0 if there is none. */
    public long max() {
        return max;
    }

    /** The sum of the integers modulo 2^32, or the number of ones of bits. */
    public long sum() {
        return sum;
    }

    @Override
    public String toString() {
        return count + " in " + bytes + " bytes, min " + min + ", max " + max + ", sum " + sum;
    }
}
