package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;

/** A killed node lost what its commit log held: replay is the only caller of the arrays' way to uncompress. */
@Tag("node")
class CommitLogIT {
    private static final int ROWS = 3000;

    @Test
    void aKilledNodeReplaysItsCompressedCommitLog() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().withCommitLog("commitlog_sync: batch\n"
                                                    + "commitlog_compression:\n"
                                                    + "  - class_name: ZiptierCompressor\n"
                                                    + "    parameters:\n"
                                                    + "      - format: lz4\n").start();
            Rows.createKeyspace(node.session(), 1);
            Rows rows = new Rows(Corpus.read(), "logged");
            rows.create(node.session(), ziptier("'format': 'lz4'"));
            rows.write(node.session(), 0, ROWS);
            assertTrue(node.operations().compressor("format=lz4").getCompressedRawBytes() > ROWS * 1000L,
                       "the log is compressed by ziptier");
            node.kill();

            node.start();
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
            assertTrue(node.operations().compressor("format=lz4").getUncompressedRawBytes() > ROWS * 1000L,
                       "the replay is uncompressed by ziptier");
        }
    }
}
