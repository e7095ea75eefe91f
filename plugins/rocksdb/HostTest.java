// A program in Java over tiers: the environment is a property of its options.
//
//   java -cp rocksdbjni.jar HostTest.java DIR write URI    writes, compacts and reads records
//   java -cp rocksdbjni.jar HostTest.java DIR read         reads them, without tiers
//
// Exit status 0 when all passed. `cargo xtask plugins test` runs it.
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.CompressionType;
import org.rocksdb.DBOptions;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;

public final class HostTest {
  private static final int RECORDS = 20000;

  public static void main(String[] arguments) throws RocksDBException {
    String directory = arguments[0];
    boolean writes = arguments[1].equals("write");
    try (Options options = writes ? over(arguments[2]) : new Options();
        RocksDB db = RocksDB.open(options, directory)) {
      if (writes) {
        fill(db);
      }
      expect(db);
    }
    System.out.println("HostTest: " + RECORDS + " records");
  }

  private static Options over(String uri) {
    RocksDB.loadLibrary();
    Properties properties = new Properties();
    properties.setProperty("env", uri);
    DBOptions database = DBOptions.getDBOptionsFromProps(properties);
    if (database == null) {
      throw new IllegalArgumentException("the environment " + uri + " was refused");
    }
    ColumnFamilyOptions small =
        new ColumnFamilyOptions()
            .setWriteBufferSize(1 << 20)
            .setTargetFileSizeBase(1 << 20)
            .setMaxBytesForLevelBase(4 << 20)
            .setMaxBytesForLevelMultiplier(4)
            .setCompressionType(CompressionType.NO_COMPRESSION);
    return new Options(database.setCreateIfMissing(true), small);
  }

  private static void fill(RocksDB db) throws RocksDBException {
    for (int round = 0; round < 2; round++) {
      for (int at = 0; at < RECORDS; at++) {
        int number = (int) ((long) at * 7919 % RECORDS);
        db.put(key(number), value(number));
      }
    }
    try (FlushOptions waits = new FlushOptions()) {
      db.flush(waits);
    }
  }

  private static void expect(RocksDB db) throws RocksDBException {
    for (int number = 0; number < RECORDS; number++) {
      if (!Arrays.equals(db.get(key(number)), value(number))) {
        throw new IllegalStateException("record " + number);
      }
    }
  }

  private static byte[] key(int number) {
    return String.format("%08d", number).getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] value(int number) {
    return ("value of " + number + " ").repeat(30).getBytes(StandardCharsets.UTF_8);
  }
}
