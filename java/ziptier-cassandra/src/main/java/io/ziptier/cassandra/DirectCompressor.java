package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Set;

import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.ICompressor;

/** A compressor without options that prefers direct buffers, and takes arrays as buffers. */
public abstract class DirectCompressor implements ICompressor {
    @Override
    public final int uncompress(byte[] input, int inputOffset, int inputLength, byte[] output, int outputOffset)
        throws IOException {
        ByteBuffer target = ByteBuffer.wrap(output, outputOffset, output.length - outputOffset);
        uncompress(ByteBuffer.wrap(input, inputOffset, inputLength), target);
        return target.position() - outputOffset;
    }

    @Override
    public final BufferType preferredBufferType() {
        return BufferType.OFF_HEAP;
    }

    @Override
    public final boolean supports(BufferType bufferType) {
        return true;
    }

    @Override
    public Set<String> supportedOptions() {
        return Set.of();
    }
}
