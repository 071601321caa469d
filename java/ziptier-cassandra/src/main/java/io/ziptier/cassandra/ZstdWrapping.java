package io.ziptier.cassandra;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A zstd frame (RFC 8878): ziptier's blocks are such frames without the magic number. */
final class ZstdWrapping implements Wrapping {
    private static final int MAGIC = 0xFD2FB528;

    @Override
    public int bytes() {
        return Integer.BYTES;
    }

    @Override
    public void compress(BlockCodec codec, ByteBuffer raw, ByteBuffer chunk) {
        chunk.duplicate().order(ByteOrder.LITTLE_ENDIAN).putInt(MAGIC);
        chunk.position(chunk.position() + Integer.BYTES);
        codec.compress(raw, chunk);
    }

    @Override
    public boolean uncompress(BlockCodec codec, ByteBuffer chunk, ByteBuffer raw) {
        if (chunk.remaining() < Integer.BYTES || chunk.duplicate().order(ByteOrder.LITTLE_ENDIAN).getInt() != MAGIC)
            return false;
        chunk.position(chunk.position() + Integer.BYTES);
        codec.decompress(chunk, raw);
        return true;
    }
}
