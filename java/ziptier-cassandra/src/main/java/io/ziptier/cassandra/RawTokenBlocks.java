package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Set;

import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.ICompressor;

/** The blocks of format {@code token} that are stored raw, for chunks that the native library cannot compress. */
final class RawTokenBlocks implements ICompressor {
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

    @Override
    public int uncompress(byte[] input, int inputOffset, int inputLength, byte[] output, int outputOffset)
        throws IOException {
        ByteBuffer target = ByteBuffer.wrap(output, outputOffset, output.length - outputOffset);
        uncompress(ByteBuffer.wrap(input, inputOffset, inputLength), target);
        return target.position() - outputOffset;
    }

    @Override
    public BufferType preferredBufferType() {
        return BufferType.OFF_HEAP;
    }

    @Override
    public boolean supports(BufferType bufferType) {
        return true;
    }

    @Override
    public Set<String> supportedOptions() {
        return Set.of();
    }
}
