package io.ziptier.cassandra;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A migration that ended halfway left a table that neither node could open. */
class MigrateOffTest {
    @TempDir
    Path dir;

    @Test
    void allSSTablesGetTheNameThatReadsTheirFormat() throws Exception {
        Path deflate = file("t1/nb-1-big-CompressionInfo.db", info("ZiptierCompressor", "level", "3", "split", "4"));
        Path lz4 = file("t1/snapshots/s/nb-2-big-CompressionInfo.db", info("ZiptierCompressor", "format", "lz4"));
        byte[] other = info("SnappyCompressor");
        Path snappy = file("t2/nb-1-big-CompressionInfo.db", other);
        Files.setPosixFilePermissions(lz4, PosixFilePermissions.fromString("rw-r-----"));

        assertTrue(MigrateOff.run(List.of(dir)).startsWith("2 SSTables "));
        assertArrayEquals(info("DeflateCompressor"), Files.readAllBytes(deflate));
        assertArrayEquals(info("LZ4Compressor"), Files.readAllBytes(lz4));
        assertArrayEquals(other, Files.readAllBytes(snappy));
        assertEquals("rw-r-----", PosixFilePermissions.toString(Files.getPosixFilePermissions(lz4)));
        try (Stream<Path> files = Files.list(deflate.getParent())) {
            assertEquals(2, files.count(), "the file and the folder of snapshots are all there is");
        }
        assertTrue(MigrateOff.run(List.of(dir)).startsWith("0 SSTables "));
    }

    @Test
    void aFormatOfZiptiersOwnEndsTheCommandBeforeAnythingChanges() throws Exception {
        byte[] before = info("ZiptierCompressor");
        Path deflate = file("t1/nb-1-big-CompressionInfo.db", before);
        file("t2/nb-1-big-CompressionInfo.db", info("ZiptierCompressor", "format", "token"));
        assertRefused("has format 'token', which Cassandra cannot read", deflate, before);
    }

    @Test
    void aDamagedFileEndsTheCommandBeforeAnythingChanges() throws Exception {
        byte[] before = info("ZiptierCompressor");
        Path deflate = file("t1/nb-1-big-CompressionInfo.db", before);
        file("t2/nb-1-big-CompressionInfo.db", new byte[] { 0, 5, 'Z' });
        assertRefused("is damaged", deflate, before);
    }

    @Test
    void linksToOtherDisksAreFollowed() throws Exception {
        byte[] before = info("ZiptierCompressor");
        Path real = file("disk/t1/nb-1-big-CompressionInfo.db", before);
        Path data = Files.createDirectory(dir.resolve("data"));
        Files.createSymbolicLink(data.resolve("t1"), real.getParent());
        Path link = Files.createSymbolicLink(dir.resolve("link"), data);
        assertTrue(MigrateOff.run(List.of(link)).startsWith("1 SSTables "));
        assertArrayEquals(info("DeflateCompressor"), Files.readAllBytes(real));
    }

    /** A file that two folders led to was renamed twice. The second time it had no options left, and became DEFLATE. */
    @Test
    void aFileThatTwoFoldersLeadToIsRenamedOnce() throws Exception {
        Path lz4 = file("data/t1/nb-1-big-CompressionInfo.db", info("ZiptierCompressor", "format", "lz4"));
        Path link = Files.createSymbolicLink(dir.resolve("link"), lz4.getParent());
        assertTrue(MigrateOff.run(List.of(dir, lz4.getParent(), link)).startsWith("1 SSTables "));
        assertArrayEquals(info("LZ4Compressor"), Files.readAllBytes(lz4));
    }

    @Test
    void aFolderWithoutSSTablesIsNoSuccess() throws Exception {
        file("other.txt", new byte[1]);
        IOException refusal = assertThrows(IOException.class, () -> MigrateOff.run(List.of(dir)));
        assertTrue(refusal.getMessage().contains("no SSTable lies below"), refusal.getMessage());
    }

    /** A node without ziptier takes such hints off its list, and never delivers them. */
    @Test
    void hintsThatNeedZiptierEndTheCommandBeforeAnythingChanges() throws Exception {
        byte[] before = info("ZiptierCompressor");
        Path deflate = file("t1/nb-1-big-CompressionInfo.db", before);
        Path hints = file("hints/1-2-2.hints", hintsOf("ZiptierCompressor", ""));
        assertRefused("holds hints that ziptier compressed", deflate, before);
        Files.write(hints, hintsOf("LZ4Compressor", ""));
        assertTrue(MigrateOff.run(List.of(dir)).startsWith("1 SSTables "));
    }

