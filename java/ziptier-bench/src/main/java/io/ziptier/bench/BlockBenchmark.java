package io.ziptier.bench;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** A call is one block. Calls go through all blocks in turn, so that no library meets the same block twice in a row. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 10, time = 100, timeUnit = TimeUnit.MILLISECONDS)
@Measurement(iterations = 30, time = 100, timeUnit = TimeUnit.MILLISECONDS)
public class BlockBenchmark {
    @Param({"4096", "16384", "65536"})
    int bytes;

    @Param({"zstd-jni", "zstd-jni+dictionary", "lz4-java", "java.util.zip", "ziptier zstd", "ziptier lz4",
        "ziptier deflate", "ziptier token"})
    String coder;

    private Coder worker;
    private List<ByteBuffer> raw;
    private List<ByteBuffer> packed;
    private ByteBuffer target;
    private int next;

    /** Compresses each block, and checks that it comes back. */
    @Setup
    public void setUp() throws Exception {
        Blocks blocks = new Blocks(bytes);
        raw = blocks.raw;
        worker = Coder.of(coder, blocks.samples);
        target = ByteBuffer.allocateDirect(2 * bytes + 1_000);
        packed = new ArrayList<>();
        for (ByteBuffer block : raw) {
            worker.compress(block.rewind(), target.clear());
            packed.add(ByteBuffer.allocateDirect(target.flip().remaining()).put(target).flip());
            worker.decompress(packed.get(packed.size() - 1), target.clear().limit(bytes));
            if (!target.flip().equals(block.rewind())) {
                throw new IllegalStateException(coder + " gives other bytes for a block of " + bytes);
            }
        }
    }

    /** Packed bytes over raw bytes, of all blocks. */
    static double ratio(int bytes, String coder) throws Exception {
        BlockBenchmark benchmark = new BlockBenchmark();
        benchmark.bytes = bytes;
        benchmark.coder = coder;
        benchmark.setUp();
        long packed = benchmark.packed.stream().mapToLong(ByteBuffer::limit).sum();
        return (double) packed / bytes / benchmark.raw.size();
    }

    private int turn() {
        next = next + 1 == raw.size() ? 0 : next + 1;
        return next;
    }

    /** Compresses the next block. */
    @Benchmark
    public int compress() throws Exception {
        worker.compress(raw.get(turn()).rewind(), target.clear());
        return target.position();
    }

    /** Decompresses the next block. */
    @Benchmark
    public int decompress() throws Exception {
        worker.decompress(packed.get(turn()).rewind(), target.clear().limit(bytes));
        return target.position();
    }
}
