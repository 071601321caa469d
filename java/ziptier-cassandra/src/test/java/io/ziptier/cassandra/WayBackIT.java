package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;
import io.ziptier.cassandra.node.Tools;

/** A table of the plugin was the plugin's for ever: no node without the jar could open it again. */
@Tag("node")
class WayBackIT {
    private static final int ROWS = 3000;
    private static final String[][] FORMATS = {
        { "deflate", "DeflateCompressor" }, { "lz4", "LZ4Compressor" }, { "zstd", "ZstdCompressor" } };

    /** Offline: ALTER, stop, rename, start without the jar. The files of data stay the same. */
    @Test
    void cassandraAloneReadsWhatZiptierWrote() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            Rows.createKeyspace(node.session(), 1);
            for (String[] format : FORMATS) {
                Rows rows = rows(format[0]);
                String split = format[0].equals("deflate") ? ", 'split': '4'" : "";
                rows.create(node.session(), ziptier("'format': '" + format[0] + "'" + split));
                rows.write(node.session(), 0, ROWS);
                node.operations().flush(KEYSPACE, format[0]);
            }
            node.stop();

            String refusal = node.withJar(false).startAndFail();
            assertTrue(refusal.contains("Could not create Compression for type "
                                        + "org.apache.cassandra.io.compress.ZiptierCompressor"), refusal);

            node.withJar(true).start();
            for (String[] format : FORMATS)
                rows(format[0]).alter(node.session(), "{'class': '" + format[1] + "'}");
            node.stop();
            String told = Tools.migrateOff(node.table(KEYSPACE, "deflate").getParent());
            assertTrue(told.startsWith("3 SSTables have the names of Cassandra's own compressors now; 0 "), told);

            node.withJar(false).start();
            for (String[] format : FORMATS) {
                assertEquals(ROWS, rows(format[0]).read(node.session(), 0, ROWS), format[0]);
                assertEquals(0, node.operations().verify(KEYSPACE, format[0]), format[0]);
            }
            assertFalse(node.logged().contains("ZiptierCompressor"), "the node without the jar has no need of it");
        }
    }

    /** Online: ALTER, then nodetool upgradesstables, in both directions. */
    @Test
    void alterAndUpgradeChangeTheCompressorOfATableInUse() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            CqlSession session = node.session();
            Rows.createKeyspace(session, 1);
            Rows rows = rows("changing");
            rows.create(session, "{'class': 'DeflateCompressor'}");
            rows.write(session, 0, ROWS);
            // The flush of a compressor that is slow is Cassandra's LZ4; the compaction has the table's compressor.
            node.operations().flush(KEYSPACE, "changing");
            node.operations().upgrade(KEYSPACE, "changing");
            assertEquals("DeflateCompressor", compressor(node));

            rows.alter(session, ziptier(""));
            assertEquals(ROWS, rows.read(session, 0, ROWS));
            assertEquals(0, node.operations().upgrade(KEYSPACE, "changing"));
            assertEquals("ZiptierCompressor", compressor(node));
            assertEquals(ROWS, rows.read(session, 0, ROWS));

            rows.alter(session, "{'class': 'DeflateCompressor'}");
            assertEquals(0, node.operations().upgrade(KEYSPACE, "changing"));
            assertEquals("DeflateCompressor", compressor(node));
            assertEquals(ROWS, rows.read(session, 0, ROWS));
        }
    }

    private static String compressor(Node node) throws Exception {
        String metadata = Tools.metadata(node, KEYSPACE, "changing");
        String name = "Compressor: org.apache.cassandra.io.compress.";
        return metadata.lines().filter(line -> line.startsWith(name)).findFirst().get().substring(name.length());
    }

    private static Rows rows(String table) throws Exception {
        return new Rows(Corpus.read(), table);
    }
}
