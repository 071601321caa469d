package io.ziptier.examples.kafka;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
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

    private static final ConfigDef CONFIG = new ConfigDef()
        .define(DICTIONARIES, Type.LIST, List.of(), Importance.HIGH, "the files of all dictionaries in use")
        .define(VALUE_BYTES_MAX, Type.INT, 64 << 20, Range.atLeast(0), Importance.LOW, "the longest value to accept");

    private Values values;
    private int valueBytesMax;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
        AbstractConfig config = new AbstractConfig(CONFIG, configs, false);
        valueBytesMax = config.getInt(VALUE_BYTES_MAX);
        values = Values.reading(config.getList(DICTIONARIES).stream().map(Path::of).collect(Collectors.toList()));
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
