package io.ziptier.examples.kafka;

import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Compresses the values of a producer. {@link Values} has the bytes.
 *
 * <table>
 * <caption>Configuration</caption>
 * <tr><td>{@code ziptier.format}</td><td>zstd (default), lz4, deflate, or token with a dictionary</td></tr>
 * <tr><td>{@code ziptier.dictionary}</td><td>the file of a dictionary, or none; every consumer needs the file</td></tr>
 * </table>
 *
 * <p>Leave the producer's {@code compression.type} at none: it would compress the values again.
 */
public final class ZiptierSerializer implements Serializer<byte[]> {
    static final String FORMAT = "ziptier.format", DICTIONARY = "ziptier.dictionary";

    private Values values;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
        if (isKey) {
            throw new ConfigException("ZiptierSerializer compresses values, and is set for keys: "
                + "equal keys would lie in different partitions after a change of the dictionary");
        }
        Object format = configs.get(FORMAT), dictionary = configs.get(DICTIONARY);
        values = Values.writing(format == null ? "zstd" : format.toString(),
            dictionary == null ? null : Path.of(dictionary.toString()));
    }

    @Override
    public byte[] serialize(String topic, byte[] value) {
        return value == null ? null : values.pack(value);
    }

    @Override
    public void close() {
        if (values != null) {
            values.close();
        }
    }
}
