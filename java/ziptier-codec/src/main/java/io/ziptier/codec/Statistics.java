package io.ziptier.codec;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** The work of a codec until now, of all threads. */
public final class Statistics {
    private final String format;
    private final String engine;
    private final String worker;
    private final Map<String, Long> counters;

    private Statistics(String format, String engine, String worker, Map<String, Long> counters) {
        this.format = format;
        this.engine = engine;
        this.worker = worker;
        this.counters = Collections.unmodifiableMap(counters);
    }

    /** Reads lines of a name and a value. */
    static Statistics parse(String text) {
        Map<String, String> words = new LinkedHashMap<>();
        for (String line : text.split("\n")) {
            String[] parts = line.split(" ", 2);
            words.put(parts[0], parts[1]);
        }
        String format = words.remove("format"), engine = words.remove("engine"), worker = words.remove("worker");
        Map<String, Long> counters = new LinkedHashMap<>();
        words.forEach((name, value) -> counters.put(name, Long.parseLong(value)));
        return new Statistics(format, engine, worker, counters);
    }

    /** The format of the blocks, such as {@code deflate}. */
    public String format() {
        return format;
    }

    /** The engine of the codec, such as {@code software} or {@code iaa}. */
    public String engine() {
        return engine;
    }

    /** Who does the work: {@code cpu}, {@code software}, {@code hardware}, or {@code modelled}. */
    public String worker() {
        return worker;
    }

    /** Calls, bytes, nanoseconds and failures by their names. Later versions may add names. */
    public Map<String, Long> counters() {
        return counters;
    }

    /** Blocks that a device should have done, and the CPU did. */
    public long fallbacks() {
        return counters.getOrDefault("fallbacks", 0L);
    }

    @Override
    public String toString() {
        return format + " by " + engine + " (" + worker + "): " + counters;
    }
}
