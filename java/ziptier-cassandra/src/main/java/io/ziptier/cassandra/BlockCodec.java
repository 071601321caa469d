package io.ziptier.cassandra;

import java.nio.ByteBuffer;
import java.util.Map;

/** Compresses bare blocks: raw DEFLATE, an LZ4 block, a zstd frame without its magic number. */
interface BlockCodec {
    int compressedBytesMax(int rawBytes);

    /** Compresses all that remains of {@code raw}; both positions advance. Fails by unchecked exceptions. */
    void compress(ByteBuffer raw, ByteBuffer block);

    /** Decompresses all that remains of {@code block}; both positions advance. Fails by unchecked exceptions. */
    void decompress(ByteBuffer block, ByteBuffer raw);

    /** "cpu", "software", "hardware" or "modelled". */
    String worker();

    Map<String, Long> counters();
}
