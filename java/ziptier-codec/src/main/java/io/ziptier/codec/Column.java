package io.ziptier.codec;

import java.nio.ByteBuffer;

/**
 * Unsigned integers of 1 to 32 bits each, packed without gaps. The first one lies in the low bits of the first byte,
 * and integers of whole bytes are little-endian, unless the column is {@link #bigEndian}.
 */
public final class Column {
    final ByteBuffer bytes;
    final int width;
    final int count;
    final int flags;

    private Column(ByteBuffer bytes, int width, int count, int flags) {
        this.bytes = bytes;
        this.width = width;
        this.count = count;
        this.flags = flags;
    }

    /**
     * The column in the bytes that remain of a buffer now. The bytes are not copied: they must stay until the last job
     * on the column has run. For part of an array there is {@link ByteBuffer#wrap(byte[], int, int)}.
     *
     * @param width bits of an element
     * @param count elements of the column
     * @throws IllegalArgumentException if the width is not 1 to 32, or the count is below 0
     */
    public static Column of(ByteBuffer bytes, int width, int count) {
        if (width < 1 || width > 32 || count < 0) {
            throw new IllegalArgumentException(
                "a column of " + count + " elements of " + width + " bits: give 0 and more of 1 to 32 bits");
        }
        return new Column(bytes.duplicate(), width, count, 0);
    }

    /** The same, whose bytes are one raw DEFLATE stream with a window of at most 4 KiB. */
    public Column deflated() {
        return new Column(bytes, width, count, flags | Analytics.DEFLATED);
    }

    /** The same, whose elements fill each byte from its high bit; integers of whole bytes are big-endian. */
    public Column bigEndian() {
        return new Column(bytes, width, count, flags | Analytics.BIG_ENDIAN);
    }
}
