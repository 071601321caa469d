package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;

/** The blocks of format {@code token} that are stored raw, for chunks that the native library cannot compress. */
final class RawTokenBlocks extends DirectCompressor {
    private static final byte RAW = 0;

    @Override
    public int initialCompressedBufferLength(int chunkLength) {
        return chunkLength + 1;
    }

    @Override
    public void compress(ByteBuffer input, ByteBuffer output) {
        output.put(RAW).put(input);
    }

    @Override
    public void uncompress(ByteBuffer input, ByteBuffer output) throws IOException {
        if (!input.hasRemaining() || input.get() != RAW || input.remaining() > output.remaining())
            throw new IOException("it is no block of tokens of this dictionary");
        output.put(input);
    }
}
