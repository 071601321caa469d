package io.ziptier.examples.ycsb;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * A binding of YCSB that stores a record as one value, by {@code GET}, {@code SET}, {@code DEL} and {@code ZT.RANGE}.
 * YCSB's own binding for Redis stores hashes. The properties {@code ziptier.host} and {@code ziptier.port} name the
 * server. With {@code ziptier.database} the client uses the database of that name, which is open.
 *
 * <p>An update of some fields reads the record and writes it anew, as in YCSB's binding for RocksDB. Of two such
 * updates of a record at the same time, one may be lost.
 */
public final class ZiptierClient extends DB {
    private static final byte[] GET = bytes("GET"), SET = bytes("SET"), DEL = bytes("DEL"), LIMIT = bytes("LIMIT");
    private static final byte[] RANGE = bytes("ZT.RANGE"), USE = bytes("ZT.DB.USE");

    private Connection connection;

    @Override
    public void init() throws DBException {
        String host = getProperties().getProperty("ziptier.host", "127.0.0.1");
        String port = getProperties().getProperty("ziptier.port", "6379");
        String database = getProperties().getProperty("ziptier.database");
        try {
            connection = new Connection(host, Integer.parseInt(port));
            if (database != null) {
                connection.ask(USE, bytes(database));
            }
        } catch (IOException failure) {
            throw new DBException(
                "cannot use the server at " + host + ":" + port + ": " + failure.getMessage(), failure);
        }
    }

    @Override
    public void cleanup() throws DBException {
        try {
            connection.close();
        } catch (IOException failure) {
            throw new DBException(failure);
        }
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        return answer(() -> {
            byte[] value = (byte[]) connection.ask(GET, keyOf(table, key));
            if (value == null) {
                return Status.NOT_FOUND;
            }
            Row.unpack(value, fields, result);
            return Status.OK;
        });
    }

    @Override
    public Status scan(String table, String startKey, int count, Set<String> fields,
                       Vector<HashMap<String, ByteIterator>> result) {
        return answer(() -> {
            // A semicolon follows the colon, so that the range ends with the keys of the table.
            Object reply = connection.ask(RANGE, bytes("[" + table + ":" + startKey), bytes("(" + table + ";"),
                LIMIT, bytes(Integer.toString(count)));
            List<?> words = (List<?>) reply;
            for (int index = 1; index < words.size(); index += 2) {
                HashMap<String, ByteIterator> record = new HashMap<>();
                Row.unpack((byte[]) words.get(index), fields, record);
                result.add(record);
            }
            return words.isEmpty() ? Status.NOT_FOUND : Status.OK;
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        return answer(() -> {
            byte[] before = (byte[]) connection.ask(GET, keyOf(table, key));
            if (before == null) {
                return Status.NOT_FOUND;
            }
            Map<String, ByteIterator> fields = new HashMap<>();
            Row.unpack(before, null, fields);
            fields.putAll(values);
            return store(table, key, fields);
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return answer(() -> store(table, key, values));
    }

    @Override
    public Status delete(String table, String key) {
        return answer(() -> (Long) connection.ask(DEL, keyOf(table, key)) == 1 ? Status.OK : Status.NOT_FOUND);
    }

    private Status store(String table, String key, Map<String, ByteIterator> values) throws IOException {
        Map<String, byte[]> fields = new HashMap<>();
        values.forEach((name, value) -> fields.put(name, value.toArray()));
        connection.ask(SET, keyOf(table, key), Row.pack(fields));
        return Status.OK;
    }

    private interface Request {
        Status run() throws IOException;
    }

    private static Status answer(Request request) {
        try {
            return request.run();
        } catch (IOException failure) {
            return new Status("ERROR", failure.getMessage());
        }
    }

    private static byte[] keyOf(String table, String key) {
        return bytes(table + ":" + key);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
