package io.ziptier.examples.kafka;

import io.ziptier.codec.Codec;
import io.ziptier.codec.DamagedException;
import io.ziptier.codec.Dictionary;
import io.ziptier.codec.InvalidOptionException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.SerializationException;

/**
 * The bytes of compressed values. All integers are big-endian.
 *
 * <table>
 * <caption>A value</caption>
 * <tr><th>offset</th><th>bytes</th><th>meaning</th></tr>
 * <tr><td>0</td><td>1</td><td>0x5A</td></tr>
 * <tr><td>1</td><td>1</td><td>format: a position in {@link #FORMATS}</td></tr>
 * <tr><td>2</td><td>4</td><td>dictionary: the CRC-32 of its stored bytes, or 0 for none</td></tr>
 * <tr><td>6</td><td>4</td><td>length of the raw value</td></tr>
 * <tr><td>10</td><td>4</td><td>CRC-32C of the raw value</td></tr>
 * <tr><td>14</td><td></td><td>the block</td></tr>
 * </table>
 *
 * <p>Any number of threads may use an object.
 */
final class Values implements AutoCloseable {
    /** Position 0 is for values that do not shrink. */
    private static final List<String> FORMATS = List.of("none", "lz4", "zstd", "deflate", "token");
    private static final byte MAGIC = 0x5A;
    private static final int HEADER_BYTES = 14;

    /** What a header says of its block. */
    private static final class Kind {
        final int format;
        final int dictionary;

        Kind(int format, int dictionary) {
            this.format = format;
            this.dictionary = dictionary;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Kind && format == ((Kind) other).format && dictionary == ((Kind) other).dictionary;
        }

        @Override
        public int hashCode() {
            return 31 * dictionary + format;
        }

        @Override
        public String toString() {
            String name = format >= 0 && format < FORMATS.size() ? FORMATS.get(format) : "number " + format;
            return "format " + name + (dictionary == 0 ? "" : String.format(" with dictionary %08x", dictionary));
        }
    }

    private final Map<Kind, Codec> codecs = new HashMap<>();
    /** The kind to write. */
    private final Kind written;

    private Values(Kind written) {
        this.written = written;
    }

    /** Writes one format, with a dictionary unless the file is null. */
    static Values writing(String format, Path dictionary) {
        int number = FORMATS.indexOf(format);
        if (number < 1) {
            throw new ConfigException(ZiptierSerializer.FORMAT, format, "choose among lz4, zstd, deflate, token");
        }
        byte[] stored = dictionary == null ? null : stored(dictionary);
        Values values = new Values(new Kind(number, id(stored)));
        values.codecs.put(values.written, codec(format, stored));
        return values;
    }

    /** Reads all formats without a dictionary, and those of each dictionary. */
    static Values reading(List<Path> dictionaries) {
        Values values = new Values(null);
        for (String format : List.of("lz4", "zstd", "deflate")) {
            values.codecs.put(new Kind(FORMATS.indexOf(format), 0), codec(format, null));
        }
        for (Path file : dictionaries) {
            byte[] stored = stored(file);
            String format = formatOf(stored, file);
            if (values.codecs.put(new Kind(FORMATS.indexOf(format), id(stored)), codec(format, stored)) != null) {
                throw new ConfigException(ZiptierDeserializer.DICTIONARIES, file, "it is there twice: name it once");
            }
        }
        return values;
    }

    private static byte[] stored(Path file) {
        try {
            return Files.readAllBytes(file);
        } catch (IOException failure) {
            throw new ConfigException("cannot read the dictionary " + file + ": " + failure);
        }
    }

    /** A dictionary opens codecs of its own format alone. */
    private static String formatOf(byte[] stored, Path file) {
        for (String format : FORMATS.subList(1, FORMATS.size())) {
            try (Dictionary dictionary = Dictionary.load(stored)) {
                Codec.open(Map.of("format", format), dictionary).close();
                return format;
            } catch (InvalidOptionException ofAnotherFormat) {
                continue;
            } catch (DamagedException damaged) {
                throw new ConfigException(file + " is no dictionary: " + damaged.getMessage());
            }
        }
        throw new ConfigException(file + " is a dictionary of a format that this program does not know");
    }