    /** Rows may tell of compressors, as a table of settings does. */
    @Test
    void hintsWhoseRowsNameZiptierNeedItNot() throws Exception {
        file("t1/nb-1-big-CompressionInfo.db", info("ZiptierCompressor"));
        file("hints/1-2-2.hints", hintsOf("LZ4Compressor", "a row about the ZiptierCompressor"));
        file("hints/1-3-2.hints", new byte[] { 0, 0, 0, 2 });
        assertTrue(MigrateOff.run(List.of(dir)).startsWith("1 SSTables "));
    }

    /** A node with a log that is left checks the times of files against that log, and refused to start. */
    @Test
    void filesKeepTheirTimesAndALogOfATransactionEndsTheCommand() throws Exception {
        byte[] before = info("ZiptierCompressor");
        Path deflate = file("t1/nb-1-big-CompressionInfo.db", before);
        Path log = file("t1/nb_txn_compaction_5a1e4b20-0000-11ef-8000-000000000000.log", new byte[0]);
        assertRefused(log + " is the log of a node that stopped amid a flush or a compaction", deflate, before);
        Files.delete(log);
        FileTime written = FileTime.fromMillis(1_600_000_000_000L);
        Files.setLastModifiedTime(deflate, written);
        assertTrue(MigrateOff.run(List.of(dir)).startsWith("1 SSTables "));
        assertArrayEquals(info("DeflateCompressor"), Files.readAllBytes(deflate));
        assertEquals(written, Files.getLastModifiedTime(deflate));
    }

    /** nodetool upgradesstables never rewrites a snapshot, so that the advice of the refusal led nowhere. */
    @Test
    void copiesWithTokensAreNamedAndLeft() throws Exception {
        byte[] tokens = info("ZiptierCompressor", "format", "token"), before = info("ZiptierCompressor");
        String table = "data/snapshots/orders-1b255f4def2540a60000000000000000/";
        List<Path> copies = new ArrayList<>();
        for (String folder : List.of("snapshots/s/", "snapshots/s/.index/", "backups/"))
            copies.add(file(table + folder + "nb-1-big-CompressionInfo.db", tokens));
        Path deflate = file(table + "nb-2-big-CompressionInfo.db", before);
        String told = MigrateOff.run(List.of(dir));
        assertTrue(told.startsWith("1 SSTables "), told);
        for (Path copy : copies) {
            assertTrue(told.contains("left " + copy + ": "), told);
            assertArrayEquals(tokens, Files.readAllBytes(copy));
        }
        assertArrayEquals(info("DeflateCompressor"), Files.readAllBytes(deflate));
        Files.write(deflate, before);
        file(table + "nb-3-big-CompressionInfo.db", tokens);
        assertRefused("nb-3-big-CompressionInfo.db has format 'token'", deflate, before);
    }

    /** The checksums are zero: the command leaves them to the node. */
    private static byte[] hintsOf(String compressor, String rows) throws IOException {
        String header = "{\"compression\":{\"class_name\":\"org.apache.cassandra.io.compress.%s\"}}";
        byte[] text = String.format(header, compressor).getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(2);
        out.write(new byte[8 + 16]);
        out.writeInt(text.length);
        out.writeInt(0);
        out.write(text);
        out.writeInt(0);
        out.write(rows.getBytes(StandardCharsets.UTF_8));
        return bytes.toByteArray();
    }

    private void assertRefused(String sentence, Path file, byte[] before) throws IOException {
        IOException refusal = assertThrows(IOException.class, () -> MigrateOff.run(List.of(dir)));
        assertTrue(refusal.getMessage().contains(sentence), refusal.getMessage());
        assertArrayEquals(before, Files.readAllBytes(file));
    }

    private Path file(String name, byte[] bytes) throws IOException {
        Path file = dir.resolve(name);
        Files.createDirectories(file.getParent());
        return Files.write(file, bytes);
    }

    private static byte[] info(String compressor, String... options) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeUTF(compressor);
        out.writeInt(options.length / 2);
        for (String word : options)
            out.writeUTF(word);
        out.write(new byte[] { 0, 0, 64, 0, 1, 2, 3, 4 });
        return bytes.toByteArray();
    }
}
