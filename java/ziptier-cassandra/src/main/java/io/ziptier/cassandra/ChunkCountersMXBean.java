package io.ziptier.cassandra;

import java.util.Map;

/** What one set of options has done since the node started. JMX has it below {@code io.ziptier:type=Compressor}. */
public interface ChunkCountersMXBean {
    /** "hardware", "software", "cpu" or "modelled"; "cassandra" if the native library is missing. */
    String getWorker();

    long getCompressedChunks();

    long getCompressedRawBytes();

    long getCompressedStoredBytes();

    long getUncompressedChunks();

    long getUncompressedRawBytes();

    long getUncompressedStoredBytes();

    /** Chunks that Cassandra's own code compressed, for want of the library or because it failed. */
    long getCompressedByCassandra();

    /** Chunks that Cassandra's own code read, such as DEFLATE with a window above 4 KiB and zstd with a checksum. */
    long getUncompressedByCassandra();

    /** Jobs that a device did not do and the CPU did. */
    long getFallbacks();

    /** Chunks that no decoder could read. */
    long getDamagedChunks();

    /** The counters of the native library, by its own names. */
    Map<String, Long> getLibrary();
}
