package io.ziptier.cassandra.node;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.loadbalancing.NodeDistance;

/** A real Cassandra node in a process of its own, in a folder of its own, on the loopback device. */
public final class Node {
    static final Path LIB = Path.of(System.getProperty("cassandra.lib"));
    private static final String JAR = System.getProperty("ziptier.jar");
    private static final Path TEST_CLASSES = Path.of(System.getProperty("ziptier.test.classes"));
    /** A starved machine with two busy cores has taken 60 s. */
    private static final Duration START_MAX = Duration.ofMinutes(5);
    /** Clients can connect from here on. "Starting listening" is logged before the node has its port. */
    private static final String LISTENS = "Startup complete";

    final Path dir;
    final String address;
    private final Cluster cluster;
    private final int number;
    final int jmxPort;
    private boolean bootstraps;
    private boolean hasJar = true;
    private String commitLog = "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms\n";
    private String moreYaml = "";
    private final List<String> moreOptions = new ArrayList<>();
    private Process process;
    private CqlSession session;
    private Operations operations;

    Node(Cluster cluster, int number) throws IOException {
        this.cluster = cluster;
        this.number = number;
        dir = Files.createDirectories(cluster.dir.resolve("node" + number));
        address = Cluster.address(number);
        jmxPort = Ports.free();
    }

    /** Whether the next start has ziptier on its class path. */
    public Node withJar(boolean hasJar) {
        this.hasJar = hasJar;
        return this;
    }

    /** The lines of cassandra.yaml that set the commit log, instead of those that most tests have. */
    public Node withCommitLog(String lines) {
        commitLog = lines;
        return this;
    }

    /** Another line of cassandra.yaml for the next start. */
    public Node withYaml(String line) {
        moreYaml += line + "\n";
        return this;
    }

    /** Another option of the node's JVM. */
    public Node withOption(String option) {
        moreOptions.add(option);
        return this;
    }

    /** Whether the first start fetches the node's share of the data. */
    public Node bootstrapping() {
        bootstraps = true;
        return this;
    }

    /** Starts the node and waits until it answers CQL. */
    public Node start() throws Exception {
        launch();
        await(LISTENS);
        return this;
    }

    /** Starts the node and waits for it to end by itself. Gives what it has logged. */
    public String startAndFail() throws Exception {
        launch();
        if (!process.waitFor(START_MAX.toSeconds(), TimeUnit.SECONDS))
            throw new AssertionError("the node runs, but should have ended: " + tail());
        return Files.readString(log());
    }

    private void launch() throws IOException {
        Files.createDirectories(conf(""));
        Files.writeString(conf("cassandra.yaml"), filled("cassandra.yaml") + commitLog + moreYaml);
        for (String name : List.of("logback.xml", "jvm.options"))
            Files.writeString(conf(name), filled(name));
        List<String> options = new ArrayList<>(List.of(java(), "@" + conf("jvm.options")));
        options.add("-javaagent:" + jar("jamm-"));
        options.add("-Xms" + cluster.heapMiB + "m");
        options.add("-Xmx" + cluster.heapMiB + "m");
        options.add("-XX:MaxDirectMemorySize=" + cluster.heapMiB / 2 + "m");
        options.add("-Dcassandra.config=" + conf("cassandra.yaml").toUri());
        options.add("-Dcassandra.storagedir=" + dir);
        options.add("-Dcassandra.logdir=" + dir);
        options.add("-Dcassandra.jmx.local.port=" + jmxPort);
        options.add("-Dlogback.configurationFile=" + conf("logback.xml"));
        // Other nodes need time to answer the first gossip of a node that joins.
        options.add("-Dcassandra.ring_delay_ms=" + (number == 1 ? 2000 : 15000));
        options.addAll(moreOptions);
        options.add("-cp");
        options.add(classPath());
        options.add(NodeMain.class.getName());
        process = new ProcessBuilder(options)
                  .redirectErrorStream(true)
                  .redirectOutput(log().toFile())
                  .start();
    }

    private String classPath() {
        return Stream.of(TEST_CLASSES.toString(), hasJar ? jars() : "", LIB + "/*")
                     .filter(part -> !part.isEmpty())
                     .collect(Collectors.joining(File.pathSeparator));
    }

