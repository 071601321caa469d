package io.ziptier.examples.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.lucene.codecs.Codec;
import org.apache.lucene.codecs.lucene912.Lucene912Codec;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.CheckIndex;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.CorruptIndexException;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.SegmentInfos;
import org.apache.lucene.index.SegmentReader;
import org.apache.lucene.index.StoredFields;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A merge copied the blocks of a segment, and the text of a document came back as that of another one. */
class StoredFieldsTest {
    private static final int DOCUMENTS = 3_000;

    @TempDir
    Path dir;

    @Test
    void documentsSurviveDeletesMergesAndAnotherOpening() throws Exception {
        byte[] text = corpus();
        try (Directory directory = FSDirectory.open(dir);
             IndexWriter writer = new IndexWriter(directory, config(new ZiptierCodec()))) {
            for (int id = 0; id < DOCUMENTS; id++) {
                writer.addDocument(document(id, text(text, id)));
                if (id % 700 == 0) {
                    writer.commit();
                }
            }
            for (int id = 0; id < DOCUMENTS; id += 7) {
                writer.deleteDocuments(new Term("id", Integer.toString(id)));
            }
            writer.updateDocument(new Term("id", "1"), document(1, text(text, 5)));
            writer.commit();
            assertDocuments(directory, text, 5);
            writer.forceMerge(1);
            writer.commit();
            assertDocuments(directory, text, 1);
        }
        // Another opening finds the codec by its name alone.
        try (Directory directory = FSDirectory.open(dir); CheckIndex check = new CheckIndex(directory)) {
            assertDocuments(directory, text, 1);
            CheckIndex.Status status = check.checkIndex();
            assertTrue(status.clean);
            assertEquals("Ziptier912", status.segmentInfos.get(0).codec.getName());
        }
    }

    @Test
    void aNewIndexOfLucenesOwnCodecTakesTheDocuments() throws Exception {
        Path of = Files.createDirectory(dir.resolve("ziptier")), back = Files.createDirectory(dir.resolve("lucene"));
        byte[] text = corpus();
        try (Directory directory = FSDirectory.open(of); Directory other = FSDirectory.open(back);
             IndexWriter writer = new IndexWriter(directory, config(new ZiptierCodec()));
             IndexWriter target = new IndexWriter(other, config(new Lucene912Codec()))) {
            for (int id = 0; id < 200; id++) {
                writer.addDocument(document(id, text(text, id)));
            }
            writer.commit();
            try (DirectoryReader reader = DirectoryReader.open(directory)) {
                target.addIndexes((CodecReader) reader.leaves().get(0).reader());
            }
            target.commit();
            assertEquals("Lucene912", SegmentInfos.readLatestCommit(other).info(0).info.getCodec().getName());
            try (DirectoryReader reader = DirectoryReader.open(other)) {
                for (int id = 0; id < 200; id++) {
                    assertEquals(text(text, id), reader.storedFields().document(id).get("text"), "document " + id);
                }
            }
        }
    }

    private static void assertDocuments(Directory directory, byte[] text, int segmentsMin) throws Exception {
        try (DirectoryReader reader = DirectoryReader.open(directory)) {
            assertTrue(reader.leaves().size() >= segmentsMin, reader.leaves().size() + " segments");
            IndexSearcher searcher = new IndexSearcher(reader);
            StoredFields stored = searcher.storedFields();
            for (int id = 0; id < DOCUMENTS; id++) {
                TopDocs found = searcher.search(new TermQuery(new Term("id", Integer.toString(id))), 2);
                assertEquals(id % 7 == 0 ? 0 : 1, found.totalHits.value, "document " + id);
                if (id % 7 != 0) {
                    Document document = stored.document(found.scoreDocs[0].doc);
                    assertEquals(text(text, id == 1 ? 5 : id), document.get("text"), "document " + id);
                }
            }
        }
    }

