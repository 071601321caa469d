package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import com.datastax.oss.driver.api.core.CqlSession;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;
import io.ziptier.cassandra.node.Tools;

/** A jar for Cassandra 5.0 compressed the tables of a node of Cassandra 6, and the node did not start again. */
@Tag("next")
class NextCassandraIT {
    private static final int ROWS = 4000;

    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES)
    void theJarOfFiveZeroWorksBesideTheDictionariesOfSix() throws Exception {
        Map<String, String> compression = Map.of(
            "deflate", ziptier(""),
            "tokens", ziptier("'format': 'token', 'dictionary': '" + Corpus.read().dictionary(0) + "'"),
            "zstd", "{'class': 'ZstdDictionaryCompressor', 'chunk_length_in_kb': 16}");
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            CqlSession session = node.session();
            Rows.createKeyspace(session, 1);
            for (Map.Entry<String, String> table : compression.entrySet()) {
                Rows rows = rows(table.getKey());
                rows.create(session, table.getValue());
                rows.write(session, 0, ROWS / 2);
                node.operations().flush(KEYSPACE, table.getKey());
            }
            String state = node.operations().trainDictionary(KEYSPACE, "zstd");
            assertTrue(state.contains("COMPLETED"), state);
            for (String table : compression.keySet()) {
                rows(table).write(session, ROWS / 3, ROWS);
                node.operations().flush(KEYSPACE, table);
                node.operations().compact(KEYSPACE, table);
            }
            assertRows(node, compression.keySet());
            for (String table : List.of("deflate", "tokens")) {
                String metadata = Tools.metadata(node, KEYSPACE, table);
                assertTrue(metadata.contains("Compressor: org.apache.cassandra.io.compress.ZiptierCompressor"),
                           metadata);
                String format = table.replace("tokens", "token");
                ChunkCountersMXBean counters = node.operations().compressor("format=" + format);
                assertEquals(0, counters.getCompressedByCassandra() + counters.getUncompressedByCassandra());
                assertTrue(counters.getCompressedRawBytes() > 2 * ROWS * 1000L, "flushes and the compaction");
            }

            node.stop();
            node.start();
            assertRows(node, compression.keySet());
        }
    }

    private static void assertRows(Node node, Iterable<String> tables) throws Exception {
        for (String table : tables) {
            assertEquals(ROWS, rows(table).read(node.session(), 0, ROWS), table);
            assertEquals(0, node.operations().verify(KEYSPACE, table), table);
        }
    }

    private static Rows rows(String table) throws Exception {
        return new Rows(Corpus.read(), table);
    }
}
