// Draws keys with the generators of YCSB 0.17.0, and prints how often each came: `Histograms KEYS DRAWS`. A line has
// the name of a distribution and KEYS counts, of keys or of distances from the newest key. The last count includes all
// greater distances.

import java.lang.reflect.Field;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;
import site.ycsb.generator.AcknowledgedCounterGenerator;
import site.ycsb.generator.CounterGenerator;
import site.ycsb.generator.ExponentialGenerator;
import site.ycsb.generator.HotspotIntegerGenerator;
import site.ycsb.generator.NumberGenerator;
import site.ycsb.generator.ScrambledZipfianGenerator;
import site.ycsb.generator.SkewedLatestGenerator;
import site.ycsb.generator.UniformLongGenerator;
import site.ycsb.generator.ZipfianGenerator;

public final class Histograms {
  private static final int DRAWS_PER_INSERT = 20;

  private final int keys;
  private final long draws;

  private Histograms(int keys, long draws) {
    this.keys = keys;
    this.draws = draws;
  }

  public static void main(String[] arguments) throws ReflectiveOperationException {
    Histograms all = new Histograms(Integer.parseInt(arguments[0]), Long.parseLong(arguments[1]));
    seed(1);
    all.print("uniform", drawing(new UniformLongGenerator(0, all.keys - 1)));
    all.print("zipfian", drawing(new ZipfianGenerator(0, all.keys - 1)));
    all.print("scrambled", all.scrambled(0));
    all.print("scrambled-inserting", all.scrambled(all.keys / 2));
    all.print("hotspot", drawing(new HotspotIntegerGenerator(0, all.keys - 1, 0.2, 0.8)));
    all.print("latest", drawing(new SkewedLatestGenerator(new CounterGenerator(all.keys))));
    all.print("latest-inserting", all.latestInserting());
    all.print("exponential", all.exponential());
  }

  /** YCSB draws from the generator of the thread, whose seed has no setter. */
  private static void seed(long seed) throws ReflectiveOperationException {
    ThreadLocalRandom.current();
    Field field = Thread.class.getDeclaredField("threadLocalRandomSeed");
    field.setAccessible(true);
    field.setLong(Thread.currentThread(), seed);
  }

  private static LongSupplier drawing(NumberGenerator generator) {
    return () -> generator.nextValue().longValue();
  }

  /** The loop of CoreWorkload: keys that do not exist are drawn again. */
  private LongSupplier scrambled(int expectedNewKeys) {
    ScrambledZipfianGenerator generator = new ScrambledZipfianGenerator(0, keys + expectedNewKeys);
    return () -> {
      long key;
      do {
        key = generator.nextValue();
      } while (key > keys - 1);
      return key;
    };
  }

  private LongSupplier latestInserting() {
    AcknowledgedCounterGenerator inserts = new AcknowledgedCounterGenerator(keys);
    SkewedLatestGenerator generator = new SkewedLatestGenerator(inserts);
    long[] drawn = {0};
    return () -> {
      if (drawn[0]++ % DRAWS_PER_INSERT == 0 && inserts.lastValue() < keys + keys / 10) {
        inserts.acknowledge(inserts.nextValue());
      }
      return inserts.lastValue() - generator.nextValue();
    };
  }

  private LongSupplier exponential() {
    ExponentialGenerator generator = new ExponentialGenerator(95, keys * 0.8571428571);
    return () -> {
      long key;
      do {
        key = keys - 1 - generator.nextValue().intValue();
      } while (key < 0);
      return key;
    };
  }

  private void print(String name, LongSupplier generator) {
    long[] counts = new long[keys];
    for (long drawn = 0; drawn < draws; drawn++) {
      counts[(int) Math.min(generator.getAsLong(), keys - 1)]++;
    }
    StringBuilder line = new StringBuilder(name);
    for (long count : counts) {
      line.append('\t').append(count);
    }
    System.out.println(line);
  }
}
