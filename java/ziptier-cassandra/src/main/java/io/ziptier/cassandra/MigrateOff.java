package io.ziptier.cassandra;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitOption;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Makes the SSTables below folders readable for a node without ziptier, by giving each the name of the compressor of
 * Cassandra's own that has its format. The data stay where they are.
 *
 * <ol>
 * <li>Read every {@code CompressionInfo.db}, in snapshots and backups, too. One that cannot be renamed ends the command
 *     before anything has changed. So do hints that ziptier compressed, and a log of a transaction. Tokens in snapshots
 *     and backups are named and left, for no node opens them.
 * <li>Write each anew beside the old one, and put it in its place. An interrupted command may run again.
 * </ol>
 *
 * <p>No class of Cassandra's is used, so that the jar alone runs the command.
 */
public final class MigrateOff {
    /** Hints begin with version, time, node, the length of a text that names their compressor, and a checksum. */
    private static final int HINTS_FRONT_BYTES = 4 + 8 + 16 + 4 + 4;
    private static final int HINTS_LENGTH_AT = 4 + 8 + 16;
    private static final int HINTS_TEXT_BYTES_MAX = 1 << 20;
    /** Files below the folder of a table, whose name ends in the table's id. A keyspace may be called snapshots. */
    private static final Pattern COPIES = Pattern.compile("-[0-9a-f]{32}/(.*/)?(snapshots|backups)/");
    private static final Pattern READ = Pattern.compile("-CompressionInfo\\.db$|\\.hints$|_txn_[^/]*\\.log$");

    private MigrateOff() {
    }

    /** {@code java -jar ziptier-cassandra.jar migrate-off DIR...}. */
    public static void main(String[] arguments) {
        if (arguments.length < 2 || !arguments[0].equals("migrate-off")) {
            System.err.println("usage: java -jar ziptier-cassandra.jar migrate-off DIR...\n"
                               + "DIR is a folder of data or hints of a node that does not run, "
                               + "such as /var/lib/cassandra/data");
            System.exit(2);
        }
        try {
            List<Path> folders = new ArrayList<>();
            for (String folder : List.of(arguments).subList(1, arguments.length))
                folders.add(Path.of(folder));
            System.out.println(run(folders));
        } catch (IOException failure) {
            System.err.println("migrate-off: " + failure.getMessage());
            System.exit(1);
        }
    }

    /** Renames the compressor of all SSTables below the folders. Gives a sentence on what it has done. */
    static String run(List<Path> folders) throws IOException {
        List<Path> ofZiptier = new ArrayList<>(), left = new ArrayList<>();
        int others = 0;
        for (Path folder : folders) {
            for (Path file : files(folder)) {
                if (file.toString().endsWith(".log"))
                    throw new IOException(file + " is the log of a node that stopped amid a flush or a compaction: "
                                          + "start the node once with the jar, and stop it cleanly");
                if (file.toString().endsWith(".hints")) {
                    checkHints(file);
                    continue;
                }
                CompressionInfo info = CompressionInfo.read(file);
                if (!info.isOfZiptier()) {
                    others++;
                } else if (!info.isOfCassandra() && COPIES.matcher(file.toAbsolutePath().toString()).find()) {
                    left.add(file);
                } else {
                    info.renamed();
                    ofZiptier.add(file);
                }
            }
        }
        if (ofZiptier.isEmpty() && left.isEmpty() && others == 0)
            throw new IOException("no SSTable lies below " + folders + ": name the data folders of a node");
        int renamed = 0;
        // Read again, one at a time: all of a large node would not fit into the heap. A file that two folders or links
        // lead to stands twice in the list, and has its new name at the second time.
        for (Path file : ofZiptier) {
            CompressionInfo info = CompressionInfo.read(file);
            if (info.isOfZiptier()) {
                info.renamed().replace();
                renamed++;
            }
        }
        StringBuilder told = new StringBuilder(
            String.format("%d SSTables have the names of Cassandra's own compressors now; %d needed no change",
                          renamed, others));
        for (Path file : left)
            told.append("\nleft ").append(file).append(": a copy with tokens, which a node with the jar can restore");
        return told.toString();
    }

    /** Names of compressors, hints, and logs of transactions. Folders of a node often are links to other disks. */
    private static List<Path> files(Path folder) throws IOException {
        if (!Files.isDirectory(folder))
            throw new IOException(folder + " is no folder: name a data folder of a node");
        List<Path> files = new ArrayList<>();
        try (Stream<Path> tree = Files.walk(folder, FileVisitOption.FOLLOW_LINKS)) {
            tree.filter(path -> READ.matcher(path.toString()).find()).forEach(files::add);
        } catch (UncheckedIOException failure) {
            throw failure.getCause();
        }
        return files;
    }

    /**
     * Refuses hints that only the jar can deliver: without it, a node leaves them undelivered for good. The rows behind
     * the header may hold any name. No node delivers hints whose header is damaged.
     */
    private static void checkHints(Path file) throws IOException {
        try (InputStream in = Files.newInputStream(file)) {
            byte[] front = in.readNBytes(HINTS_FRONT_BYTES);
            int length = front.length < HINTS_FRONT_BYTES ? 0 : ByteBuffer.wrap(front).getInt(HINTS_LENGTH_AT);
            byte[] text = in.readNBytes(Math.max(0, Math.min(length, HINTS_TEXT_BYTES_MAX)));
            if (new String(text, StandardCharsets.ISO_8859_1).contains(CompressionInfo.NAME))
                throw new IOException(file + " holds hints that ziptier compressed: start the node with the jar until "
                                      + "it has delivered them, or run nodetool truncatehints there, and repair after");
        }
    }
}
