package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * The functions of the native library, and all that stands between them and the public classes.
 *
 * <p>The native half trusts positions and lengths: this class checks them. A native function gives 0 and more for a
 * result, and less for a {@link #failure}.
 */
final class Native {
    static final int COMPRESS = 0;
    static final int DECOMPRESS = 1;
    static final int DECOMPRESS_EXACT = 2;
    static final int ENCODE = 3;
    static final int DECODE = 4;

    private static final int STATUS_TOO_SMALL = 2;
    /** Eight numbers of a job; which of its objects are arrays; number, start and length of each. */
    private static final int JOB_NUMBERS = 18;
    private static final int ANSWER_NUMBERS = 6;

    /** A result of so much less than this says that the output is too small, and how many bytes it needs. */
    private static final long TOO_SMALL = -256;

    private Native() {
    }

    static native byte[] lastError();

    static native byte[] version();

    static native long codecOpen(byte[] options, long dictionary);

    static native void codecClose(long codec);

    static native byte[] codecCounters(long codec);

    static native long dictionaryTrain(byte[] format, byte[] samples, int[] ends, int maxBytes, int generation);

    static native long dictionaryLoad(byte[] stored);

    static native byte[] dictionaryStore(long dictionary);

    static native void dictionaryFree(long dictionary);

    static native long tokensTrain(byte[] samples, int[] ends, int bits, int generation);

    static native long tokensLoad(byte[] stored);

    static native byte[] tokensStore(long tokens);

    static native void tokensFree(long tokens);

    static native long analyticsOpen(byte[] options);

    static native void analyticsClose(long analytics);

    static native byte[] analyticsWorker(long analytics);

    static native long analyticsFallbacks(long analytics);

    /**
     * Runs jobs.
     *
     * @param objects the columns, masks and outputs of all jobs, direct buffers or byte arrays, each of them once
     * @param numbers {@link #JOB_NUMBERS} of each job
     * @param answers gets status, count, bytes, min, max and sum of each job
     * @return the status of the first job that does not succeed, or 0
     */
    private static native long analyticsRun(long analytics, Object[] objects, int[] numbers, long[] answers);

    private static native long bound(int operation, long object, int rawLength);

    /**
     * Works on a block or a value.
     *
     * @param arrays 1 if the input is a byte array, plus 2 if the output is one; a direct buffer is the other choice
     * @param start where the input begins, from the buffer's address or the array's first element
     */
    private static native long run(int operation, long object, int arrays, Object input, int start, int length,
        Object output, int outputStart, int room);

    /** As {@link #run}, on values that lie one behind the other. */
    private static native long runGroup(int operation, long object, int arrays, Object input, int start, int length,
        int[] ends, Object output, int outputStart, int room, int[] outputEnds);

    /** What is checked and what is passed on are copies, whose positions no other thread moves between. */
    static int run(int operation, Handle handle, ByteBuffer input, ByteBuffer output) {
        ByteBuffer from = input.duplicate();
        ByteBuffer to = output.duplicate();
        checkPair(from, to);
        int length = run(operation, handle, memory(from), start(from), from.remaining(), memory(to), start(to),
            to.remaining(), null, null);
        advance(input, output, length);
        return length;
    }

    static int run(int operation, Handle handle, byte[] input, int start, int length, byte[] output,
            int outputStart, int room) {
        Objects.checkFromIndexSize(start, length, input.length);
        Objects.checkFromIndexSize(outputStart, room, output.length);
        if (input == output) {
            checkApart(start, length, outputStart, room);
        }
        return run(operation, handle, input, start, length, output, outputStart, room, null, null);
    }

    static int runGroup(int operation, Handle handle, ByteBuffer input, int[] ends, ByteBuffer output,
            int[] outputEnds) {
        ByteBuffer from = input.duplicate();
        ByteBuffer to = output.duplicate();
        checkPair(from, to);
        checkEnds(ends, from.remaining());
        if (outputEnds.length < ends.length) {
            throw new IllegalArgumentException("the ends of " + ends.length + " results do not fit into an array of "
                + outputEnds.length + ": give it more room");
        }
        int length = run(operation, handle, memory(from), start(from), from.remaining(), memory(to), start(to),
            to.remaining(), ends, outputEnds);
        advance(input, output, length);
        return length;
    }

    private static int run(int operation, Handle handle, Object input, int start, int length, Object output,
            int outputStart, int room, int[] ends, int[] outputEnds) {
        int arrays = (input instanceof byte[] ? 1 : 0) + (output instanceof byte[] ? 2 : 0);
        long object = handle.acquire();
        long result;
        try {
            result = ends == null
                ? run(operation, object, arrays, input, start, length, output, outputStart, room)
                : runGroup(operation, object, arrays, input, start, length, ends, output, outputStart, room,
                    outputEnds);
        } finally {
            handle.release();
        }
        if (result < 0) {
            throw failure(result, room);
        }
        return (int) result;
    }

    static List<AnalyticsAnswer> run(Handle handle, List<AnalyticsJob> jobs) {
        int count = jobs.size();
        Map<Object, Integer> places = new IdentityHashMap<>();
        int[] numbers = new int[JOB_NUMBERS * count];
        long[] answers = new long[ANSWER_NUMBERS * count];
        for (int i = 0; i < count; i++) {
            AnalyticsJob job = jobs.get(i);
            ByteBuffer[] buffers =
                {job.column.bytes.duplicate(), job.mask.bytes.duplicate(), job.output.duplicate()};
            checkPair(buffers[0], buffers[2]);
            checkPair(buffers[1], buffers[2]);
            System.arraycopy(job.numbers(), 0, numbers, JOB_NUMBERS * i, 8);
            for (int j = 0; j < buffers.length; j++) {
                Object memory = memory(buffers[j]);
                numbers[JOB_NUMBERS * i + 8] |= memory instanceof byte[] ? 1 << j : 0;
                numbers[JOB_NUMBERS * i + 9 + 3 * j] = places.computeIfAbsent(memory, other -> places.size());
                numbers[JOB_NUMBERS * i + 10 + 3 * j] = start(buffers[j]);
                numbers[JOB_NUMBERS * i + 11 + 3 * j] = buffers[j].remaining();
            }
        }
        Object[] objects = new Object[places.size()];
        places.forEach((object, place) -> objects[place] = object);
        long analytics = handle.acquire();
        long status;
        try {
            status = analyticsRun(analytics, objects, numbers, answers);
        } finally {
            handle.release();
        }
        if (status != 0) {
            throw failure(status, jobs, answers);
        }
        List<AnalyticsAnswer> list = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            AnalyticsAnswer answer = new AnalyticsAnswer(answers, ANSWER_NUMBERS * i + 1);
            ByteBuffer output = jobs.get(i).output;
            output.position(output.position() + answer.bytes());
            list.add(answer);
        }
        return list;
    }

    private static RuntimeException failure(long status, List<AnalyticsJob> jobs, long[] answers) {
        for (int i = 0; status == STATUS_TOO_SMALL; i++) {
            if (answers[ANSWER_NUMBERS * i] == status) {
                int needed = (int) Math.min(answers[ANSWER_NUMBERS * i + 2], Integer.MAX_VALUE);
                return new OutputTooSmallException(jobs.get(i).output.remaining(), needed);
            }
        }
        return failure(status, 0);
    }

    static int bound(int operation, Handle handle, int rawLength) {
        long object = handle.acquire();
        try {
            long bytes = bound(operation, object, rawLength);
            if (bytes > Integer.MAX_VALUE) {
                throw new IllegalArgumentException("a result of " + rawLength + " raw bytes may have " + bytes
                    + ", more than a buffer: cut the input");
            }
            return (int) bytes;
        } finally {
            handle.release();
        }
    }

    static RuntimeException failure(long result, int room) {
        if (result <= TOO_SMALL) {
            return new OutputTooSmallException(room, (int) Math.min(TOO_SMALL - result, Integer.MAX_VALUE));
        }
        String sentence = text(lastError());
        switch ((int) result) {
            case -1:
                return new IllegalArgumentException(sentence);
            case -2:
                return new InvalidOptionException(sentence);
            case -3:
                return new DamagedException(sentence);
            case -5:
                return new EngineException(sentence);
            default:
                return new ZiptierException(sentence);
        }
    }

    private static void checkPair(ByteBuffer input, ByteBuffer output) {
        if (output.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        if (input.hasArray() && output.hasArray() && input.array() == output.array()) {
            checkApart(start(input), input.remaining(), start(output), output.remaining());
        }
    }

    private static void checkApart(int start, int length, int outputStart, int room) {
        if (start < (long) outputStart + room && outputStart < (long) start + length) {
            throw new IllegalArgumentException(
                "input and output overlap: give the output memory of its own");
        }
    }

    private static void checkEnds(int[] ends, int length) {
        int start = 0;
        for (int end : ends) {
            if (end < start) {
                throw new IllegalArgumentException("the ends have " + end + " after " + start + ": they must rise");
            }
            start = end;
        }
        if (start != length) {
            throw new IllegalArgumentException(
                "the last end is " + start + ", and " + length + " bytes remain in the input: both must be equal");
        }
    }

    /** A direct buffer, or the array of the others. A read-only array is copied. */
    private static Object memory(ByteBuffer buffer) {
        if (buffer.isDirect()) {
            return buffer;
        }
        if (buffer.hasArray()) {
            return buffer.array();
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }

    private static int start(ByteBuffer buffer) {
        if (buffer.isDirect()) {
            return buffer.position();
        }
        return buffer.hasArray() ? buffer.arrayOffset() + buffer.position() : 0;
    }

    private static void advance(ByteBuffer input, ByteBuffer output, int length) {
        input.position(input.limit());
        output.position(output.position() + length);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Names and values, each with a zero behind it. */
    static byte[] options(Map<String, String> options) {
        StringBuilder all = new StringBuilder();
        options.forEach((name, value) -> {
            if (name == null || value == null || (name + value).indexOf('\0') >= 0) {
                throw new InvalidOptionException(
                    "option " + name + " is " + value + ": names and values are text without zeros");
            }
            all.append(name).append('\0').append(value).append('\0');
        });
        return bytes(all.toString());
    }

    /** Samples one behind the other. */
    static final class Samples {
        final byte[] bytes;
        final int[] ends;

        Samples(List<byte[]> samples) {
            long length = samples.stream().mapToLong(sample -> sample.length).sum();
            if (length > Integer.MAX_VALUE - 8) {
                throw new IllegalArgumentException(
                    "the samples have " + length + " bytes together, more than an array: give fewer");
            }
            bytes = new byte[(int) length];
            ends = new int[samples.size()];
            int end = 0;
            for (int i = 0; i < ends.length; i++) {
                byte[] sample = samples.get(i);
                System.arraycopy(sample, 0, bytes, end, sample.length);
                end += sample.length;
                ends[i] = end;
            }
        }
    }
}
