package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.io.compress.AbstractCompressionProvider;
import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.DeflateCompressor;
import org.apache.cassandra.io.compress.ICompressor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import io.ziptier.codec.ZiptierException;

/**
 * Does the work of Cassandra's DeflateCompressor, if {@code compressor_providers} in {@code cassandra.yaml} names this
 * class. Schema and SSTables name DeflateCompressor, so that a node without ziptier reads them.
 *
 * <p>A release of Cassandra has no {@code compressor_providers}, and never loads this class.
 *
 * <ol>
 * <li>{@link #init} checks the parameters.
 * <li>{@link #isHealthy} opens the native library and passes a chunk through it and through Cassandra's own code.
 * <li>{@link #createCompressor} gives all tables one compressor.
 * </ol>
 */
public final class DeflateProvider extends AbstractCompressionProvider {
    private static final Logger LOGGER = LoggerFactory.getLogger(DeflateProvider.class);

    private ChunkOptions options;
    private DeflateSubstitute compressor;

    /**
     * Takes {@code level}, {@code huffman}, {@code split} and {@code path}.
     *
     * @throws ConfigurationException if a parameter is unknown or wrong
     */
    @Override
    public void init(Map<String, String> parameters) {
        super.init(parameters);
        options = ChunkOptions.ofNode(parameters);
    }

    /** Whether this node has the library, and on path {@code hardware} the device. The log says what is wrong. */
    @Override
    public boolean isHealthy() {
        try {
            BlockCodec blocks = NativeBlocks.mustOpen(options);
            pass(new ChunkCodec(options, blocks));
            compressor = new DeflateSubstitute(ChunkCodec.open(options, blocks));
            return true;
        } catch (ZiptierException | LinkageError | IOException failure) {
            LOGGER.warn("{} cannot do the work of DeflateCompressor with {}: {}",
                        getClass().getSimpleName(), options, failure.getMessage());
            return false;
        }
    }

    /** Passes a chunk from the library to Cassandra's code, and back to the library. */
    static void pass(ChunkCodec codec) throws IOException {
        byte[] text = "a chunk that ziptier and Cassandra both read. ".repeat(100).getBytes(StandardCharsets.US_ASCII);
        ByteBuffer raw = BufferType.OFF_HEAP.allocate(text.length).put(text).flip();
        ByteBuffer chunk = BufferType.OFF_HEAP.allocate(codec.compressedBytesMax(text.length));
        codec.compress(raw.duplicate(), chunk);
        chunk.flip();
        ByteBuffer byCassandra = BufferType.OFF_HEAP.allocate(text.length);
        ByteBuffer byLibrary = BufferType.OFF_HEAP.allocate(text.length);
        DeflateCompressor.create(Map.of()).uncompress(chunk.duplicate(), byCassandra);
        codec.uncompress(chunk, byLibrary);
        boolean usesLibrary = codec.counters().getCompressedByCassandra() == 0
                              && codec.counters().getUncompressedByCassandra() == 0;
        if (!usesLibrary || !raw.equals(byCassandra.flip()) || !raw.equals(byLibrary.flip()))
            throw new IOException(String.format("a chunk of %d bytes did not come back by worker '%s': "
                                                + "set path to software, or leave the provider out",
                                                text.length, codec.counters().getWorker()));
    }

    /**
     * The compressor for a table of DeflateCompressor.
     *
     * @throws IllegalStateException if the table has another compressor, or the provider is not healthy
     * @throws ConfigurationException if the table has options, for DeflateCompressor has none
     */
    @Override
    public ICompressor createCompressor(Class<?> compressorClass, Map<String, String> tableOptions) {
        if (compressorClass != DeflateCompressor.class)
            throw new IllegalStateException(String.format("DeflateProvider does the work of DeflateCompressor alone, "
                                                          + "not of %s: name it as 'deflate' in compressor_providers",
                                                          compressorClass.getSimpleName()));
        if (tableOptions != null && !tableOptions.isEmpty())
            throw new ConfigurationException("Unknown compression options " + tableOptions.keySet()
                                             + ": DeflateCompressor has none; cassandra.yaml sets those of ziptier");
        if (compressor == null)
            throw new IllegalStateException("DeflateProvider is not healthy: the log says why");
        return compressor;
    }
}