    /** A single document is one block, so that nearly all of the file lies below the checksum of the block. */
    @Test
    void eachDamagedByteOfABlockIsCorruption() throws Exception {
        byte[] text = corpus();
        String one = new String(text, 0, 20_000, StandardCharsets.ISO_8859_1);
        try (Directory directory = FSDirectory.open(dir);
             IndexWriter writer = new IndexWriter(directory, config(new ZiptierCodec()))) {
            writer.addDocument(document(0, one));
            writer.commit();
        }
        Path fields = files(dir).get(0);
        byte[] sound = Files.readAllBytes(fields);
        assertTrue(sound.length > 5_000, sound.length + " bytes");
        // Lucene's header lies before, and Lucene's checksum of the whole file behind.
        for (int at = 100; at < sound.length - 16; at += 13) {
            byte[] damaged = sound.clone();
            damaged[at] ^= 4;
            Files.write(fields, damaged);
            try (Directory directory = FSDirectory.open(dir);
                 DirectoryReader reader = DirectoryReader.open(directory)) {
                StoredFields stored = reader.storedFields();
                assertThrows(CorruptIndexException.class, () -> stored.document(0), "byte " + at);
                for (LeafReaderContext leaf : reader.leaves()) {
                    assertThrows(CorruptIndexException.class, () -> ((SegmentReader) leaf.reader()).checkIntegrity());
                }
            }
        }
        try (Directory directory = FSDirectory.open(dir); CheckIndex check = new CheckIndex(directory)) {
            assertTrue(!check.checkIndex().clean);
        }
    }

    @Test
    void theFieldsAreSmallerThanThoseOfBestSpeed() throws Exception {
        byte[] text = corpus();
        long bestSpeed = bytes("speed", new Lucene912Codec(Lucene912Codec.Mode.BEST_SPEED), text);
        long best = bytes("compression", new Lucene912Codec(Lucene912Codec.Mode.BEST_COMPRESSION), text);
        long ziptier = bytes("ziptier", new ZiptierCodec(), text);
        System.out.printf("stored fields of %d bytes: BEST_SPEED %d, BEST_COMPRESSION %d, ziptier %d%n",
            text.length, bestSpeed, best, ziptier);
        assertTrue(ziptier < bestSpeed * 9 / 10, ziptier + " bytes beside " + bestSpeed);
    }

    private long bytes(String name, Codec codec, byte[] text) throws Exception {
        Path index = Files.createDirectory(dir.resolve(name));
        try (Directory directory = FSDirectory.open(index);
             IndexWriter writer = new IndexWriter(directory, config(codec))) {
            for (int at = 0; at + 2_000 <= text.length; at += 2_000) {
                writer.addDocument(document(at, new String(text, at, 2_000, StandardCharsets.ISO_8859_1)));
            }
            writer.forceMerge(1);
            writer.commit();
        }
        long bytes = 0;
        for (Path file : files(index)) {
            bytes += Files.size(file);
        }
        return bytes;
    }

    private static IndexWriterConfig config(Codec codec) {
        IndexWriterConfig config = new IndexWriterConfig(null).setCodec(codec).setUseCompoundFile(false);
        config.getMergePolicy().setNoCFSRatio(0);
        return config;
    }

    private static Document document(int id, String text) {
        Document document = new Document();
        document.add(new StringField("id", Integer.toString(id), Field.Store.YES));
        document.add(new StoredField("text", text));
        return document;
    }

    /** From nothing to a document of several blocks. */
    private static String text(byte[] corpus, int id) {
        int length = id % 500 == 3 ? 300_000 : id * 31 % 3_000;
        return new String(corpus, id * 997 % (corpus.length - length), length, StandardCharsets.ISO_8859_1);
    }

    /** The files of stored fields. */
    private static List<Path> files(Path index) throws IOException {
        try (Stream<Path> files = Files.list(index)) {
            return files.filter(file -> file.toString().endsWith(".fdt")).collect(Collectors.toList());
        }
    }

    /** Real files, one behind the other. {@code ZIPTIER_CORPUS} names their folder. */
    private static byte[] corpus() throws IOException {
        try (Stream<Path> tree = Files.walk(Path.of(System.getenv("ZIPTIER_CORPUS")))) {
            List<Path> files = tree.filter(Files::isRegularFile)
                .filter(file -> !file.toString().endsWith(".zst")).sorted().collect(Collectors.toList());
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            for (Path file : files) {
                if (all.size() < 8 << 20) {
                    all.write(Files.readAllBytes(file));
                }
            }
            assertTrue(all.size() > 1 << 20, "the corpus has " + all.size() + " bytes");
            return all.toByteArray();
        }
    }
}
