package io.ziptier.cassandra.node;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletionStage;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;

/** The rows of a table: numbers, and a piece of real text under each. */
public final class Rows {
    public static final String KEYSPACE = "ziptier";
    private static final int VALUE_BYTES = 1000;
    private static final int IN_FLIGHT = 64;

    private final Corpus corpus;
    private final String table;
    private ConsistencyLevel level = ConsistencyLevel.ONE;

    public Rows(Corpus corpus, String table) {
        this.corpus = corpus;
        this.table = table;
    }

    public Rows at(ConsistencyLevel level) {
        this.level = level;
        return this;
    }

    /** {@code {'class': 'ZiptierCompressor', …}} with more options, such as {@code 'format': 'lz4'}. */
    public static String ziptier(String options) {
        return "{'class': 'ZiptierCompressor'" + (options.isEmpty() ? "" : ", ") + options + "}";
    }

    public static void createKeyspace(CqlSession session, int copies) {
        session.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = "
                        + "{'class': 'SimpleStrategy', 'replication_factor': " + copies + "}");
    }

    public void create(CqlSession session, String compression) {
        session.execute(String.format("CREATE TABLE %s.\"%s\" (id bigint PRIMARY KEY, value blob) "
                                      + "WITH compression = %s", KEYSPACE, table, compression));
    }

    public void alter(CqlSession session, String compression) {
        session.execute(String.format("ALTER TABLE %s.\"%s\" WITH compression = %s", KEYSPACE, table, compression));
    }

    /** Writes the rows of these numbers. */
    public void write(CqlSession session, int from, int to) throws Exception {
        PreparedStatement insert = session.prepare(
            String.format("INSERT INTO %s.\"%s\" (id, value) VALUES (?, ?)", KEYSPACE, table));
        Deque<CompletionStage<AsyncResultSet>> sent = new ArrayDeque<>();
        for (int id = from; id < to; id++) {
            if (sent.size() == IN_FLIGHT)
                sent.remove().toCompletableFuture().get();
            sent.add(session.executeAsync(insert.bind((long) id, value(id)).setConsistencyLevel(level)));
        }
        for (CompletionStage<AsyncResultSet> one : sent)
            one.toCompletableFuture().get();
    }

    /** Reads each row by its key. Gives how many are there; a row of other bytes fails. */
    public int read(CqlSession session, int from, int to) throws Exception {
        PreparedStatement select = session.prepare(
            String.format("SELECT id, value FROM %s.\"%s\" WHERE id = ?", KEYSPACE, table));
        Deque<CompletionStage<AsyncResultSet>> sent = new ArrayDeque<>();
        int equal = 0;
        for (int id = from; id < to; id++) {
            if (sent.size() == IN_FLIGHT)
                equal += compare(sent.remove());
            BoundStatement one = select.bind((long) id);
            sent.add(session.executeAsync(one.setConsistencyLevel(level)));
        }
        for (CompletionStage<AsyncResultSet> one : sent)
            equal += compare(one);
        return equal;
    }

    private int compare(CompletionStage<AsyncResultSet> read) throws Exception {
        Row row = read.toCompletableFuture().get().one();
        if (row == null)
            return 0;
        long id = row.getLong("id");
        if (!value(id).equals(row.getByteBuffer("value")))
            throw new AssertionError("row " + id + " of " + table + " has other bytes than were written");
        return 1;
    }

    private ByteBuffer value(long id) {
        return corpus.piece(id, VALUE_BYTES);
    }
}
