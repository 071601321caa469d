import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.ConfigOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.TableProperties;
import org.rocksdb.WriteOptions;

/**
 * Turns ziptier's compression, log and block cache on for a database of the stock rocksdbjni, which has classes for
 * none of them: {@code java -cp rocksdbjni.jar:. Compression libziptier_rocksdb.so DIR CACHE_DIR}.
 */
public final class Compression {
  private static final int RECORDS = 50_000;

  private Compression() {}

  public static void main(String[] arguments) throws RocksDBException, IOException {
    RocksDB.loadLibrary();
    System.load(arguments[0]);

    Properties properties = new Properties();
    properties.setProperty("compression_manager", "{id=ziptier;format=token}");
    properties.setProperty("compression", "kCustomCompression80");
    properties.setProperty(
        "block_based_table_factory",
        "{block_cache={id=ziptier://;memory=256K;path=" + arguments[2] + ";capacity=64M;admission=all}}");
    // What other methods set comes before: a table configuration that is set later takes the cache away.
    Properties ofDatabase = new Properties();
    ofDatabase.setProperty("create_if_missing", "true");
    ofDatabase.setProperty("env", "ziptier");
    try (ConfigOptions config = new ConfigOptions().setIgnoreUnknownOptions(false);
        ColumnFamilyOptions family = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(config, properties);
        DBOptions database = DBOptions.getDBOptionsFromProps(config, ofDatabase);
        WriteOptions durable = new WriteOptions().setSync(true);
        Options options = new Options(database, family)) {
      try (RocksDB db = RocksDB.open(options, arguments[1])) {
        for (int i = 0; i < RECORDS; i++) {
          db.put(key(i), value(i));
        }
        db.compactRange();
        // The log's file gets room once records are synced one by one.
        for (int i = 0; i < 20; i++) {
          db.put(durable, key(i), value(i));
        }
        System.out.println("log " + bytes(Path.of(arguments[1]), ".log"));
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
    System.out.println("cache " + bytes(Path.of(arguments[2]), ""));
  }

  /** The bytes of a folder's files whose names end so. */
  private static long bytes(Path folder, String end) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      return files
          .filter(file -> Files.isRegularFile(file) && file.toString().endsWith(end))
          .mapToLong(file -> file.toFile().length())
          .sum();
    }
  }

  private static byte[] key(int i) {
    return String.format("key:%012d", i).getBytes();
  }

  private static byte[] value(int i) {
    return ("{\"user\":" + i * 7919L % 100003 + ",\"state\":\"" + (i % 3 == 0 ? "suspended" : "active") + "\"}")
        .getBytes();
  }
}
