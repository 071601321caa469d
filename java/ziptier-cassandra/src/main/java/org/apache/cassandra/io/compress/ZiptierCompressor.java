package org.apache.cassandra.io.compress;

import java.io.IOException;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

import io.ziptier.cassandra.ChunkCodec;
import io.ziptier.cassandra.ChunkCounters;
import io.ziptier.cassandra.ChunkOptions;
import io.ziptier.cassandra.DirectCompressor;

/**
 * Cassandra's name for ziptier's compression of chunks; {@link ChunkCodec} does the work.
 *
 * <p>The class has to lie in this package: SSTables store the simple name of a compressor, and a node looks for that
 * name here.
 */
public class ZiptierCompressor extends DirectCompressor {
    /**
     * Equal options share an instance, for Cassandra compares the compressors of two tables by identity. Tables and
     * SSTables hold their instances. The dictionary of one that nobody holds any more gives its memory back.
     */
    private static final Map<ChunkOptions, Instance> INSTANCES = new HashMap<>();
    private static final ReferenceQueue<ZiptierCompressor> UNUSED = new ReferenceQueue<>();

    private final ChunkCodec codec;

    protected ZiptierCompressor(ChunkCodec codec) {
        this.codec = codec;
    }

    /**
     * The compressor for the options of a table.
     *
     * @throws org.apache.cassandra.exceptions.ConfigurationException if an option is wrong
     */
    public static synchronized ZiptierCompressor create(Map<String, String> options) {
        for (Instance unused; (unused = (Instance) UNUSED.poll()) != null;)
            unused.forget();
        ChunkOptions parsed = ChunkOptions.parse(options);
        Instance known = INSTANCES.get(parsed);
        ZiptierCompressor compressor = known == null ? null : known.get();
        if (compressor == null) {
            if (known != null)
                known.forget();
            ChunkCodec codec = ChunkCodec.open(parsed);
            compressor = new ZiptierCompressor(codec);
            INSTANCES.put(parsed, new Instance(compressor, parsed, codec.counters()));
        }
        return compressor;
    }

    /** A compressor that lives as long as somebody else holds it, and what is to be undone after it. */
    private static final class Instance extends WeakReference<ZiptierCompressor> {
        private final ChunkOptions options;
        private final ChunkCounters counters;

        Instance(ZiptierCompressor compressor, ChunkOptions options, ChunkCounters counters) {
            super(compressor, UNUSED);
            this.options = options;
            this.counters = counters;
        }

        void forget() {
            if (INSTANCES.remove(options, this))
                counters.unregister();
        }
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
    public Set<String> supportedOptions() {
        return ChunkOptions.NAMES;
    }

    /** With {@code FAST_COMPRESSION} a flush keeps this compressor; without, Cassandra flushes by LZ4. */
    @Override
    public Set<Uses> recommendedUses() {
        return codec.isFast() ? EnumSet.allOf(Uses.class) : EnumSet.of(Uses.GENERAL);
    }
}
