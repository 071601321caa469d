package io.ziptier.codec;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;

/**
 * Compresses single values by tokens of a trained dictionary. Each value is read without its neighbours.
 *
 * <p>Buffers behave as those of {@link Codec}. Values that repeat nothing grow, to twice their length and two bytes at
 * most: compare the lengths, and keep such a value as it is.
 */
public final class Tokens implements AutoCloseable {
    private final Handle handle;

    private Tokens(long opened) {
        handle = new Handle("tokens", opened, Native::tokensFree);
    }

    /**
     * Trains tokens on samples, which should look like the values to come. 1 to 4 MB of them are plenty.
     *
     * @param bits bits of a token, 10 to 16; 12 is usual for small values
     * @param generation the caller's number for the tokens
     * @throws IllegalArgumentException if the bits are out of range, or the samples are too few
     */
    public static Tokens train(List<byte[]> samples, int bits, int generation) {
        NativeLibrary.load();
        Native.Samples all = new Native.Samples(samples);
        return new Tokens(Native.tokensTrain(all.bytes, all.ends, bits, generation));
    }

    /**
     * Loads tokens from the bytes that {@link #store} gave. Any bytes may be passed.
     *
     * @throws DamagedException if the bytes are no tokens
     */
    public static Tokens load(byte[] stored) {
        Objects.requireNonNull(stored, "stored");
        NativeLibrary.load();
        return new Tokens(Native.tokensLoad(stored));
    }

    /** The tokens as bytes with a checksum. */
    public byte[] store() {
        long tokens = handle.acquire();
        try {
            return Native.tokensStore(tokens);
        } finally {
            handle.release();
        }
    }

    /**
     * Encodes the value that remains of {@code value}.
     *
     * @return the bytes of the coded value
     * @throws OutputTooSmallException if the coded value has no room; it says how much is needed
     */
    public int encode(ByteBuffer value, ByteBuffer coded) {
        return Native.run(Native.ENCODE, handle, value, coded);
    }

    /** Encodes a value of an array, as {@link #encode(ByteBuffer, ByteBuffer)} does. */
    public int encode(byte[] value, int valueStart, int valueLength, byte[] coded, int codedStart, int codedRoom) {
        return Native.run(Native.ENCODE, handle, value, valueStart, valueLength, coded, codedStart, codedRoom);
    }

    /**
     * Decodes the coded value that remains of {@code coded}. It is fastest with room for 16 bytes for each token. The
     * bytes of {@code value} up to its limit may change.
     *
     * @return the bytes of the value
     * @throws DamagedException if the coded value is damaged
     * @throws OutputTooSmallException if the value has no room; it says how much is needed
     */
    public int decode(ByteBuffer coded, ByteBuffer value) {
        return Native.run(Native.DECODE, handle, coded, value);
    }

    /** Decodes a coded value of an array, as {@link #decode(ByteBuffer, ByteBuffer)} does. */
    public int decode(byte[] coded, int codedStart, int codedLength, byte[] value, int valueStart, int valueRoom) {
        return Native.run(Native.DECODE, handle, coded, codedStart, codedLength, value, valueStart, valueRoom);
    }

    /**
     * Encodes several values that lie one behind the other in {@code values}, without gaps. A group is several times
     * faster than single calls.
     *
     * @param ends where each value ends, counted from the position of {@code values}; the last one is what remains
     * @param codedEnds gets where each coded value ends, counted from the position of {@code coded}
     * @return the bytes of all coded values
     * @throws OutputTooSmallException if the coded values have no room; it says how much is needed
     */
    public int encodeGroup(ByteBuffer values, int[] ends, ByteBuffer coded, int[] codedEnds) {
        return Native.runGroup(Native.ENCODE, handle, values, ends, coded, codedEnds);
    }

    /**
     * Decodes what {@link #encodeGroup} gave.
     *
     * @throws DamagedException if a coded value is damaged
     * @throws OutputTooSmallException if the values have no room; it says how much is needed
     */
    public int decodeGroup(ByteBuffer coded, int[] codedEnds, ByteBuffer values, int[] ends) {
        return Native.runGroup(Native.DECODE, handle, coded, codedEnds, values, ends);
    }

    /** The most bytes that a value of so many bytes takes when it is coded. */
    public int maxEncodedLength(int valueLength) {
        if (valueLength < 0) {
            throw new IllegalArgumentException("a length of " + valueLength + " bytes is below 0");
        }
        return Native.bound(Native.ENCODE, handle, valueLength);
    }

    /** Frees the tokens once the calls that use them have ended. Closing them again does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