    /** What an operator drops into Cassandra's lib folder. */
    static String jars() {
        return JAR;
    }

    static String java() {
        return Path.of(System.getProperty("java.home"), "bin", "java").toString();
    }

    static String jar(String prefix) throws IOException {
        try (Stream<Path> files = Files.list(LIB)) {
            return files.filter(file -> file.getFileName().toString().startsWith(prefix)).findFirst().get().toString();
        }
    }

    private String filled(String name) throws IOException {
        try (InputStream file = Node.class.getResourceAsStream("/node/" + name)) {
            return new String(file.readAllBytes(), StandardCharsets.UTF_8)
                   .replace("@DIR@", dir.toString())
                   .replace("@ADDRESS@", address)
                   .replace("@SEED@", Cluster.address(1))
                   .replace("@BOOTSTRAP@", Boolean.toString(bootstraps))
                   .replace("@NATIVE_PORT@", Integer.toString(cluster.nativePort))
                   .replace("@STORAGE_PORT@", Integer.toString(cluster.storagePort));
        }
    }

    Path conf(String name) {
        return dir.resolve("conf").resolve(name);
    }

    private Path log() {
        return dir.resolve("system.log");
    }

    /** All that the node has logged since it started. */
    public String logged() throws IOException {
        return Files.readString(log());
    }

    /** Waits until the node has logged a line. */
    public void await(String line) throws Exception {
        long end = System.nanoTime() + START_MAX.toNanos();
        while (!logged().contains(line)) {
            if (!process.isAlive())
                throw new AssertionError("the node has ended: " + tail());
            if (System.nanoTime() - end > 0)
                throw new AssertionError("the node never logs '" + line + "': " + tail());
            Thread.sleep(200);
        }
    }

    private String tail() throws IOException {
        List<String> lines = Files.readAllLines(log());
        return String.join("\n", lines.subList(Math.max(0, lines.size() - 40), lines.size()));
    }

    /** A session with this node alone. */
    public CqlSession session() {
        if (session == null) {
            Duration patience = Duration.ofSeconds(120);
            session = CqlSession.builder()
                                .addContactPoint(new InetSocketAddress(address, cluster.nativePort))
                                .withLocalDatacenter("datacenter1")
                                .withNodeDistanceEvaluator((node, datacenter) -> distance(node))
                                .withConfigLoader(DriverConfigLoader.programmaticBuilder()
                                    .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, patience)
                                    .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, patience)
                                    .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, patience)
                                    .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, patience)
                                    .withBoolean(DefaultDriverOption.METADATA_SCHEMA_ENABLED, false)
                                    .build())
                                .build();
        }
        return session;
    }

    private NodeDistance distance(com.datastax.oss.driver.api.core.metadata.Node node) {
        boolean isThis = node.getEndPoint().toString().contains(address + ":");
        return isThis ? NodeDistance.LOCAL : NodeDistance.IGNORED;
    }

    /** The node's management interface. */
    public Operations operations() throws Exception {
        if (operations == null)
            operations = Operations.connect(jmxPort);
        return operations;
    }

    /** The folder of a table's SSTables. */
    public Path table(String keyspace, String table) throws IOException {
        try (Stream<Path> tables = Files.list(dir.resolve("data").resolve(keyspace))) {
            return tables.filter(path -> path.getFileName().toString().startsWith(table + "-")).findFirst().get();
        }
    }

    /** Whether files wait for nodes that missed their writes. */
    public boolean hasHints() throws IOException {
        try (Stream<Path> files = Files.list(dir.resolve("hints"))) {
            return files.anyMatch(file -> file.toString().endsWith(".hints"));
        }
    }

    boolean isRunning() {
        return process != null && process.isAlive();
    }

    /** Flushes and stops the node as an operator does. */
    public void stop() throws Exception {
        operations().drain();
        kill();
    }

    /** Ends the node by SIGKILL. */
    public void kill() {
        disconnect();
        if (process != null)
            process.destroyForcibly().onExit().join();
    }

    private void disconnect() {
        if (session != null)
            session.close();
        if (operations != null)
            operations.close();
        session = null;
        operations = null;
    }
}
