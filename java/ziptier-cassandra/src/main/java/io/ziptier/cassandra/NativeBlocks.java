package io.ziptier.cassandra;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import io.ziptier.codec.Codec;
import io.ziptier.codec.Dictionary;
import io.ziptier.codec.ZiptierException;

/** Blocks by ziptier's native library. */
final class NativeBlocks implements BlockCodec {
    private static final Logger LOGGER = LoggerFactory.getLogger(NativeBlocks.class);
    /** A modelled device, for tests and benchmarks; null for none. It is no option of a table, for a model is slow. */
    private static final String MODEL = System.getProperty("ziptier.model");

    private final Codec codec;

    private NativeBlocks(Codec codec) {
        this.codec = codec;
    }

    /**
     * Null if this machine has no library. A node without it must still open its tables. A model that cannot be opened
     * is refused instead: a benchmark would measure Cassandra's own code in its name.
     */
    static BlockCodec open(ChunkOptions options) {
        if (options.format == ChunkFormat.TOKEN)
            return openTokens(options);
        try {
            return mustOpen(options);
        } catch (ZiptierException | LinkageError missing) {
            if (takesModel(options))
                throw ChunkOptions.refused("cannot model the device '%s': %s", MODEL, missing.getMessage());
            LOGGER.warn("ZiptierCompressor {} works by Cassandra's own code: {}", options, missing.getMessage());
            return null;
        }
    }

    /**
     * Fails where this machine has no library, or on path {@code hardware} no device.
     *
     * @throws ZiptierException if an engine is missing
     * @throws LinkageError if the library cannot be loaded
     */
    static BlockCodec mustOpen(ChunkOptions options) {
        return new NativeBlocks(Codec.open(names(options)));
    }

    /** Nothing else reads tokens, so that a table of them needs the library and a sound dictionary. */
    private static BlockCodec openTokens(ChunkOptions options) {
        byte[] stored = options.dictionary();
        try (Dictionary dictionary = Dictionary.load(stored)) {
            return new NativeBlocks(Codec.open(names(options), dictionary));
        } catch (ZiptierException | LinkageError failure) {
            throw ChunkOptions.refused("cannot work with format 'token': %s", failure.getMessage());
        }
    }

    private static Map<String, String> names(ChunkOptions options) {
        Map<String, String> names = new HashMap<>();
        names.put("format", options.format.toString());
        names.put("level", Integer.toString(options.level));
        names.put("path", options.path);
        if (options.format != ChunkFormat.DEFLATE)
            return names;
        names.put("huffman", options.huffman);
        names.put("split", Integer.toString(options.split));
        if (takesModel(options))
            names.putAll(Map.of("engine", "iaa", "model", MODEL));
        return names;
    }

    private static boolean takesModel(ChunkOptions options) {
        return MODEL != null && options.format == ChunkFormat.DEFLATE && !options.path.equals("software");
    }

    @Override
    public int compressedBytesMax(int rawBytes) {
        return codec.maxCompressedLength(rawBytes);
    }

    @Override
    public void compress(ByteBuffer raw, ByteBuffer block) {
        codec.compress(raw, block);
    }

    @Override
    public void decompress(ByteBuffer block, ByteBuffer raw) {
        codec.decompress(block, raw);
    }

    @Override
    public String worker() {
        return codec.worker();
    }

    @Override
    public Map<String, Long> counters() {
        return codec.statistics().counters();
    }
}
