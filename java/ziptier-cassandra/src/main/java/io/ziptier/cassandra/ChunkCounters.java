package io.ziptier.cassandra;

import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

import javax.management.JMException;
import javax.management.ObjectName;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Counts what one set of options does, for JMX and the log. */
public final class ChunkCounters implements ChunkCountersMXBean {
    private static final Logger LOGGER = LoggerFactory.getLogger(ChunkCounters.class);
    private static final long LOG_INTERVAL_NS = TimeUnit.MINUTES.toNanos(1);

    final LongAdder compressedByCassandra = new LongAdder();
    final LongAdder uncompressedByCassandra = new LongAdder();
    final LongAdder damaged = new LongAdder();

    private final ChunkOptions options;
    private final BlockCodec blocks;
    private final LongAdder compressedChunks = new LongAdder();
    private final LongAdder compressedRawBytes = new LongAdder();
    private final LongAdder compressedStoredBytes = new LongAdder();
    private final LongAdder uncompressedChunks = new LongAdder();
    private final LongAdder uncompressedRawBytes = new LongAdder();
    private final LongAdder uncompressedStoredBytes = new LongAdder();
    private final AtomicLong logNotBeforeNs = new AtomicLong(System.nanoTime());
    private volatile RuntimeException lastFailure;

    ChunkCounters(ChunkOptions options, BlockCodec blocks) {
        this.options = options;
        this.blocks = blocks;
    }

    void register() {
        try {
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, name());
        } catch (JMException unregistered) {
            LOGGER.warn("JMX does not show ZiptierCompressor with {}: {}", options, unregistered.toString());
        }
    }

    /** Takes the counters out of JMX, which else holds their codec for ever. */
    public void unregister() {
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name());
        } catch (JMException unregistered) {
            LOGGER.warn("JMX goes on showing ZiptierCompressor with {}: {}", options, unregistered.toString());
        }
    }

    private ObjectName name() throws JMException {
        return new ObjectName("io.ziptier:type=Compressor," + options);
    }

    void compressed(long rawBytes, long storedBytes) {
        compressedChunks.increment();
        compressedRawBytes.add(rawBytes);
        compressedStoredBytes.add(storedBytes);
        logNowAndThen();
    }

    void uncompressed(long storedBytes, long rawBytes) {
        uncompressedChunks.increment();
        uncompressedRawBytes.add(rawBytes);
        uncompressedStoredBytes.add(storedBytes);
        logNowAndThen();
    }

    void failed(RuntimeException failure) {
        lastFailure = failure;
    }

    RuntimeException lastFailure() {
        return lastFailure;
    }

    private void logNowAndThen() {
        long due = logNotBeforeNs.get(), now = System.nanoTime();
        if (now - due >= 0 && logNotBeforeNs.compareAndSet(due, now + LOG_INTERVAL_NS))
            log();
    }

    private void log() {
        RuntimeException failure = lastFailure;
        LOGGER.info("ZiptierCompressor {} on {}: {} chunks compressed to {} of {} bytes, {} uncompressed; "
                    + "{} and {} of them by Cassandra's own code; {} fallbacks of a device; {} damaged{}",
                    options, getWorker(), getCompressedChunks(), getCompressedStoredBytes(), getCompressedRawBytes(),
                    getUncompressedChunks(), getCompressedByCassandra(), getUncompressedByCassandra(), getFallbacks(),
                    getDamagedChunks(), failure == null ? "" : "; last failure: " + failure.getMessage());
    }

    @Override
    public String getWorker() {
        return blocks == null ? "cassandra" : blocks.worker();
    }

    @Override
    public long getCompressedChunks() {
        return compressedChunks.sum();
    }

    @Override
    public long getCompressedRawBytes() {
        return compressedRawBytes.sum();
    }

    @Override
    public long getCompressedStoredBytes() {
        return compressedStoredBytes.sum();
    }

    @Override
    public long getUncompressedChunks() {
        return uncompressedChunks.sum();
    }

    @Override
    public long getUncompressedRawBytes() {
        return uncompressedRawBytes.sum();
    }

    @Override
    public long getUncompressedStoredBytes() {
        return uncompressedStoredBytes.sum();
    }

    @Override
    public long getCompressedByCassandra() {
        return compressedByCassandra.sum();
    }

    @Override
    public long getUncompressedByCassandra() {
        return uncompressedByCassandra.sum();
    }

    @Override
    public long getFallbacks() {
        return getLibrary().getOrDefault("fallbacks", 0L);
    }

    @Override
    public long getDamagedChunks() {
        return damaged.sum();
    }

    @Override
    public Map<String, Long> getLibrary() {
        return blocks == null ? Map.of() : blocks.counters();
    }
}
