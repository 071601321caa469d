package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.zip.Deflater;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Answers to packed integers are those of a loop that goes bit by bit, and senseless jobs are refused. */
class AnalyticsTest {
    private static final Map<String, String> SOFTWARE = Map.of("path", "software");
    private static final int[] COUNTS = {1, 2, 7, 8, 9, 64, 511, 512, 513, 1_000};

    /** Integers, one bit after the other. */
    private static byte[] pack(long[] values, int width, boolean big) {
        byte[] bytes = new byte[(values.length * width + 7) / 8];
        for (int i = 0; i < values.length; i++) {
            for (int bit = 0; bit < width; bit++) {
                int at = i * width + (big ? width - 1 - bit : bit);
                bytes[at / 8] |= (values[i] >> bit & 1) << (big ? 7 - at % 8 : at % 8);
            }
        }
        return bytes;
    }

    private static byte[] deflated(byte[] raw) {
        Deflater deflater = new Deflater(6, true);
        deflater.setInput(raw);
        deflater.finish();
        byte[] packed = new byte[raw.length + 100];
        int length = deflater.deflate(packed);
        deflater.end();
        return Arrays.copyOf(packed, length);
    }

    /** A job with the output and the figures that a plain loop gives for it. */
    private static final class Question {
        final AnalyticsJob job;
        final ByteBuffer output;
        private final int start;
        private final byte[] expected;
        private final long[] figures;

        Question(Random random, int width, int count, Blocks.Kind source, Blocks.Kind target) {
            long largest = (1L << width) - 1;
            long[] values = random.longs(count, 0, random.nextBoolean() ? largest + 1 : 2).toArray();
            long[] bits = random.longs(count, 0, 2).toArray();
            long low = values[random.nextInt(count)], high = values[random.nextInt(count)];
            int first = random.nextInt(count), last = first + random.nextInt(count - first);
            int operation = random.nextInt(5), nominal = operation < 2 ? 1 : width;
            long[] results = results(operation, values, bits, low, high, first, last);
            boolean bigColumn = random.nextBoolean(), bigMask = random.nextBoolean(), big = random.nextBoolean();
            boolean isWide = random.nextBoolean();
            long[] output = isWide && nominal == 1 ? ones(results) : results;
            expected = pack(output, isWide ? 32 : nominal, big);
            figures = figures(nominal == 1 ? ones(results) : results, output.length, nominal == 1);

            byte[] packed = pack(values, width, bigColumn);
            boolean isDeflated = random.nextInt(3) == 0;
            Column column = Column.of(Blocks.of(source, isDeflated ? deflated(packed) : packed).asReadOnlyBuffer(),
                width, count);
            column = isDeflated ? column.deflated() : column;
            column = bigColumn ? column.bigEndian() : column;
            BitMask mask = BitMask.of(Blocks.of(source, pack(bits, 1, bigMask)), count);
            mask = bigMask ? mask.bigEndian() : mask;
            this.output = Blocks.room(target, expected.length);
            start = this.output.position();
            job = job(operation, column, mask, low, high, first, last, this.output);
            if (isWide) {
                job.outputBits(32);
            }
            if (big) {
                job.outputBigEndian();
            }
        }

        private static AnalyticsJob job(int operation, Column column, BitMask mask, long low, long high, int first,
                int last, ByteBuffer output) {
            switch (operation) {
                case 0:
                    return AnalyticsJob.scan(column, low, high, output);
                case 1:
                    return AnalyticsJob.scanOutside(column, low, high, output);
                case 2:
                    return AnalyticsJob.extract(column, first, last, output);
                case 3:
                    return AnalyticsJob.select(column, mask, output);
                default:
                    return AnalyticsJob.expand(column, mask, output);
            }
        }

        private static long[] results(int operation, long[] values, long[] bits, long low, long high, int first,
                int last) {
            List<Long> results = new ArrayList<>();
            for (int i = 0, next = 0; i < values.length; i++) {
                boolean isFound = low <= values[i] && values[i] <= high;
                if (operation < 2) {
                    results.add(isFound == (operation == 0) ? 1L : 0L);
                } else if (operation == 2 && first <= i && i <= last || operation == 3 && bits[i] == 1) {
                    results.add(values[i]);
                } else if (operation == 4) {
                    results.add(bits[i] == 1 ? values[next++] : 0);
                }
            }
            return results.stream().mapToLong(result -> result).toArray();
        }

        private static long[] ones(long[] bits) {
            return java.util.stream.LongStream.range(0, bits.length).filter(i -> bits[(int) i] == 1).toArray();
        }

