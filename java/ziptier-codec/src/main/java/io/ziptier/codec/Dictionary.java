package io.ziptier.codec;

import java.util.List;
import java.util.Objects;

/** Bytes that blocks of one format share. A block can only be read with the dictionary that it was made with. */
public final class Dictionary implements AutoCloseable {
    private final Handle handle;

    private Dictionary(long opened) {
        handle = new Handle("dictionary", opened, Native::dictionaryFree);
    }

    /**
     * Trains a dictionary. The samples should look like the blocks to come, and have 20 to 100 times {@code maxBytes}
     * together.
     *
     * @param format {@code token}, {@code lz4}, {@code zstd} or {@code deflate}
     * @param maxBytes the most bytes of the dictionary's contents
     * @param generation the caller's number for the dictionary
     * @throws IllegalArgumentException if the format has no dictionaries, or the samples have nothing in common
     */
    public static Dictionary train(String format, List<byte[]> samples, int maxBytes, int generation) {
        NativeLibrary.load();
        if (maxBytes < 0) {
            throw new IllegalArgumentException("maxBytes is " + maxBytes + ", which is below 0");
        }
        Native.Samples all = new Native.Samples(samples);
        return new Dictionary(
            Native.dictionaryTrain(Native.bytes(format), all.bytes, all.ends, maxBytes, generation));
    }

    /**
     * Loads a dictionary from the bytes that {@link #store} gave. Any bytes may be passed.
     *
     * @throws DamagedException if the bytes are no dictionary
     */
    public static Dictionary load(byte[] stored) {
        Objects.requireNonNull(stored, "stored");
        NativeLibrary.load();
        return new Dictionary(Native.dictionaryLoad(stored));
    }

    /** The dictionary as bytes with a checksum. */
    public byte[] store() {
        long dictionary = handle.acquire();
        try {
            return Native.dictionaryStore(dictionary);
        } finally {
            handle.release();
        }
    }

    Handle handle() {
        return handle;
    }

    /** Frees the caller's share. Codecs that use the dictionary keep theirs. Closing it again does nothing. */
    @Override
    public void close() {
        handle.close();
    }
}
