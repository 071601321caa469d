package io.ziptier.cassandra.node;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import javax.management.JMX;
import javax.management.MBeanServerConnection;
import javax.management.Notification;
import javax.management.NotificationEmitter;
import javax.management.NotificationListener;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

import org.apache.cassandra.service.StorageServiceMBean;

import io.ziptier.cassandra.ChunkCountersMXBean;

/** What {@code nodetool} does, by one connection: a nodetool is a JVM of its own each time. */
public final class Operations {
    private final JMXConnector connector;
    private final MBeanServerConnection server;
    private final StorageServiceMBean storage;

    private Operations(JMXConnector connector) throws Exception {
        this.connector = connector;
        server = connector.getMBeanServerConnection();
        storage = JMX.newMBeanProxy(server,
                                    new ObjectName("org.apache.cassandra.db:type=StorageService"),
                                    StorageServiceMBean.class,
                                    true);
    }

    static Operations connect(int port) throws Exception {
        String address = String.format("service:jmx:rmi:///jndi/rmi://127.0.0.1:%d/jmxrmi", port);
        return new Operations(JMXConnectorFactory.connect(new JMXServiceURL(address)));
    }

    /** Waits until this node takes so many nodes for alive, itself included. */
    public void awaitLive(int nodes) throws Exception {
        while (storage.getLiveNodesWithPort().size() != nodes)
            Thread.sleep(200);
    }

    public void flush(String keyspace, String table) throws Exception {
        storage.forceKeyspaceFlush(keyspace, table);
    }

    /** The lines of {@code nodetool tablestats} that name files. */
    String tablestats(String keyspace, String table) throws Exception {
        String name = "org.apache.cassandra.metrics:type=Table,keyspace=" + keyspace + ",scope=" + table + ",name=";
        return "SSTable count: " + server.getAttribute(new ObjectName(name + "LiveSSTableCount"), "Value")
               + "\nSpace used (live): " + server.getAttribute(new ObjectName(name + "LiveDiskSpaceUsed"), "Count")
               + "\n";
    }

    public void compact(String keyspace, String table) throws Exception {
        storage.forceKeyspaceCompaction(false, keyspace, table);
    }

    /** {@code nodetool verify -e}: 0 if all is well. */
    public int verify(String keyspace, String table) throws Exception {
        return storage.verify(true, false, false, false, false, false, keyspace, table);
    }

    /** {@code nodetool scrub}: 0 if all is well. */
    public int scrub(String keyspace, String table) throws Exception {
        return storage.scrub(true, false, true, false, 1, keyspace, table);
    }

    /** {@code nodetool upgradesstables -a}: 0 if all is well. */
    public int upgrade(String keyspace, String table) throws Exception {
        return storage.upgradeSSTables(keyspace, false, Long.MAX_VALUE, 1, table);
    }

    public void drain() throws Exception {
        storage.drain();
    }

    /** {@code nodetool repair -full}: waits for its end, and fails if it fails. */
    public void repair(String keyspace, String table) throws Exception {
        CompletableFuture<String> end = new CompletableFuture<>();
        StringBuilder told = new StringBuilder();
        NotificationListener listener = (notification, handback) -> {
            told.append(notification.getMessage()).append('\n');
            int type = progress(notification);
            if (type == COMPLETE || type == ERROR || type == ABORT)
                end.complete(type == COMPLETE ? "" : told.toString());
        };
        NotificationEmitter emitter = (NotificationEmitter) storage;
        emitter.addNotificationListener(listener, null, null);
        try {
            Map<String, String> options = Map.of("columnFamilies", table, "incremental", "false");
            if (storage.repairAsync(keyspace, options) == 0)
                throw new AssertionError("there was nothing to repair");
            String failure = end.get(5, TimeUnit.MINUTES);
            if (!failure.isEmpty())
                throw new AssertionError("the repair failed: " + failure);
        } finally {
            emitter.removeNotificationListener(listener);
        }
    }

    /** Numbers of Cassandra's ProgressEventType. */
    private static final int ERROR = 2, ABORT = 3, COMPLETE = 5;

    private static int progress(Notification notification) {
        Object data = notification.getUserData();
        return data instanceof Map ? (Integer) ((Map<?, ?>) data).get("type") : -1;
    }

    /** The counters of a set of options, such as {@code format=deflate}. */
    public ChunkCountersMXBean compressor(String options) throws Exception {
        return compressors(options).get(0);
    }

    /** As {@link #compressor}, of all sets of options that have these. */
    public List<ChunkCountersMXBean> compressors(String options) throws Exception {
        ObjectName pattern = new ObjectName("io.ziptier:type=Compressor," + options + ",*");
        List<ChunkCountersMXBean> all = new ArrayList<>();
        for (ObjectName name : server.queryNames(pattern, null))
            all.add(JMX.newMXBeanProxy(server, name, ChunkCountersMXBean.class));
        return all;
    }

    /** {@code nodetool compressiondictionary train -f}, of Cassandra 6: waits for its end, and gives its state. */
    public String trainDictionary(String keyspace, String table) throws Exception {
        ObjectName manager = new ObjectName(String.format(
            "org.apache.cassandra.db.compression:type=CompressionDictionaryManager,keyspace=%s,table=%s",
            keyspace, table));
        server.invoke(manager, "train", new Object[] { true }, new String[] { "boolean" });
        for (;;) {
            CompositeData state = (CompositeData) server.getAttribute(manager, "TrainingState");
            String status = state.values().toString();
            if (status.contains("COMPLETED") || status.contains("FAILED"))
                return status;
            Thread.sleep(200);
        }
    }

    void close() {
        try {
            connector.close();
        } catch (IOException gone) {
            // The node was killed.
        }
    }
}
