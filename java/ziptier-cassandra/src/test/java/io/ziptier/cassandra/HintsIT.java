package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;

/** A node keeps the writes that another one missed in files of its own, and a kill must not cost them. */
@Tag("cluster")
class HintsIT {
    private static final int ROWS = 3000;
    private static final String HINTS = "hints_flush_period: 1000ms\n"
                                        + "hints_compression:\n"
                                        + "  - class_name: ZiptierCompressor\n"
                                        + "    parameters:\n"
                                        + "      - format: zstd\n";

    @Test
    @Timeout(value = 15, unit = TimeUnit.MINUTES)
    void aKilledNodeDeliversItsCompressedHints() throws Exception {
        try (Cluster cluster = Cluster.ofSeveral()) {
            Node first = cluster.add().withYaml(HINTS).start();
            Node second = cluster.add().withYaml(HINTS).start();
            Rows.createKeyspace(first.session(), 2);
            Rows rows = new Rows(Corpus.read(), "missed");
            rows.create(first.session(), ziptier(""));
            cluster.awaitSchema();
            second.kill();
            first.operations().awaitLive(1);
            rows.write(first.session(), 0, ROWS);
            while (first.operations().compressors("format=zstd").stream()
                        .noneMatch(hints -> hints.getCompressedRawBytes() > ROWS * 1000L))
                Thread.sleep(200);
            first.kill();

            first.start();
            second.start();
            while (first.hasHints())
                Thread.sleep(200);
            ChunkCountersMXBean replayed = first.operations().compressor("format=zstd");
            assertTrue(replayed.getUncompressedRawBytes() > ROWS * 1000L);
            assertEquals(0, replayed.getDamagedChunks());
            // The rows are those of the second node, once it knows that the first one is gone.
            first.kill();
            second.operations().awaitLive(1);
            assertEquals(ROWS, rows.read(second.session(), 0, ROWS));
        }
    }
}
