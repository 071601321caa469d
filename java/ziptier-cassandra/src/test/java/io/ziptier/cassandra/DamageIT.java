package io.ziptier.cassandra;

import static io.ziptier.cassandra.node.Rows.KEYSPACE;
import static io.ziptier.cassandra.node.Rows.ziptier;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.servererrors.ReadFailureException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Cluster;
import io.ziptier.cassandra.node.Corpus;
import io.ziptier.cassandra.node.Node;
import io.ziptier.cassandra.node.Rows;

/** A damaged chunk gave a client other bytes than were written, because the table did not check Cassandra's CRC. */
@Tag("node")
class DamageIT {
    private static final int ROWS = 3000;

    @Test
    void aDamagedChunkIsReportedAndNeverReturned() throws Exception {
        try (Cluster cluster = Cluster.single()) {
            Node node = cluster.add().start();
            Rows.createKeyspace(node.session(), 1);
            // "unchecked" leaves all to the checksum in the chunk; "checked" has Cassandra's own, too.
            for (String table : new String[] { "checked", "unchecked" }) {
                Rows rows = new Rows(Corpus.read(), table);
                rows.create(node.session(), ziptier(""));
                node.session().execute(String.format("ALTER TABLE %s.%s WITH crc_check_chance = %s",
                                                     KEYSPACE, table, table.equals("checked") ? "1.0" : "0.0"));
                rows.write(node.session(), 0, ROWS);
                node.operations().flush(KEYSPACE, table);
            }
            node.stop();
            for (String table : new String[] { "checked", "unchecked" })
                damage(node.table(KEYSPACE, table));
            node.start();

            for (String table : new String[] { "checked", "unchecked" }) {
                // Before the reads: they make the SSTable suspect, and verify leaves a suspect SSTable out.
                Exception refusal = assertThrows(RuntimeException.class,
                                                 () -> node.operations().verify(KEYSPACE, table));
                assertTrue(refusal.getMessage().contains("Invalid SSTable"), refusal.getMessage());
                int read = 0, failed = 0;
                Rows rows = new Rows(Corpus.read(), table);
                for (int id = 0; id < ROWS; id++) {
                    if (isReadable(rows, node.session(), id))
                        read++;
                    else
                        failed++;
                }
                assertEquals(ROWS, read + failed, table);
                assertTrue(failed >= 5 && failed < 100, failed + " rows of " + table + " lie in one damaged chunk");
            }
            long damaged = node.operations().compressor("format=deflate").getDamagedChunks();
            assertTrue(damaged > 0, "the counter tells of damage");
            assertTrue(node.logged().contains("ZiptierCompressor cannot uncompress a chunk of "), "the log tells why");
        }
    }

    private static boolean isReadable(Rows rows, CqlSession session, int id) throws Exception {
        try {
            assertEquals(1, rows.read(session, id, id + 1), "row " + id);
            return true;
        } catch (java.util.concurrent.ExecutionException failure) {
            assertEquals(ReadFailureException.class, failure.getCause().getClass());
            return false;
        }
    }

    /** Flips a bit of the compressed bytes in the middle of the file. */
    private static void damage(Path table) throws Exception {
        Path data;
        try (Stream<Path> files = Files.list(table)) {
            data = files.filter(file -> file.toString().endsWith("-Data.db")).findFirst().get();
        }
        try (RandomAccessFile file = new RandomAccessFile(data.toFile(), "rw")) {
            file.seek(file.length() / 2);
            int old = file.read();
            file.seek(file.length() / 2);
            file.write(old ^ 0x10);
        }
    }
}
