package io.ziptier.bench;

import io.ziptier.codec.Codec;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** A call that copies no byte: the checks of two direct buffers, the way into native code, a context, the way back. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Fork(1)
@Warmup(iterations = 10, time = 100, timeUnit = TimeUnit.MILLISECONDS)
@Measurement(iterations = 30, time = 100, timeUnit = TimeUnit.MILLISECONDS)
public class CallBenchmark {
    private final Codec codec = Codec.open(Map.of("format", "none"));
    private final ByteBuffer nothing = ByteBuffer.allocateDirect(0);
    private final ByteBuffer room = ByteBuffer.allocateDirect(64);

    /** Compresses nothing into a buffer with room. */
    @Benchmark
    public int call() {
        return codec.compress(nothing, room);
    }
}
