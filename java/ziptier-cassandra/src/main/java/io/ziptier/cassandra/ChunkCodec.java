package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.ByteBuffer;

import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.ICompressor;

import io.ziptier.codec.DamagedException;
import io.ziptier.codec.OutputTooSmallException;

/**
 * Compresses chunks by ziptier's native library, and by Cassandra's own code where that library fails.
 *
 * <p>Cassandra takes an {@link IOException} of a compressor for a damaged SSTable. A chunk is therefore called damaged
 * only if neither decoder can read it, if it is empty, or if LZ4 gives another length than the chunk states. A failure
 * of the library or of a device does not reach Cassandra, but for chunks of tokens: Cassandra's own code cannot read
 * them, so that the read fails by an unchecked exception. All threads share a codec.
 */
public final class ChunkCodec {
    private final ChunkOptions options;
    /** Null if the library is missing. */
    private final BlockCodec blocks;
    private final Wrapping wrapping;
    private final ICompressor ofCassandra;
    private final ChunkCounters counters;

    ChunkCodec(ChunkOptions options, BlockCodec blocks) {
        this.options = options;
        this.blocks = blocks;
        wrapping = options.format.wrapping();
        ofCassandra = options.format.ofCassandra(options.level);
        counters = new ChunkCounters(options, blocks);
    }

    /** Opens the codec of a table, with counters in JMX. A missing library costs speed and is told in the log. */
    public static ChunkCodec open(ChunkOptions options) {
        return open(options, NativeBlocks.open(options));
    }

    static ChunkCodec open(ChunkOptions options, BlockCodec blocks) {
        ChunkCodec codec = new ChunkCodec(options, blocks);
        codec.counters.register();
        return codec;
    }

    public ChunkCounters counters() {
        return counters;
    }

    /** Whether a flush may wait for it. */
    public boolean isFast() {
        return options.isFast();
    }

    /** The most bytes that a chunk of so many raw bytes takes. */
    public int compressedBytesMax(int rawBytes) {
        int ofCassandraMax = ofCassandra.initialCompressedBufferLength(rawBytes);
        return blocks == null ? ofCassandraMax
                              : Math.max(ofCassandraMax, wrapping.bytes() + blocks.compressedBytesMax(rawBytes));
    }

    /** Compresses all that remains of {@code input} into a chunk; both positions advance. */
    public void compress(ByteBuffer input, ByteBuffer output) throws IOException {
        int start = input.position(), chunkStart = output.position(), rawBytes = input.remaining();
        if (!compressedByLibrary(input, output)) {
            input.position(start);
            output.position(chunkStart);
            compressByCassandra(input, output);
            counters.compressedByCassandra.increment();
        }
        counters.compressed(rawBytes, output.position() - chunkStart);
    }

    private boolean compressedByLibrary(ByteBuffer input, ByteBuffer output) {
        if (blocks == null)
            return false;
        try {
            wrapping.compress(blocks, input, output);
            return true;
        } catch (RuntimeException failure) {
            counters.failed(failure);
            return false;
        }
    }

    /**
     * Decompresses the chunk that remains of {@code input}; both positions advance.
     *
     * @throws IOException if the chunk is damaged
     * @throws RuntimeException if the library or a device fails, and nothing else can read the chunk
     */
    public void uncompress(ByteBuffer input, ByteBuffer output) throws IOException {
        int start = input.position(), rawStart = output.position(), chunkBytes = input.remaining();
        // zstd takes no bytes at all for a frame of no bytes.
        if (chunkBytes == 0)
            throw damage(chunkBytes, new IOException("it is empty"));
        boolean isDone = false;
        RuntimeException ofLibrary = null;
        try {
            isDone = blocks != null && wrapping.uncompress(blocks, input, output);
        } catch (RuntimeException failure) {
            ofLibrary = failure;
            if (!isOfChunk(failure))
                counters.failed(failure);
        } catch (IOException damaged) {
            throw damage(chunkBytes, damaged);
        }
        if (!isDone) {
            input.position(start);
            output.position(rawStart);
            uncompressByCassandra(input, output, ofLibrary);
            counters.uncompressedByCassandra.increment();
        }
        counters.uncompressed(input.position() - start, output.position() - rawStart);
    }

    /** Whether a failure of the library lies in the bytes of a chunk. */
    private static boolean isOfChunk(RuntimeException failure) {
        return failure instanceof DamagedException || failure instanceof OutputTooSmallException;
    }

    private void compressByCassandra(ByteBuffer input, ByteBuffer output) throws IOException {
        if (ofCassandra instanceof JavaZlib || input.isDirect() && output.isDirect()) {
            ofCassandra.compress(input, output);
            return;
        }
        ByteBuffer chunk = direct(ofCassandra.initialCompressedBufferLength(input.remaining()));
        ofCassandra.compress(direct(input), chunk);
        output.put(chunk.flip());
    }

    /** {@code ofLibrary} is why the library could not do it, or null. */
    private void uncompressByCassandra(ByteBuffer input, ByteBuffer output, RuntimeException ofLibrary)
        throws IOException {
        int chunkBytes = input.remaining();
        try {
            if (options.format == ChunkFormat.LZ4) {
                // Cassandra compares the length that a chunk states for arrays alone. Of a buffer it gives former bytes
                // for those that are missing.
                byte[] chunk = new byte[chunkBytes], raw = new byte[output.remaining()];
                input.get(chunk);
                output.put(raw, 0, ofCassandra.uncompress(chunk, 0, chunkBytes, raw, 0));
                return;
            }
            if (ofCassandra instanceof JavaZlib || input.isDirect() && output.isDirect()) {
                ofCassandra.uncompress(input, output);
                return;
            }
            ByteBuffer raw = direct(output.remaining());
            ofCassandra.uncompress(direct(input), raw);
            output.put(raw.flip());
        } catch (IOException | RuntimeException damaged) {
            if (ofLibrary != null && options.format == ChunkFormat.TOKEN && !isOfChunk(ofLibrary))
                throw ofLibrary;
            IOException told = damage(chunkBytes, damaged);
            if (ofLibrary != null)
                told.addSuppressed(ofLibrary);
            throw told;
        }
    }

    /** Counts a damaged chunk, and tells of it. */
    private IOException damage(int chunkBytes, Exception found) {
        counters.damaged.increment();
        return new IOException(String.format("ZiptierCompressor cannot uncompress a chunk of %d bytes as %s: %s",
                                             chunkBytes, options.format, found.getMessage()), found);
    }

    private static ByteBuffer direct(int bytes) {
        return BufferType.OFF_HEAP.allocate(bytes);
    }

    /** A copy of all that remains, which advances the position. */
    private static ByteBuffer direct(ByteBuffer source) {
        return direct(source.remaining()).put(source).flip();
    }
}
