package io.ziptier.examples.lucene;

import io.ziptier.codec.Codec;
import io.ziptier.codec.DamagedException;
import java.io.IOException;
import java.util.Map;
import org.apache.lucene.codecs.compressing.CompressionMode;
import org.apache.lucene.codecs.compressing.Compressor;
import org.apache.lucene.codecs.compressing.Decompressor;
import org.apache.lucene.index.CorruptIndexException;
import org.apache.lucene.store.ByteBuffersDataInput;
import org.apache.lucene.store.DataInput;
import org.apache.lucene.store.DataOutput;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.BytesRef;

/** A block of stored fields: the length of the compressed bytes, and zstd in ziptier's frame, which has a checksum. */
final class ZiptierCompression extends CompressionMode {
    /** Opened at the first block: Lucene makes every codec on the class path, also those that no index uses. */
    private static final class Shared {
        static final Codec CODEC = Codec.open(Map.of("format", "zstd", "frame", "yes"));
    }

    @Override
    public Compressor newCompressor() {
        return new Packing();
    }

    @Override
    public Decompressor newDecompressor() {
        return new Unpacking();
    }

    /** One thread uses a compressor at a time. */
    private static final class Packing extends Compressor {
        private byte[] raw = {};
        private byte[] packed = {};

        @Override
        public void compress(ByteBuffersDataInput input, DataOutput output) throws IOException {
            int length = Math.toIntExact(input.length());
            raw = ArrayUtil.growNoCopy(raw, length);
            input.readBytes(raw, 0, length);
            packed = ArrayUtil.growNoCopy(packed, Shared.CODEC.maxCompressedLength(length));
            int packedLength = Shared.CODEC.compress(raw, 0, length, packed, 0, packed.length);
            output.writeVInt(packedLength);
            output.writeBytes(packed, packedLength);
        }

        @Override
        public void close() {
            // All compressors share the codec.
        }
    }

    private static final class Unpacking extends Decompressor {
        private byte[] packed = {};

        @Override
        public void decompress(DataInput input, int rawLength, int offset, int length, BytesRef bytes)
                throws IOException {
            int packedLength = input.readVInt();
            if (packedLength < 0 || packedLength > Shared.CODEC.maxCompressedLength(rawLength)) {
                throw new CorruptIndexException("a block of " + rawLength + " bytes cannot have " + packedLength
                    + " compressed bytes: restore the index", input);
            }
            packed = ArrayUtil.growNoCopy(packed, packedLength);
            input.readBytes(packed, 0, packedLength);
            bytes.bytes = ArrayUtil.growNoCopy(bytes.bytes, rawLength);
            try {
                Shared.CODEC.decompressExact(packed, 0, packedLength, bytes.bytes, 0, rawLength);
            } catch (DamagedException damaged) {
                throw new CorruptIndexException(damaged.getMessage(), input, damaged);
            }
            bytes.offset = offset;
            bytes.length = length;
        }

        /** Lucene clones a decompressor for each thread. */
        @Override
        public Decompressor clone() {
            return new Unpacking();
        }
    }
}
