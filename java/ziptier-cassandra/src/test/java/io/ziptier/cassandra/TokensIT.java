package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

import com.datastax.oss.driver.api.core.CqlSession;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;
import io.ziptier.cassandra.node.Tools;

/** An SSTable's dictionary may be another than that of its table. Without it nothing can read the SSTable. */
@Tag("node")
class TokensIT {
    private static final int ROWS = 6000;
    private static final String TABLE = "texts";

    /** The way of docs/cassandra.md: estimate, train, alter, train again, and back to Cassandra alone. */
    @Test
    void aTableKeepsItsRowsWhileItsDictionaryChanges() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            Rows.createKeyspace(node.session(), 1);
            Rows rows = new Rows(Corpus.read(), TABLE);
            rows.create(node.session(), "{'class': 'LZ4Compressor'}");
            writeAndFlush(node, rows, 0, ROWS / 2);
            long estimated = estimatedBytes(Tools.ziptier("estimate", node, KEYSPACE, TABLE));
            String first = takeTrainedDictionary(node);
            assertEquals(0, node.operations().upgrade(KEYSPACE, TABLE));
            long stored = storedBytes(node);
            assertTrue(Math.abs(stored - estimated) < estimated / 10,
                       estimated + " bytes were estimated, and the node wrote " + stored);

            writeAndFlush(node, rows, ROWS / 2, ROWS * 3 / 4);
            String second = takeTrainedDictionary(node);
            assertNotEquals(first, second);
            writeAndFlush(node, rows, ROWS * 3 / 4, ROWS);
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
            restart(node);
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
            List<ChunkCountersMXBean> both = node.operations().compressors("format=token");
            assertEquals(2, both.size(), "SSTables keep their dictionary");
            for (ChunkCountersMXBean one : both)
                assertTrue(one.getUncompressedChunks() >= ROWS / 4 && one.getDamagedChunks() == 0);

            node.operations().compact(KEYSPACE, TABLE);
            assertEquals(0, node.operations().verify(KEYSPACE, TABLE));
            assertEquals(0, node.operations().scrub(KEYSPACE, TABLE));
            restart(node);
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
            assertEquals(1, node.operations().compressors("format=token").size(), "a compaction has one dictionary");

            goesBack(node, rows);
        }
    }

    /** Runs the statement that {@code train} prints for the table's SSTables. */
    private static String takeTrainedDictionary(Node node) throws Exception {
        String statement = Tools.ziptier("train", node, KEYSPACE, TABLE).strip();
        assertTrue(statement.endsWith("};"), statement);
        // A driver takes one statement without its end.
        node.session().execute(statement.substring(0, statement.length() - 1));
        return statement;
    }

    private static void writeAndFlush(Node node, Rows rows, int from, int to) throws Exception {
        rows.write(node.session(), from, to);
        node.operations().flush(KEYSPACE, TABLE);
    }

    private static void restart(Node node) throws Exception {
        node.stop();
        node.start();
    }

    private static void goesBack(Node node, Rows rows) throws Exception {
        CqlSession session = node.session();
        rows.alter(session, "{'class': 'LZ4Compressor'}");
        assertEquals(0, node.operations().upgrade(KEYSPACE, TABLE));
        node.stop();
        node.withJar(false).start();
        assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
    }

    /** The bytes that an estimate names for tokens in chunks of 16 KiB. */
    private static long estimatedBytes(String estimate) {
        String line = estimate.lines()
                              .filter(row -> row.startsWith("ziptier: token") && row.contains(" 16 KiB "))
                              .findFirst()
                              .orElseThrow(() -> new AssertionError(estimate));
        String[] words = line.strip().split(" {2,}");
        String[] size = words[2].split(" ");
        assertEquals("MiB", size[1], estimate);
        return (long) (Double.parseDouble(size[0]) * (1 << 20));
    }

    /** Rows and offsets of chunks, as the estimate counts them. */
    private static long storedBytes(Node node) throws IOException {
        try (Stream<Path> files = Files.list(node.table(KEYSPACE, TABLE))) {
            long bytes = 0;
            for (Path file : (Iterable<Path>) files::iterator) {
                if (file.toString().endsWith("-Data.db"))
                    bytes += Files.size(file);
            }
            return bytes;
        }
    }
}
