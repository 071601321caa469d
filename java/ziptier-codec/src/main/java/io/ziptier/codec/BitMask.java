package io.ziptier.codec;

import java.nio.ByteBuffer;

/** Bits, of which the first one is the lowest bit of the first byte, unless the mask is {@link #bigEndian}. */
public final class BitMask {
    final ByteBuffer bytes;
    final int count;
    final int flags;

    private BitMask(ByteBuffer bytes, int count, int flags) {
        this.bytes = bytes;
        this.count = count;
        this.flags = flags;
    }

    /**
     * The bits in the bytes that remain of a buffer now. The bytes are not copied, as those of a {@link Column}.
     *
     * @throws IllegalArgumentException if the count is below 0
     */
    public static BitMask of(ByteBuffer bytes, int count) {
        if (count < 0) {
            throw new IllegalArgumentException("a mask of " + count + " bits: give 0 and more");
        }
        return new BitMask(bytes.duplicate(), count, 0);
    }

    /** The same, of which the first bit is the highest bit of the first byte. */
    public BitMask bigEndian() {
        return new BitMask(bytes, count, Analytics.MASK_BIG_ENDIAN);
    }
}
