package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
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

/**
 * A repair or a new node got SSTables by the stream, and could not make their compressor from the stream's header.
 *
 * <p>Two tables go through all of it: one of DEFLATE, and one of tokens, which gets another dictionary meanwhile.
 */
@Tag("cluster")
class ThreeNodesIT {
    private static final int ROWS = 3000;
    private static final List<String> TABLES = List.of("deflate", "token");
    private static final String CHUNK_BY_CHUNK = "stream_entire_sstables: false";
    private static final String WHOLE_FILES = "stream_entire_sstables: true";

    /** The tables were filled while a node was dead. A repair brings the node whole files, which it takes as is. */
    @Test
    @Timeout(value = 15, unit = TimeUnit.MINUTES)
    void aNodeGetsTablesThatItMissedByWholeFiles() throws Exception {
        try (Cluster cluster = Cluster.ofSeveral()) {
            List<Node> nodes = started(cluster, WHOLE_FILES);
            Node first = nodes.get(0), killed = nodes.get(2);
            Rows.createKeyspace(first.session(), 3);
            cluster.awaitSchema();
            killed.kill();
            first.operations().awaitLive(2);
            create(first.session());
            cluster.awaitSchema();
            write(first.session(), 0, ROWS / 2);
            flush(nodes.subList(0, 2));
            changeDictionary(first.session());
            write(first.session(), ROWS / 2, ROWS);
            restart(killed, nodes);
            cluster.awaitSchema();
            repair(killed, "CassandraEntireSSTableStreamReader");
            assertHasAll(killed, ConsistencyLevel.ONE);
            assertNoDamage(nodes);
        }
    }

    /** Writes at QUORUM go on while a node is killed. It gets what it missed chunk by chunk, and so does a fourth. */
    @Test
    @Timeout(value = 20, unit = TimeUnit.MINUTES)
    void aKilledNodeIsRepairedAndAFourthJoinsByChunks() throws Exception {
        try (Cluster cluster = Cluster.ofSeveral()) {
            List<Node> nodes = started(cluster, CHUNK_BY_CHUNK);
            Node first = nodes.get(0), killed = nodes.get(2);
            Rows.createKeyspace(first.session(), 3);
            create(first.session());
            cluster.awaitSchema();
            write(first.session(), 0, ROWS / 3);
            flush(nodes);
            Thread kill = new Thread(killed::kill);
            kill.start();
            write(first.session(), ROWS / 3, ROWS * 2 / 3);
            kill.join();
            // Reads wait for a dead node until the others know of its death.
            first.operations().awaitLive(2);
            changeDictionary(first.session());
            write(first.session(), ROWS * 2 / 3, ROWS);
            assertHasAll(first, ConsistencyLevel.QUORUM);
            restart(killed, nodes);
            cluster.awaitSchema();
            repair(killed, "CassandraCompressedStreamReader");
            assertHasAll(killed, ConsistencyLevel.ONE);

            Node fourth = cluster.add().withYaml(CHUNK_BY_CHUNK).bootstrapping().start();
            nodes.add(fourth);
            assertHasAll(fourth, ConsistencyLevel.QUORUM);
            for (String table : TABLES) {
                long joined = 0;
                for (ChunkCountersMXBean one : fourth.operations().compressors("format=" + table))
                    joined += one.getCompressedRawBytes();
                assertTrue(joined > ROWS * 100L, "the join has written " + joined + " bytes of " + table);
            }
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

    private static void create(CqlSession session) throws Exception {
        rows("deflate").create(session, ziptier(""));
        rows("token").create(session, tokens(0));
    }

    private static void changeDictionary(CqlSession session) throws Exception {
        rows("token").alter(session, tokens(500));
    }

    private static String tokens(int from) throws Exception {
        return ziptier("'format': 'token', 'dictionary': '" + Corpus.read().dictionary(from) + "'");
    }

    private static void write(CqlSession session, int from, int to) throws Exception {
        for (String table : TABLES)
            rows(table).at(ConsistencyLevel.QUORUM).write(session, from, to);
    }

    private static void flush(List<Node> nodes) throws Exception {
        for (Node node : nodes) {
            for (String table : TABLES)
                node.operations().flush(KEYSPACE, table);
        }
    }

    private static void restart(Node killed, List<Node> nodes) throws Exception {
        flush(nodes.subList(0, 2));
        killed.start();
        for (Node node : nodes)
            node.operations().awaitLive(3);
    }

    /** Repairs a node, and makes sure which of Cassandra's readers has taken the streams. */
    private static void repair(Node node, String reader) throws Exception {
        for (String table : TABLES)
            node.operations().repair(KEYSPACE, table);
        assertTrue(node.logged().contains(reader + ".java"), "no stream came by " + reader);
    }

    private static void assertHasAll(Node node, ConsistencyLevel level) throws Exception {
        for (String table : TABLES)
            assertEquals(ROWS, rows(table).at(level).read(node.session(), 0, ROWS), table);
    }

    private static void assertNoDamage(List<Node> nodes) throws Exception {
        for (Node node : nodes) {
            for (String table : TABLES) {
                for (ChunkCountersMXBean one : node.operations().compressors("format=" + table))
                    assertEquals(0, one.getDamagedChunks(), table);
            }
        }
    }

    private static Rows rows(String table) throws Exception {
        return new Rows(Corpus.read(), table);
    }
}
