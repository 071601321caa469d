package org.apache.cassandra.io.compress;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import io.ziptier.cassandra.ChunkCodec;
import io.ziptier.cassandra.ChunkOptions;

/**
 * Cassandra's name for ziptier's compression of chunks; {@link ChunkCodec} does the work.
 *
 * <p>The class has to lie in this package: SSTables store the simple name of a compressor, and a node looks for that
 * name here.
 */
public final class ZiptierCompressor implements ICompressor {
    /** Equal options share an instance, for Cassandra compares the compressors of two tables by identity. */
    private static final Map<ChunkOptions, ZiptierCompressor> INSTANCES = new ConcurrentHashMap<>();

    private final ChunkCodec codec;

    private ZiptierCompressor(ChunkCodec codec) {
        this.codec = codec;
    }

    /**
     * The compressor for the options of a table.
     *
     * @throws org.apache.cassandra.exceptions.ConfigurationException if an option is wrong
     */
    public static ZiptierCompressor create(Map<String, String> options) {
        return INSTANCES.computeIfAbsent(ChunkOptions.parse(options),
                                         parsed -> new ZiptierCompressor(ChunkCodec.open(parsed)));
    }

    @Override
    public int initialCompressedBufferLength(int chunkLength) {
        return codec.compressedBytesMax(chunkLength);
    }

    @Override
    public void compress(ByteBuffer input, ByteBuffer output) throws IOException {
        codec.compress(input, output);
    }

    @Override
    public void uncompress(ByteBuffer input, ByteBuffer output) throws IOException {
        codec.uncompress(input, output);
    }

    @Override
    public int uncompress(byte[] input, int inputOffset, int inputLength, byte[] output, int outputOffset)
        throws IOException {
        ByteBuffer target = ByteBuffer.wrap(output, outputOffset, output.length - outputOffset);
        codec.uncompress(ByteBuffer.wrap(input, inputOffset, inputLength), target);
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
        return ChunkOptions.NAMES;
    }

    /** With {@code FAST_COMPRESSION} a flush keeps this compressor; without, Cassandra flushes by LZ4. */
    @Override
    public Set<Uses> recommendedUses() {
        return EnumSet.allOf(Uses.class);
    }
}
