package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;

/** The bytes around a bare block that make it a chunk as one of Cassandra's own compressors writes it. */
interface Wrapping {
    /** The bytes in front of a block and behind it, together. */
    int bytes();

    /**
     * Compresses all that remains of {@code raw} and appends the chunk to {@code chunk}.
     *
     * @throws RuntimeException if the codec fails; positions are undefined then
     */
    void compress(BlockCodec codec, ByteBuffer raw, ByteBuffer chunk);

    /**
     * Decompresses all that remains of {@code chunk} and appends the bytes to {@code raw}.
     *
     * @return false if another decoder has to read this chunk
     * @throws IOException if the chunk is damaged, whatever another decoder makes of it
     * @throws RuntimeException if the codec fails; positions are undefined then
     */
    boolean uncompress(BlockCodec codec, ByteBuffer chunk, ByteBuffer raw) throws IOException;
}
