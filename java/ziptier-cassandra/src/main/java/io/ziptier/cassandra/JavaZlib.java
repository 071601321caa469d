package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * zlib's streams by {@code java.util.zip}, with any window.
 *
 * <p>Cassandra's DeflateCompressor has the same format, but copies direct buffers through the heap.
 */
final class JavaZlib extends DirectCompressor {
    private static final ThreadLocal<Inflater> INFLATER = ThreadLocal.withInitial(Inflater::new);

    private final ThreadLocal<Deflater> deflater;

    JavaZlib(int level) {
        deflater = ThreadLocal.withInitial(() -> new Deflater(level));
    }

    /** The bound of zlib's {@code compressBound}. */
    @Override
    public int initialCompressedBufferLength(int chunkLength) {
        return chunkLength + (chunkLength >> 12) + (chunkLength >> 14) + (chunkLength >> 25) + 13;
    }

    @Override
    public void compress(ByteBuffer input, ByteBuffer output) throws IOException {
        Deflater deflater = this.deflater.get();
        deflater.reset();
        deflater.setInput(input);
        deflater.finish();
        deflater.deflate(output);
        if (!deflater.finished())
            throw new IOException("zlib needs more room for the chunk than " + output.capacity() + " bytes");
    }

    @Override
    public void uncompress(ByteBuffer input, ByteBuffer output) throws IOException {
        Inflater inflater = INFLATER.get();
        inflater.reset();
        inflater.setInput(input);
        int start = output.position(), moreBytes;
        try {
            inflater.inflate(output);
            // A chunk that fills the buffer leaves the checksum unread.
            moreBytes = inflater.finished() ? 0 : inflater.inflate(new byte[1]);
        } catch (DataFormatException damaged) {
            throw new IOException("zlib says: " + damaged.getMessage(), damaged);
        }
        if (moreBytes > 0 || !inflater.finished())
            throw new IOException(String.format("zlib's stream %s %d bytes",
                                                moreBytes > 0 ? "has more than" : "ends early, after",
                                                output.position() - start));
        if (input.hasRemaining())
            throw new IOException(String.format("%d bytes follow zlib's stream", input.remaining()));
    }
}
