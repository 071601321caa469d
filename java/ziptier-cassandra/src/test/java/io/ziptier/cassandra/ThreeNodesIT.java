package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;

/** A repair or a new node got SSTables by the stream, and could not make their compressor from the stream's header. */
@Tag("cluster")
class ThreeNodesIT {
    private static final int ROWS = 3000;
    private static final String CHUNK_BY_CHUNK = "stream_entire_sstables: false";
    private static final String WHOLE_FILES = "stream_entire_sstables: true";

    /** A table was filled while a node was dead. A repair brings the node whole files, which it takes as they are. */
    @Test
    @Timeout(value = 15, unit = TimeUnit.MINUTES)
    void aNodeGetsATableThatItMissedByWholeFiles() throws Exception {
        try (Cluster cluster = Cluster.ofSeveral()) {
            List<Node> nodes = started(cluster, WHOLE_FILES);
            Rows rows = filledWithoutTheThird(nodes);
            Node killed = nodes.get(2);
            repair(killed, "CassandraEntireSSTableStreamReader");
            assertEquals(ROWS, rows.at(ConsistencyLevel.ONE).read(killed.session(), 0, ROWS));
            assertNoDamage(nodes);
        }
    }

    /** Writes at QUORUM go on while a node is killed. It gets what it missed chunk by chunk, and so does a fourth. */
    @Test
    @Timeout(value = 15, unit = TimeUnit.MINUTES)
    void aKilledNodeIsRepairedAndAFourthJoinsByChunks() throws Exception {
        try (Cluster cluster = Cluster.ofSeveral()) {
            List<Node> nodes = started(cluster, CHUNK_BY_CHUNK);
            Rows rows = filledAroundAKill(nodes);
            Node killed = nodes.get(2);
            repair(killed, "CassandraCompressedStreamReader");
            assertEquals(ROWS, rows.at(ConsistencyLevel.ONE).read(killed.session(), 0, ROWS));

            Node fourth = cluster.add().withYaml(CHUNK_BY_CHUNK).bootstrapping().start();
            nodes.add(fourth);
            assertEquals(ROWS, rows.at(ConsistencyLevel.QUORUM).read(fourth.session(), 0, ROWS));
            long joined = fourth.operations().compressor("format=deflate").getCompressedRawBytes();
            assertTrue(joined > ROWS * 100L, "the join has written " + joined + " bytes");
            assertNoDamage(nodes);
        }
    }

    private static List<Node> started(Cluster cluster, String streaming) throws Exception {
        List<Node> nodes = new ArrayList<>();
        // Nodes that start at once lose each other's first gossip.
        for (int number = 0; number < 3; number++)
            nodes.add(cluster.add().withYaml(streaming).withYaml("hinted_handoff_enabled: false").start());
        return nodes;
    }

    /** A third of the rows with all nodes, a third while the last one dies, a third without it. */
    private static Rows filledAroundAKill(List<Node> nodes) throws Exception {
        CqlSession session = nodes.get(0).session();
        Rows.createKeyspace(session, 3);
        Rows rows = new Rows(Corpus.read(), "shared").at(ConsistencyLevel.QUORUM);
        rows.create(session, ziptier(""));
        awaitSchema(nodes);
        rows.write(session, 0, ROWS / 3);
        for (Node node : nodes)
            node.operations().flush(KEYSPACE, "shared");
        Node killed = nodes.get(2);
        Thread kill = new Thread(killed::kill);
        kill.start();
        rows.write(session, ROWS / 3, ROWS);
        kill.join();
        // Reads wait for a dead node until the others know of its death.
        nodes.get(0).operations().awaitLive(2);
        assertEquals(ROWS, rows.read(session, 0, ROWS));
        restartTheThird(nodes);
        return rows;
    }

    /** All rows, written while the last node is dead. */
    private static Rows filledWithoutTheThird(List<Node> nodes) throws Exception {
        CqlSession session = nodes.get(0).session();
        Rows.createKeyspace(session, 3);
        awaitSchema(nodes);
        nodes.get(2).kill();
        nodes.get(0).operations().awaitLive(2);
        Rows rows = new Rows(Corpus.read(), "shared").at(ConsistencyLevel.QUORUM);
        rows.create(session, ziptier(""));
        awaitSchema(nodes.subList(0, 2));
        rows.write(session, 0, ROWS);
        restartTheThird(nodes);
        return rows;
    }

    private static void restartTheThird(List<Node> nodes) throws Exception {
        for (Node node : nodes.subList(0, 2))
            node.operations().flush(KEYSPACE, "shared");
        nodes.get(2).start();
        for (Node node : nodes)
            node.operations().awaitLive(3);
        awaitSchema(nodes);
    }

    /** A node that has not heard of a table fails its writes and its repairs. */
    private static void awaitSchema(List<Node> nodes) throws Exception {
        Set<UUID> versions;
        do {
            versions = new HashSet<>();
            for (Node node : nodes)
                versions.add(node.session().execute("SELECT schema_version FROM system.local").one().getUuid(0));
            Thread.sleep(200);
        } while (versions.size() > 1);
    }

    /** Repairs a node, and makes sure which of Cassandra's readers has taken the streams. */
    private static void repair(Node node, String reader) throws Exception {
        node.operations().repair(KEYSPACE, "shared");
        assertTrue(node.logged().contains(reader + ".java"), "no stream came by " + reader);
    }

    private static void assertNoDamage(List<Node> nodes) throws Exception {
        for (Node node : nodes)
            assertEquals(0, node.operations().compressor("format=deflate").getDamagedChunks());
    }
}
