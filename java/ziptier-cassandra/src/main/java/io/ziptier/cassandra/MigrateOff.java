package io.ziptier.cassandra;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * Makes the SSTables below folders readable for a node without ziptier, by giving each the name of the compressor of
 * Cassandra's own that has its format. The data stay where they are.
 *
 * <ol>
 * <li>Read every {@code CompressionInfo.db}, in snapshots and backups, too. One that cannot be renamed ends the command
 *     before anything has changed.
 * <li>Write each anew beside the old one, and put it in its place. An interrupted command may run again.
 * </ol>
 *
 * <p>No class of Cassandra's is used, so that the jar alone runs the command.
 */
public final class MigrateOff {
    private MigrateOff() {
    }

    /** {@code java -jar ziptier-cassandra.jar migrate-off DIR...}. */
    public static void main(String[] arguments) {
        if (arguments.length < 2 || !arguments[0].equals("migrate-off")) {
            System.err.println("usage: java -jar ziptier-cassandra.jar migrate-off DIR...\n"
                               + "DIR is a data folder of a node that does not run, such as /var/lib/cassandra/data");
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
        List<CompressionInfo> ofZiptier = new ArrayList<>();
        int others = 0;
        for (Path folder : folders) {
            for (Path file : files(folder)) {
                CompressionInfo info = CompressionInfo.read(file);
                if (info.isOfZiptier())
                    ofZiptier.add(info.renamed());
                else
                    others++;
            }
        }
        for (CompressionInfo info : ofZiptier)
            info.replace();
        return String.format("%d SSTables have the names of Cassandra's own compressors now; %d needed no change",
                             ofZiptier.size(), others);
    }

    private static List<Path> files(Path folder) throws IOException {
        if (!Files.isDirectory(folder))
            throw new IOException(folder + " is no folder: name a data folder of a node");
        List<Path> files = new ArrayList<>();
        try (Stream<Path> tree = Files.walk(folder)) {
            tree.filter(path -> path.getFileName().toString().endsWith("-CompressionInfo.db")).forEach(files::add);
        }
        return files;
    }
}
