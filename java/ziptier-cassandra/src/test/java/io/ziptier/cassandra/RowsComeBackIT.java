package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;
import io.ziptier.cassandra.node.Tools;

/** A table went through create, write, flush, compaction and reads, and the restart found no class for its SSTables. */
@Tag("smoke")
class RowsComeBackIT {
    private static final int ROWS = 6000;

    @Test
    void everyRowSurvivesFlushCompactionScrubAndRestart() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            CqlSession session = node.session();
            Rows.createKeyspace(session, 1);
            refusesWrongOptions(session);

            Rows rows = new Rows(Corpus.read(), "texts");
            rows.create(session, ziptier(""));
            rows.write(session, 0, ROWS / 2);
            node.operations().flush(KEYSPACE, "texts");
            rows.write(session, ROWS / 3, ROWS);
            node.operations().flush(KEYSPACE, "texts");

            String flushed = Tools.metadata(node, KEYSPACE, "texts");
            assertEquals(2, count(flushed, "Compressor: org.apache.cassandra.io.compress.ZiptierCompressor"), flushed);

            assertEquals(ROWS, rows.read(session, 0, ROWS));
            node.operations().compact(KEYSPACE, "texts");
            assertEquals(ROWS, rows.read(session, 0, ROWS));
            assertEquals(0, node.operations().verify(KEYSPACE, "texts"));
            assertTrue(node.logged().contains("Verifying "), "verify has read the SSTable");
            assertEquals(0, node.operations().scrub(KEYSPACE, "texts"));
            assertEquals(ROWS, rows.read(session, 0, ROWS));

            ChunkCountersMXBean counters = node.operations().compressor("format=deflate");
            assertEquals(0, counters.getDamagedChunks());
            assertEquals("software", counters.getWorker());
            assertEquals(0, counters.getCompressedByCassandra() + counters.getUncompressedByCassandra());
            assertTrue(counters.getUncompressedChunks() >= ROWS, "each row of a read is in a chunk");
            long raw = counters.getCompressedRawBytes(), stored = counters.getCompressedStoredBytes();
            assertTrue(raw > 3 * ROWS * 1000L && stored < raw * 7 / 10, raw + " bytes became " + stored);

            assertTrue(node.logged().contains("software: "), "the log names the path");

            // The commands that docs/cassandra.md names.
            String saving = Tools.nodetool(node, "tablestats", KEYSPACE + ".texts");
            assertTrue(saving.contains("SSTable Compression Ratio: 0."), saving);
            String path = Tools.nodetool(node, "sjk", "mx", "-mg", "-all", "-b", "io.ziptier:type=Compressor,*",
                                         "-f", "Worker");
            assertTrue(path.contains("software"), path);

            node.stop();
            node.start();
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
        }
    }

    private static void refusesWrongOptions(CqlSession session) {
        Rows refused = new Rows(null, "refused");
        for (String[] wrong : new String[][] {
            { "'format': 'lzma'", "ZiptierCompressor cannot write format 'lzma': choose deflate, lz4, token or zstd" },
            { "'level': 'high'",
              "ZiptierCompressor cannot use level 'high' with format 'deflate': choose a number from 1 to 12" },
            { "'path': 'hardware'",
              "ZiptierCompressor cannot use path 'hardware', for a node without the device could not open the table: "
              + "choose auto, which uses a device where there is one" },
            { "'speed': '9'",
              "ZiptierCompressor has no option 'speed': choose among dictionary, format, huffman, level, path, split" },
            { "'split': '17'", "ZiptierCompressor cannot use split '17': choose a number from 1 to 16" } }) {
            DriverException failure = assertThrows(DriverException.class,
                                                   () -> refused.create(session, ziptier(wrong[0])));
            assertEquals(wrong[1], failure.getMessage());
        }
    }

    private static int count(String text, String part) {
        return text.split(part, -1).length - 1;
    }
}
