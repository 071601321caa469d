package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;

/** A device whose queue was full, and which then was gone, must not cost a row. The device is modelled. */
@Tag("node")
class BusyDeviceIT {
    private static final int ROWS = 4000;
    /** Of the 250 chunks of a flush every third finds a full queue. The device is lost while they are compacted. */
    private static final String MODEL = "devices=1,timing=off,full_one_in=3,lost_after=400";

    @Test
    void aNodeGoesOnWithoutItsModelledDevice() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().withOption("-Dziptier.model=" + MODEL).start();
            Rows.createKeyspace(node.session(), 1);
            Rows rows = new Rows(Corpus.read(), "modelled");
            rows.create(node.session(), ziptier(""));
            rows.write(node.session(), 0, ROWS);
            node.operations().flush(KEYSPACE, "modelled");
            ChunkCountersMXBean counters = node.operations().compressor("format=deflate");
            assertEquals("modelled", counters.getWorker());
            long busy = counters.getFallbacks();

            node.operations().compact(KEYSPACE, "modelled");
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
            assertEquals(0, node.operations().verify(KEYSPACE, "modelled"));
            assertTrue(counters.getFallbacks() > busy + 100, busy + " and then " + counters.getFallbacks());
            assertEquals(0, counters.getDamagedChunks() + counters.getCompressedByCassandra());

            node.stop();
            node.start();
            assertEquals(ROWS, rows.read(node.session(), 0, ROWS));
        }
    }
}
