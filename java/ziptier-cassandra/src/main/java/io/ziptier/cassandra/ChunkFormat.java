package io.ziptier.cassandra;

import java.util.Locale;
import java.util.Map;

import org.apache.cassandra.io.compress.ICompressor;
import org.apache.cassandra.io.compress.LZ4Compressor;
import org.apache.cassandra.io.compress.ZstdCompressor;

/**
 * The bytes of a chunk. Each format but {@code token} is that of a compressor of Cassandra's own, which reads and
 * writes it, too.
 */
enum ChunkFormat {
    DEFLATE(1, 12, 6) {
        @Override
        Wrapping wrapping() {
            return new ZlibWrapping();
        }

        @Override
        ICompressor ofCassandra(int level) {
            return new JavaZlib(Math.min(level, 9));
        }
    },
    LZ4(-65537, 12, 1) {
        @Override
        Wrapping wrapping() {
            return new Lz4Wrapping();
        }

        @Override
        ICompressor ofCassandra(int level) {
            return LZ4Compressor.create(Map.of());
        }
    },
    /** Only ziptier reads it; see docs/FORMATS.md, "Block of tokens". */
    TOKEN(1, 2, 1) {
        @Override
        Wrapping wrapping() {
            return new NoWrapping();
        }

        @Override
        ICompressor ofCassandra(int level) {
            return new RawTokenBlocks();
        }
    },
    ZSTD(-131072, 22, 3) {
        @Override
        Wrapping wrapping() {
            return new ZstdWrapping();
        }

        @Override
        ICompressor ofCassandra(int level) {
            return ZstdCompressor.getOrCreate(level);
        }
    };

    final int levelMin;
    final int levelMax;
    final int levelDefault;

    ChunkFormat(int levelMin, int levelMax, int levelDefault) {
        this.levelMin = levelMin;
        this.levelMax = levelMax;
        this.levelDefault = levelDefault;
    }

    /** Puts a bare block of this format into a chunk. */
    abstract Wrapping wrapping();

    /** Reads and writes chunks without ziptier's native library. */
    abstract ICompressor ofCassandra(int level);

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
