package io.ziptier.cassandra.node;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Commands of operators, as processes of their own. */
public final class Tools {
    private Tools() {
    }

    /** {@code sstablemetadata} of all SSTables of a table. */
    public static String metadata(Node node, String keyspace, String table) throws Exception {
        try (Stream<Path> files = Files.list(node.table(keyspace, table))) {
            List<String> data = files.map(Path::toString)
                                     .filter(name -> name.endsWith("-Data.db"))
                                     .collect(Collectors.toList());
            return run(node, "org.apache.cassandra.tools.SSTableMetadataViewer", data);
        }
    }

    /** {@code nodetool}, as its own process. */
    public static String nodetool(Node node, String... arguments) throws Exception {
        List<String> all = new ArrayList<>(List.of("-h", "127.0.0.1", "-p", Integer.toString(node.jmxPort)));
        all.addAll(List.of(arguments));
        return run(node, "org.apache.cassandra.tools.NodeTool", all);
    }

    /** Runs a class with the class path and the settings of a node. Gives what it prints; another end than 0 fails. */
    public static String run(Node node, String mainClass, List<String> arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(
            Node.java(), "@" + node.conf("jvm.options"), "-XX:TieredStopAtLevel=1",
            "-Dcassandra.config=" + node.conf("cassandra.yaml").toUri(),
            "-Dcassandra.storagedir=" + node.dir,
            "-Dlogback.configurationFile=" + node.conf("logback.xml"),
            "-cp", Node.jars() + File.pathSeparator + Node.LIB + "/*"));
        command.add(mainClass);
        command.addAll(arguments);
        return run(command);
    }

    /** {@code java -jar ziptier-cassandra.jar migrate-off DIR}, without Cassandra on the class path. */
    public static String migrateOff(Path dir) throws Exception {
        return run(List.of(Node.java(), "-jar", Node.jars(), "migrate-off", dir.toString()));
    }

    /** {@code ziptier cassandra COMMAND DIR}, of the table's folder on a node. Gives what stdout gets. */
    public static String ziptier(String command, Node node, String keyspace, String table) throws Exception {
        List<String> whole = List.of(System.getProperty("ziptier.command"), "cassandra", command,
                                     node.table(keyspace, table).toString());
        return run(new ProcessBuilder(whole).redirectError(ProcessBuilder.Redirect.INHERIT));
    }

    private static String run(List<String> command) throws Exception {
        return run(new ProcessBuilder(command).redirectErrorStream(true));
    }

    private static String run(ProcessBuilder command) throws Exception {
        Process process = command.start();
        try {
            String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (!process.waitFor(1, TimeUnit.MINUTES) || process.exitValue() != 0)
                throw new AssertionError(String.join(" ", command.command()) + " failed: " + printed);
            return printed;
        } finally {
            process.destroyForcibly();
        }
    }
}
