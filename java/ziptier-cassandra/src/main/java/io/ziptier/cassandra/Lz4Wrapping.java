package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** An LZ4 block behind the length of its raw bytes, little-endian. */
final class Lz4Wrapping implements Wrapping {
    @Override
    public int bytes() {
        return Integer.BYTES;
    }

    @Override
    public void compress(BlockCodec codec, ByteBuffer raw, ByteBuffer chunk) {
        chunk.duplicate().order(ByteOrder.LITTLE_ENDIAN).putInt(raw.remaining());
        chunk.position(chunk.position() + Integer.BYTES);
        codec.compress(raw, chunk);
    }

    @Override
    public boolean uncompress(BlockCodec codec, ByteBuffer chunk, ByteBuffer raw) throws IOException {
        if (chunk.remaining() < Integer.BYTES)
            return false;
        int length = chunk.duplicate().order(ByteOrder.LITTLE_ENDIAN).getInt();
        if (length < 0 || length > raw.remaining())
            return false;
        chunk.position(chunk.position() + Integer.BYTES);
        int start = raw.position();
        codec.decompress(chunk, raw);
        int found = raw.position() - start;
        if (found != length)
            throw new IOException(String.format("it has %d bytes and states %d", found, length));
        return true;
    }
}
