import java.util.Map;
import java.util.Properties;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.ConfigOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.TableProperties;

/**
 * Turns ziptier's compression on for a database of the stock rocksdbjni: {@code java -cp rocksdbjni.jar:. Compression
 * libziptier_rocksdb.so DIR}.
 */
public final class Compression {
  private static final int RECORDS = 50_000;

  private Compression() {}

  public static void main(String[] arguments) throws RocksDBException {
    RocksDB.loadLibrary();
    System.load(arguments[0]);

    Properties properties = new Properties();
    properties.setProperty("compression_manager", "{id=ziptier;format=token}");
    properties.setProperty("compression", "kCustomCompression80");
    try (ConfigOptions config = new ConfigOptions().setIgnoreUnknownOptions(false);
        ColumnFamilyOptions family = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(config, properties);
        DBOptions database = new DBOptions().setCreateIfMissing(true);
        Options options = new Options(database, family)) {
      try (RocksDB db = RocksDB.open(options, arguments[1])) {
        for (int i = 0; i < RECORDS; i++) {
          db.put(key(i), value(i));
        }
        db.compactRange();
      }
      try (RocksDB db = RocksDB.open(options, arguments[1])) {
        for (int i = 0; i < RECORDS; i++) {
          if (!java.util.Arrays.equals(db.get(key(i)), value(i))) {
            throw new IllegalStateException("record " + i + " has another value");
          }
        }
        for (Map.Entry<String, TableProperties> file : db.getPropertiesOfAllTables().entrySet()) {
          System.out.println(file.getValue().getCompressionName() + " " + file.getValue().getDataSize());
        }
      }
    }
  }

  private static byte[] key(int i) {
    return String.format("key:%012d", i).getBytes();
  }

  private static byte[] value(int i) {
    return ("{\"user\":" + i * 7919L % 100003 + ",\"state\":\"" + (i % 3 == 0 ? "suspended" : "active") + "\"}").getBytes();
  }
}
