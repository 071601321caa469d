package io.ziptier.cassandra;

import java.nio.ByteBuffer;
import java.util.zip.Adler32;

/** zlib's stream (RFC 1950): a header of two bytes, raw DEFLATE, and the Adler-32 of the raw bytes. */
final class ZlibWrapping implements Wrapping {
    private static final int HEADER_BYTES = 2;
    private static final int CHECKSUM_BYTES = 4;
    /** DEFLATE with a window of 4 KiB, which ziptier and the accelerator keep to. */
    private static final short HEADER = 0x4889;
    /** Log 2 of the largest window that ziptier's decoder has, less 8, as the header has it. */
    private static final int WINDOW_MAX = 4;

    @Override
    public int bytes() {
        return HEADER_BYTES + CHECKSUM_BYTES;
    }

    @Override
    public void compress(BlockCodec codec, ByteBuffer raw, ByteBuffer chunk) {
        Adler32 checksum = new Adler32();
        checksum.update(raw.duplicate());
        // The order of bytes in a duplicate is big-endian, whatever the caller has.
        chunk.position(chunk.duplicate().putShort(HEADER).position());
        codec.compress(raw, chunk);
        chunk.position(chunk.duplicate().putInt((int) checksum.getValue()).position());
    }

    @Override
    public boolean uncompress(BlockCodec codec, ByteBuffer chunk, ByteBuffer raw) {
        if (chunk.remaining() < bytes())
            return false;
        ByteBuffer block = chunk.duplicate();
        int header = block.getShort() & 0xffff;
        boolean isDeflate = (header >> 8 & 0xf) == 8 && header % 31 == 0 && (header & 0x20) == 0;
        if (!isDeflate || header >> 12 > WINDOW_MAX)
            return false;
        int end = chunk.limit() - CHECKSUM_BYTES;
        block.limit(end);
        ByteBuffer unpacked = raw.duplicate();
        codec.decompress(block, raw);
        unpacked.limit(raw.position());
        Adler32 checksum = new Adler32();
        checksum.update(unpacked);
        block.limit(chunk.limit());
        if (block.getInt(end) != (int) checksum.getValue())
            return false;
        chunk.position(chunk.limit());
        return true;
    }
}
