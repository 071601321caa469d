package io.ziptier.examples.kafka;

import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * Decompresses the values that {@link ZiptierSerializer} wrote, in any of its formats.
 *
 * <table>
 * <caption>Configuration</caption>
 * <tr><td>{@code ziptier.dictionaries}</td><td>the files of all dictionaries in use, with commas between</td></tr>
 * <tr><td>{@code ziptier.value.bytes.max}</td><td>the longest value to accept, 64 MiB unless set</td></tr>
 * </table>
 */
public final class ZiptierDeserializer implements Deserializer<byte[]> {
    static final String DICTIONARIES = "ziptier.dictionaries", VALUE_BYTES_MAX = "ziptier.value.bytes.max";

    private Values values;
    private int valueBytesMax = 64 << 20;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
        Object max = configs.get(VALUE_BYTES_MAX);
        if (max != null) {
            valueBytesMax = Integer.parseInt(max.toString());
        }
        Object files = configs.get(DICTIONARIES);
        values = Values.reading(Stream.of(files == null ? new String[0] : files.toString().split(","))
            .map(String::strip).map(Path::of).collect(Collectors.toList()));
    }

    /**
     * The raw value.
     *
     * @throws SerializationException if the bytes are damaged or foreign, or their dictionary is unknown
     */
    @Override
    public byte[] deserialize(String topic, byte[] stored) {
        try {
            return stored == null ? null : values.unpack(stored, valueBytesMax);
        } catch (SerializationException refusal) {
            throw new SerializationException("cannot read a value of topic " + topic + ": " + refusal.getMessage(),
                refusal);
        }
    }

    @Override
    public void close() {
        if (values != null) {
            values.close();
        }
    }
}
