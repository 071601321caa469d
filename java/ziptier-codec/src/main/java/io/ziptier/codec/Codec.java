package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.Map;

/**
 * Compresses and decompresses blocks. One codec serves all threads.
 *
 * <p>The options have the names of ziptier's C interface:
 *
 * <table>
 * <caption>Options</caption>
 * <tr><th>name</th><th>values</th><th>default</th></tr>
 * <tr><td>format</td><td>none, token (with a dictionary), lz4, zstd, deflate</td><td>must be given</td></tr>
 * <tr><td>level</td><td>of the format</td><td>of the format</td></tr>
 * <tr><td>frame</td><td>yes: each block has a header of 9 bytes with format, length and checksum</td><td>no</td></tr>
 * <tr><td>huffman</td><td>of deflate: dynamic, fixed, canned</td><td>dynamic</td></tr>
 * <tr><td>split</td><td>of deflate, without a dictionary: the most parts of a block, 1 to 16, on which several engines
 * of a device work side by side</td><td>1</td></tr>
 * <tr><td>path</td><td>auto, hardware, software</td><td>auto</td></tr>
 * <tr><td>engine</td><td>of deflate: software, iaa, qpl</td><td>a device if there is one, or software</td></tr>
 * <tr><td>model</td><td>a modelled accelerator, such as devices=4,depth=128</td><td>none</td></tr>
 * </table>
 *
 * <p>Blocks of format deflate are raw DEFLATE with a window of 4 KiB. A codec with huffman dynamic on the CPU also
 * reads blocks of other programs with a window of up to 32 KiB. All others take such blocks for damaged.
 *
 * <p>Buffers may be direct or on the heap, in any pair. Direct buffers save a copy. Positions advance only if a call
 * succeeds, and limits never change. Input and output must not overlap, and no other thread may change the input or use
 * the output during a call.
 */
public final class Codec implements AutoCloseable {
    private final Handle handle;
    private final String worker;

    private Codec(Handle handle) {
        this.handle = handle;
        worker = statistics().worker();
    }

    /**
     * Opens a codec without a dictionary.
     *
     * @throws InvalidOptionException if an option is unknown or wrong
     * @throws EngineException if the native library, an engine or a device is missing
     */
    public static Codec open(Map<String, String> options) {
        return open(options, null);
    }

    /**
     * Opens a codec with a dictionary, or without one if it is null. The dictionary may be closed afterwards.
     *
     * @throws InvalidOptionException if an option is unknown or wrong
     * @throws EngineException if the native library, an engine or a device is missing
     */
    public static Codec open(Map<String, String> options, Dictionary dictionary) {
        NativeLibrary.load();
        byte[] text = Native.options(options);
        if (dictionary == null) {
            return new Codec(new Handle("codec", Native.codecOpen(text, 0), Native::codecClose));
        }
        long share = dictionary.handle().acquire();
        try {
            return new Codec(new Handle("codec", Native.codecOpen(text, share), Native::codecClose));
        } finally {
            dictionary.handle().release();
        }
    }

    /**
     * Compresses all that remains of {@code raw} into a block at the position of {@code packed}.
     *
     * @return the bytes of the block
     * @throws OutputTooSmallException if the block has no room; {@link #maxCompressedLength} bytes are always enough
     * @throws EngineException if a device fails on path hardware
     * @throws ReadOnlyBufferException if {@code packed} is read-only
     */
    public int compress(ByteBuffer raw, ByteBuffer packed) {
        return Native.run(Native.COMPRESS, handle, raw, packed);
    }

    /**
     * Compresses bytes of an array into another one, or into another part of it.
     *
     * @return the bytes of the block
     * @throws OutputTooSmallException if the block has no room
     */
    public int compress(byte[] raw, int rawStart, int rawLength, byte[] packed, int packedStart, int packedRoom) {
        return Native.run(Native.COMPRESS, handle, raw, rawStart, rawLength, packed, packedStart, packedRoom);
    }

    /**
     * Decompresses the block that remains of {@code packed} to the position of {@code raw}. The bytes of {@code raw}
     * behind the block, up to its limit, may change.
     *
     * @return the raw bytes of the block
     * @throws DamagedException if the block is damaged
     * @throws OutputTooSmallException if the block has more bytes than remain in {@code raw}
     * @throws ReadOnlyBufferException if {@code raw} is read-only
     */
    public int decompress(ByteBuffer packed, ByteBuffer raw) {
        return Native.run(Native.DECOMPRESS, handle, packed, raw);
    }

    /**
     * Decompresses a block of an array into another one, or into another part of it.
     *
     * @return the raw bytes of the block
     * @throws DamagedException if the block is damaged
     * @throws OutputTooSmallException if the block has more bytes than the room
     */
    public int decompress(byte[] packed, int packedStart, int packedLength, byte[] raw, int rawStart, int rawRoom) {
        return Native.run(Native.DECOMPRESS, handle, packed, packedStart, packedLength, raw, rawStart, rawRoom);
    }

    /**
     * Decompresses a block of exactly as many bytes as remain in {@code raw}. Prefer this where the length is known:
     * without a frame, damage can make a block shorter, and only the length reveals that.
     *
     * @throws DamagedException if the block is damaged, or has another length
     */
    public void decompressExact(ByteBuffer packed, ByteBuffer raw) {
        Native.run(Native.DECOMPRESS_EXACT, handle, packed, raw);
    }

    /**
     * Decompresses a block of an array that has exactly {@code rawLength} bytes.
     *
     * @throws DamagedException if the block is damaged, or has another length
     */
    public void decompressExact(byte[] packed, int packedStart, int packedLength, byte[] raw, int rawStart,
            int rawLength) {
        Native.run(Native.DECOMPRESS_EXACT, handle, packed, packedStart, packedLength, raw, rawStart, rawLength);
    }

    /**
     * The most bytes that a block of so many raw bytes takes.
     *
     * @throws IllegalArgumentException if that is more than a buffer can have
     */
    public int maxCompressedLength(int rawLength) {
        if (rawLength < 0) {
            throw new IllegalArgumentException("a length of " + rawLength + " bytes is below 0");
        }
        return Native.bound(Native.COMPRESS, handle, rawLength);
    }

    /** Who does the work: {@code cpu}, {@code software}, {@code hardware}, or {@code modelled}. */
    public String worker() {
        return worker;
    }

    /** The work until now. */
    public Statistics statistics() {
        long codec = handle.acquire();
        try {
            return Statistics.parse(Native.text(Native.codecCounters(codec)));
        } finally {
            handle.release();
        }
    }

    /** Frees the codec once the calls that use it have ended. Closing it again does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