        private static long[] figures(long[] of, int count, boolean isBits) {
            long sum = isBits ? of.length : Arrays.stream(of).sum() & 0xFFFF_FFFFL;
            return new long[] {count, Arrays.stream(of).min().orElse(0), Arrays.stream(of).max().orElse(0), sum};
        }

        void check(AnalyticsAnswer answer) {
            assertArrayEquals(figures, new long[] {answer.count(), answer.min(), answer.max(), answer.sum()});
            assertEquals(expected.length, answer.bytes());
            assertEquals(0, output.remaining());
            assertArrayEquals(expected, Blocks.remaining(output.position(start)));
        }
    }

    @Test
    void everyWidthAndBufferAgrees() {
        Random random = new Random(1);
        try (Analytics cpu = Analytics.open(SOFTWARE);
             Analytics modelled = Analytics.open(Map.of("path", "hardware", "model", "timing=off"))) {
            assertEquals("cpu", cpu.worker());
            assertEquals("modelled", modelled.worker());
            for (int width = 1; width <= 32; width++) {
                for (Blocks.Kind source : Blocks.Kind.values()) {
                    for (Blocks.Kind target : Blocks.Kind.values()) {
                        List<Question> questions = new ArrayList<>();
                        for (int count : COUNTS) {
                            questions.add(new Question(random, width, count, source, target));
                        }
                        List<AnalyticsJob> jobs = new ArrayList<>();
                        questions.forEach(question -> jobs.add(question.job));
                        List<AnalyticsAnswer> answers = (width % 8 == 1 ? modelled : cpu).run(jobs);
                        for (int i = 0; i < COUNTS.length; i++) {
                            questions.get(i).check(answers.get(i));
                        }
                    }
                }
            }
            assertEquals(List.of(), cpu.run(List.of()));
            assertEquals(0, modelled.fallbacks());
        }
    }

    /** More objects than Java keeps references for, and arrays of which only a part is the column. */
    @Test
    void longBatchesOfArrays() {
        byte[] sevens = new byte[64], results = new byte[8 * 5_000];
        Arrays.fill(sevens, 16, 48, (byte) 7);
        List<AnalyticsJob> jobs = new ArrayList<>();
        for (int i = 0; i < 5_000; i++) {
            Column column = Column.of(ByteBuffer.wrap(sevens, i % 32, 32), 8, 32);
            jobs.add(AnalyticsJob.scan(column, 7, 7, ByteBuffer.wrap(results, 8 * i, 8)));
        }
        try (Analytics analytics = Analytics.open(SOFTWARE)) {
            List<AnalyticsAnswer> answers = analytics.run(jobs);
            for (int i = 0; i < 5_000; i++) {
                int ones = Math.min(16 + i % 32, 32) - Math.max(0, i % 32 - 16);
                assertEquals(ones, answers.get(i).sum(), "job " + i);
                assertEquals(0, results[8 * i + 4], "a byte behind the output of job " + i);
            }
        }
    }

    private static void assertRefused(Class<? extends RuntimeException> type, Executable call, String part) {
        String said = assertThrows(type, call).getMessage();
        assertTrue(said.contains(part), said);
    }

    @Test
    void senselessJobsAreRefusedAndMoveNoPosition() {
        Class<IllegalArgumentException> wrong = IllegalArgumentException.class;
        ByteBuffer bytes = ByteBuffer.wrap(new byte[64]);
        Column column = Column.of(bytes, 8, 64);
        for (int[] never : new int[][] {{0, 1}, {33, 1}, {8, -1}}) {
            assertThrows(wrong, () -> Column.of(bytes, never[0], never[1]));
        }
        assertThrows(wrong, () -> BitMask.of(bytes, -1));
        BitMask mask = BitMask.of(bytes, 64);
        try (Analytics analytics = Analytics.open(SOFTWARE)) {
            for (ByteBuffer output : new ByteBuffer[] {ByteBuffer.allocate(300), ByteBuffer.allocateDirect(300)}) {
                AnalyticsJob good = AnalyticsJob.scan(column, 0, 0, ByteBuffer.allocate(8));
                Map<String, AnalyticsJob> jobs = Map.of(
                    "65 bytes", AnalyticsJob.scan(Column.of(bytes, 8, 65), 0, 0, output),
                    "elements 0 to 64", AnalyticsJob.extract(column, 0, 64, output),
                    "elements 2 to 1", AnalyticsJob.extract(column, 2, 1, output),
                    "a mask of 63 bits", AnalyticsJob.select(column, BitMask.of(bytes, 63), output),
                    "the mask is too short", AnalyticsJob.expand(column, BitMask.of(bytes, 513), output),
                    "do not fit 8 bits", AnalyticsJob.extract(Column.of(bytes, 16, 32), 0, 1, output).outputBits(8));
                jobs.forEach((part, job) ->
                    assertRefused(wrong, () -> analytics.run(List.of(good, job)), "job 1: "));
                jobs.forEach((part, job) -> assertRefused(wrong, () -> analytics.run(job), part));
                assertRefused(DamagedException.class,
                    () -> analytics.run(AnalyticsJob.scan(column.deflated(), 0, 0, output)), "cannot decompress");
                assertEquals(0, good.output.position() + output.position());
                assertThrows(ReadOnlyBufferException.class,
                    () -> AnalyticsJob.select(column, mask, output.asReadOnlyBuffer()));
                assertThrows(wrong, () -> AnalyticsJob.scan(column, -1, 0, output));
                assertThrows(wrong, () -> AnalyticsJob.scan(column, 0, 1L << 32, output));
                assertThrows(wrong, () -> AnalyticsJob.scan(column, 0, 0, output).outputBits(24));
            }
        }
    }

