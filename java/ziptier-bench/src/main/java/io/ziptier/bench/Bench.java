package io.ziptier.bench;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.openjdk.jmh.infra.BenchmarkParams;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.util.Statistics;

/** Runs all benchmarks, with the options of JMH's own command line, and prints a row for each library and size. */
public final class Bench {
    private static final String BASE = "zstd-jni";

    private Bench() {
    }

    /** Runs the benchmarks. */
    public static void main(String[] arguments) throws Exception {
        Map<String, Statistics> results = new HashMap<>();
        Map<String, BenchmarkParams> rows = new LinkedHashMap<>();
        for (RunResult run : new Runner(new OptionsBuilder().parent(new CommandLineOptions(arguments)).build()).run()) {
            BenchmarkParams params = run.getParams();
            String name = params.getBenchmark();
            String row = params.getParam("bytes") + " " + params.getParam("coder");
            results.put(name.substring(name.lastIndexOf('.') + 1) + " " + row, run.getPrimaryResult().getStatistics());
            rows.put(row, params);
        }
        System.out.println("bytes\tlibrary\tsize\tcompress_ns\tmedian\tover_zstd\tdecompress_ns\tmedian\tover_zstd");
        for (Map.Entry<String, BenchmarkParams> row : rows.entrySet()) {
            String bytes = row.getValue().getParam("bytes"), coder = row.getValue().getParam("coder");
            if (bytes == null) {
                System.out.println("0\tziptier none\t\t" + cell(results.get("call " + row.getKey()), null));
                continue;
            }
            String base = bytes + " " + BASE;
            System.out.printf(Locale.ROOT, "%s\t%s\t%.3f\t%s\t%s%n", bytes, coder,
                BlockBenchmark.ratio(Integer.parseInt(bytes), coder),
                cell(results.get("compress " + row.getKey()), results.get("compress " + base)),
                cell(results.get("decompress " + row.getKey()), results.get("decompress " + base)));
        }
    }

    /** The fastest iteration in nanoseconds, the median, and the fastest one over that of the base. */
    private static String cell(Statistics call, Statistics base) {
        if (call == null) {
            return "\t\t";
        }
        String figures = String.format(Locale.ROOT, "%.0f\t%.0f\t", call.getMin(), call.getPercentile(50));
        return base == null ? figures : figures + String.format(Locale.ROOT, "%.2f", call.getMin() / base.getMin());
    }
}