    private static Codec codec(String format, byte[] stored) {
        if (stored == null) {
            return Codec.open(Map.of("format", format));
        }
        try (Dictionary dictionary = Dictionary.load(stored)) {
            return Codec.open(Map.of("format", format), dictionary);
        }
    }

    private static int id(byte[] stored) {
        if (stored == null) {
            return 0;
        }
        CRC32 id = new CRC32();
        id.update(stored);
        return (int) id.getValue();
    }

    byte[] pack(byte[] raw) {
        Codec codec = codecs.get(written);
        byte[] packed = new byte[HEADER_BYTES + codec.maxCompressedLength(raw.length)];
        int length = codec.compress(raw, 0, raw.length, packed, HEADER_BYTES, packed.length - HEADER_BYTES);
        Kind kind = written;
        if (length >= raw.length) {
            kind = new Kind(0, 0);
            length = raw.length;
            packed = Arrays.copyOf(packed, HEADER_BYTES + length);
            System.arraycopy(raw, 0, packed, HEADER_BYTES, length);
        }
        ByteBuffer.wrap(packed).put(MAGIC).put((byte) kind.format).putInt(kind.dictionary)
            .putInt(raw.length).putInt(checksum(raw));
        return Arrays.copyOf(packed, HEADER_BYTES + length);
    }

    /**
     * The raw value of at most so many bytes.
     *
     * @throws SerializationException if the bytes are damaged or foreign, or their dictionary is unknown
     */
    byte[] unpack(byte[] stored, int bytesMax) {
        if (stored.length < HEADER_BYTES || stored[0] != MAGIC) {
            throw new SerializationException("its " + stored.length + " bytes have no header of ziptier: "
                + "read the topic with the deserializer of its producer");
        }
        ByteBuffer header = ByteBuffer.wrap(stored);
        Kind kind = new Kind(header.get(1), header.getInt(2));
        int length = header.getInt(6), blockBytes = stored.length - HEADER_BYTES;
        if (length < 0 || length > bytesMax) {
            throw new SerializationException("it states a length of " + length + " bytes, and " + bytesMax
                + " are allowed: raise " + ZiptierDeserializer.VALUE_BYTES_MAX + ", or the value is damaged");
        }
        byte[] raw = unpack(kind, stored, blockBytes, length);
        if (checksum(raw) != header.getInt(10)) {
            throw new SerializationException("it is damaged: its checksum does not fit to its " + length + " bytes");
        }
        return raw;
    }

    private byte[] unpack(Kind kind, byte[] stored, int blockBytes, int length) {
        if (kind.equals(new Kind(0, 0))) {
            if (blockBytes != length) {
                throw new SerializationException("it is damaged: it states a length of " + length + " bytes, and has "
                    + blockBytes);
            }
            return Arrays.copyOfRange(stored, HEADER_BYTES, stored.length);
        }
        Codec codec = codecs.get(kind);
        if (codec == null) {
            throw new SerializationException("it has " + kind + ", and this program has " + codecs.keySet()
                + ": name the file of its dictionary in " + ZiptierDeserializer.DICTIONARIES);
        }
        byte[] raw = new byte[length];
        try {
            codec.decompressExact(stored, HEADER_BYTES, blockBytes, raw, 0, length);
        } catch (DamagedException damaged) {
            throw new SerializationException("it is damaged: " + damaged.getMessage(), damaged);
        }
        return raw;
    }

    private static int checksum(byte[] raw) {
        CRC32C checksum = new CRC32C();
        checksum.update(raw);
        return (int) checksum.getValue();
    }

    @Override
    public void close() {
        codecs.values().forEach(Codec::close);
    }
}