    @Test
    void shortOutputsSayWhatIsEnough() {
        Column column = Column.of(ByteBuffer.allocateDirect(64), 8, 64);
        try (Analytics analytics = Analytics.open(SOFTWARE)) {
            for (Blocks.Kind kind : Blocks.Kind.values()) {
                for (int bits : new int[] {0, 16, 32}) {
                    ByteBuffer output = Blocks.room(kind, 7);
                    AnalyticsJob good = AnalyticsJob.scan(column, 0, 0, Blocks.room(kind, 8));
                    int start = output.position(), goodStart = good.output.position();
                    AnalyticsJob job = AnalyticsJob.scan(column, 0, 0, output);
                    OutputTooSmallException error = assertThrows(OutputTooSmallException.class,
                        () -> analytics.run(List.of(good, bits == 0 ? job : job.outputBits(bits))));
                    assertEquals(bits == 0 ? 8 : 64 * bits / 8, error.neededBytes());
                    assertTrue(error.getMessage().contains("room for 7 bytes"), error.getMessage());
                    assertEquals(start, output.position());
                    assertEquals(goodStart, good.output.position());
                    assertArrayEquals(new byte[7], Blocks.remaining(output));
                }
            }
        }
    }

    @Test
    void outputsThatOverlapTheirInputAreRefused() {
        try (Analytics analytics = Analytics.open(SOFTWARE)) {
            for (ByteBuffer both : new ByteBuffer[] {ByteBuffer.allocate(200), ByteBuffer.allocateDirect(200)}) {
                Column column = Column.of(both.duplicate().limit(64), 8, 64);
                BitMask mask = BitMask.of(both.duplicate().position(100).limit(108), 64);
                for (int at : new int[] {0, 63, 107}) {
                    ByteBuffer output = both.duplicate().position(at);
                    assertRefused(IllegalArgumentException.class,
                        () -> analytics.run(AnalyticsJob.select(column, mask, output)), "overlap");
                }
                analytics.run(AnalyticsJob.select(column, mask, both.duplicate().position(108)));
            }
        }
    }

    @Test
    void optionsAndClosedObjects() {
        assertRefused(InvalidOptionException.class, () -> Analytics.open(Map.of("level", "1")), "no option \"level\"");
        assertRefused(InvalidOptionException.class, () -> Analytics.open(Map.of("path", "x")), "unknown path \"x\"");
        Analytics analytics = Analytics.open(SOFTWARE);
        analytics.close();
        analytics.close();
        assertRefused(IllegalStateException.class, () -> analytics.run(List.of()), "is closed");
        assertThrows(IllegalStateException.class, analytics::fallbacks);
    }

    /** Copies for each job would be 1.3 TB. */
    @Test
    void jobsOnOneArrayShareItsCopy() {
        byte[] column = new byte[64 << 20];
        column[7] = 9;
        List<AnalyticsJob> jobs = new ArrayList<>();
        for (int i = 0; i < 20_000; i++) {
            ByteBuffer output = ByteBuffer.allocate(1);
            jobs.add(AnalyticsJob.extract(Column.of(ByteBuffer.wrap(column), 8, 8), 7, 7, output));
        }
        try (Analytics analytics = Analytics.open(SOFTWARE)) {
            List<AnalyticsAnswer> answers = analytics.run(jobs);
            assertTrue(answers.stream().allMatch(answer -> answer.sum() == 9));
        }
    }
}
