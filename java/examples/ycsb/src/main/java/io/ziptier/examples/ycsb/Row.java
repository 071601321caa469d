package io.ziptier.examples.ycsb;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/** A record of YCSB as one value: for each field the length of its name, the name, the length of its value, that. */
final class Row {
    private Row() {
    }

    static byte[] pack(Map<String, byte[]> fields) {
        int bytes = 0;
        for (Map.Entry<String, byte[]> field : fields.entrySet()) {
            int nameBytes = field.getKey().getBytes(StandardCharsets.UTF_8).length;
            bytes += 2 * Integer.BYTES + nameBytes + field.getValue().length;
        }
        ByteBuffer packed = ByteBuffer.allocate(bytes);
        for (Map.Entry<String, byte[]> field : fields.entrySet()) {
            byte[] name = field.getKey().getBytes(StandardCharsets.UTF_8);
            packed.putInt(name.length).put(name).putInt(field.getValue().length).put(field.getValue());
        }
        return packed.array();
    }

    /** Adds the wanted fields of a record to {@code fields}; all of them if {@code wanted} is null. */
    static void unpack(byte[] packed, Set<String> wanted, Map<String, ByteIterator> fields) {
        ByteBuffer rest = ByteBuffer.wrap(packed);
        while (rest.hasRemaining()) {
            String name = new String(next(rest), StandardCharsets.UTF_8);
            byte[] value = next(rest);
            if (wanted == null || wanted.contains(name)) {
                fields.put(name, new ByteArrayByteIterator(value));
            }
        }
    }

    private static byte[] next(ByteBuffer rest) {
        byte[] bytes = new byte[rest.getInt()];
        rest.get(bytes);
        return bytes;
    }
}
