package io.ziptier.cassandra;

import java.nio.ByteBuffer;

/** A chunk that is a bare block. */
final class NoWrapping implements Wrapping {
    @Override
    public int bytes() {
        return 0;
    }

    @Override
    public void compress(BlockCodec codec, ByteBuffer raw, ByteBuffer chunk) {
        codec.compress(raw, chunk);
    }

    @Override
    public boolean uncompress(BlockCodec codec, ByteBuffer chunk, ByteBuffer raw) {
        codec.decompress(chunk, raw);
        return true;
    }
}
