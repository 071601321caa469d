package io.ziptier.cassandra;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.util.HashMap;
import java.util.Map;

/**
 * {@code CompressionInfo.db}, the part of an SSTable that names its compressor and the options, and then has the
 * length and the offsets of chunks. No checksum covers the file.
 */
final class CompressionInfo {
    static final String NAME = "ZiptierCompressor";
    /** More options than any compressor has. A larger number is damage. */
    private static final int OPTIONS_MAX = 64;
    private static final Map<String, String> OF_CASSANDRA =
        Map.of("deflate", "DeflateCompressor", "lz4", "LZ4Compressor", "zstd", "ZstdCompressor");

    private final Path file;
    private final String compressor;
    private final Map<String, String> options;
    /** All behind the options. */
    private final byte[] chunks;

    private CompressionInfo(Path file, String compressor, Map<String, String> options, byte[] chunks) {
        this.file = file;
        this.compressor = compressor;
        this.options = options;
        this.chunks = chunks;
    }

    static CompressionInfo read(Path file) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(Files.readAllBytes(file)));
        try {
            String compressor = in.readUTF();
            int count = in.readInt();
            if (count < 0 || count > OPTIONS_MAX)
                throw new IOException(String.format("%s is damaged: it has %d options; restore it from a snapshot",
                                                    file, count));
            Map<String, String> options = new HashMap<>();
            for (int option = 0; option < count; option++)
                options.put(in.readUTF(), in.readUTF());
            return new CompressionInfo(file, compressor, options, in.readAllBytes());
        } catch (EOFException | java.io.UTFDataFormatException damaged) {
            throw new IOException(file + " is damaged: it names no compressor; restore it from a snapshot", damaged);
        }
    }

    boolean isOfZiptier() {
        return compressor.equals(NAME);
    }

    /** Whether Cassandra has a compressor that reads the chunks. */
    boolean isOfCassandra() {
        return OF_CASSANDRA.containsKey(format());
    }

    private String format() {
        return options.getOrDefault("format", "deflate");
    }

    /** The same SSTable with the compressor of Cassandra's own that reads it, with that compressor's defaults. */
    CompressionInfo renamed() throws IOException {
        if (!isOfCassandra())
            throw new IOException(String.format("%s has format '%s', which Cassandra cannot read: "
                                                + "alter the table, and run nodetool upgradesstables -a first",
                                                file, format()));
        return new CompressionInfo(file, OF_CASSANDRA.get(format()), Map.of(), chunks);
    }

    /** Puts this in the place of the file, for the same owner, as one step that a power cut does not halve. */
    void replace() throws IOException {
        // Cassandra takes no file with such a name for a part of an SSTable.
        Path written = Files.createTempFile(file.toAbsolutePath().getParent(), ".ziptier-", ".tmp");
        try {
            try (FileChannel channel = FileChannel.open(written, StandardOpenOption.WRITE)) {
                ByteBuffer bytes = ByteBuffer.wrap(toBytes());
                while (bytes.hasRemaining())
                    channel.write(bytes);
                channel.force(true);
            }
            copyAttributes(written);
            Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(written);
        }
        try (FileChannel folder = FileChannel.open(file.toAbsolutePath().getParent())) {
            folder.force(true);
        }
    }

    /** A node starts only if the files of an SSTable are as old as the log of a transaction says. */
    private void copyAttributes(Path written) throws IOException {
        PosixFileAttributes old = Files.readAttributes(file, PosixFileAttributes.class);
        PosixFileAttributeView view = Files.getFileAttributeView(written, PosixFileAttributeView.class);
        view.setPermissions(old.permissions());
        view.setGroup(old.group());
        view.setOwner(old.owner());
        view.setTimes(old.lastModifiedTime(), null, null);
    }

    private byte[] toBytes() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeUTF(compressor);
        out.writeInt(options.size());
        for (Map.Entry<String, String> option : options.entrySet()) {
            out.writeUTF(option.getKey());
            out.writeUTF(option.getValue());
        }
        out.write(chunks);
        return bytes.toByteArray();
    }
}
