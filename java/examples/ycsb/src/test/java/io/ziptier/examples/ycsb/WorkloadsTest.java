package io.ziptier.examples.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** YCSB's own client loads and drives a server. It verifies each value that it reads by {@code dataintegrity=true}. */
class WorkloadsTest {
    private static final int RECORDS = 5_000, OPERATIONS = 20_000;
    private static final Pattern RETURN = Pattern.compile("\\[(\\w+)\\], Return=(\\S+), (\\d+)");

    @TempDir
    Path dir;

    @ParameterizedTest
    @ValueSource(strings = {"store", "rocksdb"})
    void readsReturnWhatWasWritten(String backend) throws Exception {
        try (Server server = Server.start(backend, dir)) {
            assertEquals(Map.of("INSERT OK", RECORDS), ycsb(server, "-load"));

            Map<String, Integer> a =
                ycsb(server, "-t", "-p", "readproportion=0.5", "-p", "updateproportion=0.5");
            assertEquals(List.of("READ OK", "UPDATE OK", "VERIFY OK"), List.copyOf(a.keySet()), a::toString);
            assertEquals(OPERATIONS, a.get("READ OK") + a.get("UPDATE OK"));
            assertEquals(a.get("READ OK"), a.get("VERIFY OK"));

            Map<String, Integer> e = ycsb(server, "-t", "-p", "readproportion=0", "-p", "updateproportion=0",
                "-p", "scanproportion=0.95", "-p", "insertproportion=0.05", "-p", "maxscanlength=100");
            assertEquals(List.of("INSERT OK", "SCAN OK"), List.copyOf(e.keySet()), e::toString);
            assertEquals(OPERATIONS, e.get("INSERT OK") + e.get("SCAN OK"));
        }
        // What was written is there after a stop.
        try (Server server = Server.start(backend, dir)) {
            Map<String, Integer> c = ycsb(server, "-t", "-p", "readproportion=1", "-p", "updateproportion=0");
            assertEquals(Map.of("READ OK", OPERATIONS, "VERIFY OK", OPERATIONS), c);
        }
    }

    /** Runs YCSB's client in a process of its own, since it ends its process. */
    private static Map<String, Integer> ycsb(Server server, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx512m",
            "-cp", System.getProperty("java.class.path"), "site.ycsb.Client",
            "-db", ZiptierClient.class.getName(), "-threads", "4",
            "-p", "workload=site.ycsb.workloads.CoreWorkload", "-p", "dataintegrity=true",
            "-p", "requestdistribution=zipfian", "-p", "recordcount=" + RECORDS,
            "-p", "operationcount=" + OPERATIONS, "-p", "ziptier.port=" + server.port));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        Map<String, Integer> returned = new TreeMap<>();
        for (Matcher found = RETURN.matcher(said); found.find();) {
            returned.put(found.group(1) + " " + found.group(2), Integer.valueOf(found.group(3)));
        }
        assertTrue(!returned.isEmpty(), said);
        return returned;
    }
}
