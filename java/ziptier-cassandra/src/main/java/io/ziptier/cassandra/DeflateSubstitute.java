package io.ziptier.cassandra;

import java.util.EnumSet;
import java.util.Set;

import org.apache.cassandra.io.compress.DeflateCompressor;
import org.apache.cassandra.io.compress.ICompressor;
import org.apache.cassandra.io.compress.ZiptierCompressor;

/** What a node takes for Cassandra's DeflateCompressor: the same format, name, options and uses. */
final class DeflateSubstitute extends ZiptierCompressor {
    DeflateSubstitute(ChunkCodec codec) {
        super(codec);
    }

    /** The class that schema and SSTables name. Cassandra's interface has this method from CEP-49 on. */
    public Class<? extends ICompressor> serializedAs() {
        return DeflateCompressor.class;
    }

    @Override
    public Set<String> supportedOptions() {
        return Set.of();
    }

    @Override
    public Set<Uses> recommendedUses() {
        return EnumSet.of(Uses.GENERAL);
    }
}
