package io.ziptier.cassandra;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import javax.management.ObjectName;

import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.DeflateCompressor;
import org.apache.cassandra.io.compress.ICompressor;
import org.apache.cassandra.io.compress.LZ4Compressor;
import org.apache.cassandra.io.compress.ZiptierCompressor;
import org.apache.cassandra.io.compress.ZstdCompressor;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

import io.ziptier.cassandra.node.Corpus;
import io.ziptier.codec.DamagedException;

/** Chunks that Cassandra's own compressors could not read, and failures of an engine that looked like damage. */
class ChunksTest {
    private static final int[] LENGTHS = { 0, 1, 100, 4096, 16384, 65536 };
    private static final BufferType[] DIRECT = { BufferType.OFF_HEAP, BufferType.OFF_HEAP };

    @ParameterizedTest
    @ValueSource(strings = { "deflate", "lz4", "zstd" })
    void eachReadsWhatTheOtherWrote(String format) throws Exception {
        Corpus corpus = Corpus.read();
        ICompressor ziptier = ZiptierCompressor.create(Map.of("format", format)), cassandra = ofCassandra(format);
        for (int length : LENGTHS) {
            for (BufferType[] types : pairs()) {
                ByteBuffer raw = copy(corpus.piece(length + 7, length), types[0]);
                assertEquals(raw, passed(raw, ziptier, ziptier, types), format + " of " + length);
                // Cassandra's LZ4 and zstd know direct buffers only, and its DEFLATE pairs of one type.
                if (types[0] == BufferType.OFF_HEAP && types[1] == BufferType.OFF_HEAP && length > 0) {
                    assertEquals(raw, passed(raw, ziptier, cassandra, types), format + " of " + length);
                    assertEquals(raw, passed(raw, cassandra, ziptier, types), format + " of " + length);
                }
            }
        }
    }

    /** A node that went back to Cassandra's own compressor has the chunks of the former options. */
    @ParameterizedTest
    @ValueSource(strings = { "dynamic", "fixed" })
    void cassandraReadsChunksInParts(String huffman) throws Exception {
        ICompressor whole = ZiptierCompressor.create(Map.of("huffman", huffman));
        ICompressor split = ZiptierCompressor.create(Map.of("huffman", huffman, "split", "4"));
        for (int length : LENGTHS) {
            ByteBuffer raw = copy(Corpus.read().piece(length + 7, length), BufferType.OFF_HEAP);
            assertEquals(raw, passed(raw, split, whole, DIRECT));
            assertEquals(raw, passed(raw, whole, split, DIRECT));
            // Nothing at all is a stored block, and a last one.
            if (length == 0)
                continue;
            assertEquals(Math.min(4, Math.max(1, length / 1024)),
                         1 + marks(compressed(raw, split, BufferType.OFF_HEAP)));
            assertEquals(raw, passed(raw, split, ofCassandra("deflate"), DIRECT));
        }
    }

    /** Empty stored blocks in a chunk. */
    private static int marks(ByteBuffer chunk) {
        int marks = 0;
        for (int at = 0; at + 4 <= chunk.limit(); at++)
            marks += chunk.order(ByteOrder.BIG_ENDIAN).getInt(at) == 0x0000ffff ? 1 : 0;
        return marks;
    }

    @Test
    void onlyDeflateHasParts() {
        for (String[] wrong : new String[][] {
            { "lz4", "4", "ZiptierCompressor knows 'split' with format 'deflate' only: "
                          + "leave it out with format 'lz4'" },
            { "deflate", "0", "ZiptierCompressor cannot use split '0': choose a number from 1 to 16" },
            { "deflate", "four", "ZiptierCompressor cannot use split 'four': choose a number from 1 to 16" },
        }) {
            Map<String, String> options = Map.of("format", wrong[0], "split", wrong[1]);
            assertEquals(wrong[2], assertThrows(ConfigurationException.class,
                                                () -> ZiptierCompressor.create(options)).getMessage());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = { "deflate", "lz4", "token", "zstd" })
    void randomBytesFitIntoTheStatedBuffer(String format) throws Exception {
        ICompressor ziptier = ZiptierCompressor.create(options(format));
        byte[] noise = new byte[65536];
        new Random(1).nextBytes(noise);
        for (int length : LENGTHS) {
            ByteBuffer raw = copy(ByteBuffer.wrap(noise, 0, length), BufferType.OFF_HEAP);
            assertEquals(raw, passed(raw, ziptier, ziptier, DIRECT));
        }
    }

    /**
     * 25,000 chunks of each format, 100,000 in all, with one flipped bit. DEFLATE has a checksum; the other formats at
     * least never fail otherwise.
     */
    @ParameterizedTest
    @ValueSource(strings = { "deflate", "lz4", "token", "zstd" })
    void damageIsAnIOException(String format) throws Exception {
        ICompressor ziptier = ZiptierCompressor.create(options(format));
        ByteBuffer raw = copy(Corpus.read().piece(3, 16384), BufferType.OFF_HEAP);
        ByteBuffer chunk = compressed(raw, ziptier, BufferType.OFF_HEAP);
        Random random = new Random(2);
        int reported = 0;
        for (int round = 0; round < 25_000; round++) {
            int at = random.nextInt(chunk.limit()), bit = 1 << random.nextInt(8);
            chunk.put(at, (byte) (chunk.get(at) ^ bit));
            ByteBuffer back = BufferType.OFF_HEAP.allocate(16384);
            try {
                ziptier.uncompress(chunk.duplicate(), back);
                // Bits of the header that carry no data may be others.
                assertTrue(!format.equals("deflate") || back.flip().equals(raw), "byte " + at + ", bit " + bit);
            } catch (IOException damaged) {
                assertTrue(damaged.getMessage().startsWith("ZiptierCompressor cannot uncompress a chunk of "));
                reported++;
            }
            chunk.put(at, (byte) (chunk.get(at) ^ bit));
        }
        assertTrue(reported > 1000, reported + " of 25,000 are reported");
    }

    /** Cassandra's LZ4Compressor, which was asked next, gave former bytes of the buffer for those that were missing. */
    @Test
    void lz4ThatStatesAnotherLengthIsDamaged() throws Exception {
        ChunkOptions options = ChunkOptions.parse(Map.of("format", "lz4"));
        ChunkCodec lz4 = new ChunkCodec(options, NativeBlocks.open(options));
        int damaged = 0;
        for (BufferType[] types : pairs()) {
            ByteBuffer raw = copy(Corpus.read().piece(9, 4096), types[0]);
            ByteBuffer chunk = types[1].allocate(lz4.compressedBytesMax(4096));
            lz4.compress(raw, chunk);
            chunk.flip().order(ByteOrder.LITTLE_ENDIAN).putInt(0, 4097);
            IOException told = assertThrows(IOException.class, () -> lz4.uncompress(chunk, types[0].allocate(4200)));
            assertTrue(told.getMessage().endsWith(" bytes as lz4: it has 4096 bytes and states 4097"),
                       told.getMessage());
            assertEquals(++damaged, lz4.counters().getDamagedChunks());
        }
    }

    @Test
    void lz4ThatStatesAnotherLengthIsDamagedWithoutTheLibrary() throws Exception {
        ChunkCodec lz4 = new ChunkCodec(ChunkOptions.parse(Map.of("format", "lz4")), null);
        for (BufferType[] types : pairs()) {
            ByteBuffer raw = copy(Corpus.read().piece(9, 4096), types[0]);
            ByteBuffer chunk = types[1].allocate(lz4.compressedBytesMax(4096));
            lz4.compress(raw, chunk);
            chunk.flip().order(ByteOrder.LITTLE_ENDIAN);
            for (int stated : new int[] { -1, 0, 4095, 4097, 4200, 4201, Integer.MAX_VALUE }) {
                chunk.putInt(0, stated);
                assertThrows(IOException.class, () -> lz4.uncompress(chunk.duplicate(), types[0].allocate(4200)));
            }
        }
    }

    /** Cassandra's zstd read such a chunk as no bytes. */
    @ParameterizedTest
    @ValueSource(strings = { "deflate", "lz4", "token", "zstd" })
    void anEmptyChunkIsDamaged(String format) {
        ChunkOptions options = ChunkOptions.parse(options(format));
        for (BlockCodec blocks : new BlockCodec[] { NativeBlocks.open(options), null }) {
            ChunkCodec codec = new ChunkCodec(options, blocks);
            for (BufferType type : BufferType.values()) {
                ByteBuffer empty = type.allocate(0);
                assertThrows(IOException.class, () -> codec.uncompress(empty, type.allocate(4096)));
            }
            assertEquals(BufferType.values().length, codec.counters().getDamagedChunks());
        }
    }

    @Test
    void tokensComeBackByTheirDictionaryAlone() throws Exception {
        ICompressor tokens = ZiptierCompressor.create(options("token"));
        assertSame(tokens, ZiptierCompressor.create(options("token")));
        ICompressor others = ZiptierCompressor.create(tokenOptions(11));
        assertNotSame(tokens, others);
        Corpus corpus = Corpus.read();
        for (int length : LENGTHS) {
            for (BufferType[] types : pairs()) {
                ByteBuffer raw = copy(corpus.piece(length + 7, length), types[0]);
                assertEquals(raw, passed(raw, tokens, tokens, types), "tokens of " + length);
            }
        }
        ByteBuffer chunk = compressed(copy(corpus.piece(3, 16384), BufferType.OFF_HEAP), tokens, BufferType.OFF_HEAP);
        assertTrue(chunk.limit() < 16384 * 6 / 10, chunk.limit() + " bytes");
        assertThrows(IOException.class, () -> others.uncompress(chunk, BufferType.OFF_HEAP.allocate(16384)));
    }

    /** SSTables are kept for years: the Rust half has the files, of which none is ever written anew. */
    @ParameterizedTest
    @ValueSource(strings = { "short", "long" })
    void tokensOfFormerReleasesAreRead(String name) throws Exception {
        Path files = Path.of(System.getProperty("basedir"), "../../crates/codec/tests/fixtures/token");
        byte[] dictionary = Files.readAllBytes(files.resolve(name + ".dictionary"));
        String option = Base64.getEncoder().encodeToString(dictionary);
        ICompressor tokens = ZiptierCompressor.create(Map.of("format", "token", "dictionary", option));
        for (String kind : new String[] { "raw", "tokens", "zstd" }) {
            ByteBuffer raw = ByteBuffer.wrap(Files.readAllBytes(files.resolve(kind)));
            byte[] stored = Files.readAllBytes(files.resolve(name + "." + kind));
            ByteBuffer chunk = copy(ByteBuffer.wrap(stored), BufferType.OFF_HEAP);
            ByteBuffer back = BufferType.OFF_HEAP.allocate(raw.limit());
            tokens.uncompress(chunk, back);
            assertEquals(raw, back.flip(), kind);
        }
    }

    @Test
    void wrongDictionariesAreTold() {
        String stored = options("token").get("dictionary");
        for (String[] wrong : new String[][] {
            { null, "needs a 'dictionary' for format 'token': ziptier cassandra train makes one" },
            { "?", "cannot read the 'dictionary', which is no base64: " },
            { "AAAA", "cannot work with format 'token': " },
            { "AAAA" + stored.substring(4), "cannot work with format 'token': " },
            { "A".repeat(65536), "cannot keep a 'dictionary' of 65536 characters, for an SSTable has room for 65535" },
        }) {
            Map<String, String> options = new HashMap<>(Map.of("format", "token"));
            if (wrong[0] != null)
                options.put("dictionary", wrong[0]);
            String said = assertThrows(ConfigurationException.class,
                                       () -> ZiptierCompressor.create(options)).getMessage();
            assertTrue(said.startsWith("ZiptierCompressor " + wrong[1]), said);
        }
        assertThrows(ConfigurationException.class,
                     () -> ZiptierCompressor.create(Map.of("format", "lz4", "dictionary", stored)));
    }

    /** The options of a format; tokens get a dictionary of the corpus. */
    private static Map<String, String> options(String format) {
        return format.equals("token") ? tokenOptions(0) : Map.of("format", format);
    }

    private static Map<String, String> tokenOptions(int from) {
        try {
            return Map.of("format", "token", "dictionary", Corpus.read().dictionary(from));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** A node kept the codec of each dictionary that it had ever met. */
    @Test
    @Timeout(value = 1, unit = TimeUnit.MINUTES)
    void aDictionaryThatNothingUsesIsForgotten() throws Exception {
        Map<String, String> used = tokenOptions(200);
        ICompressor kept = ZiptierCompressor.create(used);
        List<ICompressor> held = new ArrayList<>();
        List<ObjectName> names = new ArrayList<>();
        for (int number = 100; number < 103; number++) {
            Map<String, String> options = tokenOptions(number);
            held.add(ZiptierCompressor.create(options));
            names.add(name(options));
        }
        assertTrue(namesOfTokens().containsAll(names));
        held.clear();
        while (names.stream().anyMatch(namesOfTokens()::contains)) {
            System.gc();
            Thread.sleep(10);
            assertSame(kept, ZiptierCompressor.create(used));
        }
        assertTrue(namesOfTokens().contains(name(used)));
    }

    private static Set<ObjectName> namesOfTokens() throws Exception {
        ObjectName pattern = new ObjectName("io.ziptier:type=Compressor,format=token,*");
        return ManagementFactory.getPlatformMBeanServer().queryNames(pattern, null);
    }

    private static ObjectName name(Map<String, String> options) throws Exception {
        return new ObjectName("io.ziptier:type=Compressor," + ChunkOptions.parse(options));
    }

    @Test
    void aStreamThatEndsEarlyOrGoesOnIsDamaged() throws Exception {
        ICompressor zlib = ChunkFormat.DEFLATE.ofCassandra(6), ziptier = ZiptierCompressor.create(Map.of());
        ByteBuffer raw = copy(Corpus.read().piece(3, 4096), BufferType.OFF_HEAP);
        for (ICompressor compressor : List.of(zlib, ziptier)) {
            ByteBuffer chunk = compressed(raw, compressor, BufferType.OFF_HEAP);
            for (int length = 0; length < chunk.limit(); length++) {
                ByteBuffer cut = chunk.duplicate().limit(length);
                assertThrows(IOException.class,
                             () -> compressor.uncompress(cut, BufferType.OFF_HEAP.allocate(4096)));
            }
            assertThrows(IOException.class,
                         () -> compressor.uncompress(chunk.duplicate(), BufferType.OFF_HEAP.allocate(4095)));
        }
    }

    @Test
    void theReplaysArraysHonourTheirOffsets() throws Exception {
        ICompressor ziptier = ZiptierCompressor.create(Map.of("format", "lz4"));
        ByteBuffer raw = Corpus.read().piece(5, 3000);
        ByteBuffer chunk = compressed(raw.duplicate(), ziptier, BufferType.ON_HEAP);
        byte[] input = new byte[chunk.limit() + 20], output = new byte[4000];
        chunk.duplicate().get(input, 13, chunk.limit());
        assertEquals(3000, ziptier.uncompress(input, 13, chunk.limit(), output, 500));
        assertEquals(raw, ByteBuffer.wrap(output, 500, 3000));
        assertEquals(0, output[499] | output[3500], "bytes beside the chunk");
    }

    @ParameterizedTest
    @ValueSource(strings = { "deflate", "lz4", "zstd" })
    void withoutTheLibraryCassandrasOwnCodeWorks(String format) throws Exception {
        ChunkCodec codec = new ChunkCodec(ChunkOptions.parse(Map.of("format", format)), null);
        ICompressor withLibrary = ZiptierCompressor.create(Map.of("format", format));
        for (BufferType[] types : pairs()) {
            ByteBuffer raw = copy(Corpus.read().piece(9, 16384), types[0]);
            ByteBuffer chunk = types[1].allocate(codec.compressedBytesMax(16384));
            codec.compress(raw.duplicate(), chunk);
            ByteBuffer back = types[0].allocate(16384), again = types[0].allocate(16384);
            withLibrary.uncompress(chunk.flip().duplicate(), again);
            codec.uncompress(chunk, back);
            assertEquals(raw, back.flip());
            assertEquals(raw, again.flip());
        }
        assertEquals("cassandra", codec.counters().getWorker());
    }

    @Test
    void anEngineThatFailsIsNoDamage() throws Exception {
        ChunkCodec codec = new ChunkCodec(ChunkOptions.parse(Map.of()), new FailingBlocks());
        ByteBuffer raw = copy(Corpus.read().piece(9, 16384), BufferType.OFF_HEAP);
        ByteBuffer chunk = BufferType.OFF_HEAP.allocate(codec.compressedBytesMax(16384));
        codec.compress(raw.duplicate(), chunk);
        ByteBuffer back = BufferType.OFF_HEAP.allocate(16384);
        codec.uncompress(chunk.flip(), back);
        assertEquals(raw, back.flip());
        assertEquals(1, codec.counters().getCompressedByCassandra());
        assertEquals(1, codec.counters().getUncompressedByCassandra());
        assertEquals(0, codec.counters().getDamagedChunks());
    }

    /** Nothing but the library reads tokens. Its failure became an IOException, and so a corrupt SSTable. */
    @Test
    void anEngineThatFailsOnTokensIsNoDamage() throws Exception {
        ChunkCodec codec = new ChunkCodec(ChunkOptions.parse(options("token")), new FailingBlocks());
        ByteBuffer raw = copy(Corpus.read().piece(9, 4096), BufferType.OFF_HEAP);
        ByteBuffer chunk = compressed(raw, ZiptierCompressor.create(options("token")), BufferType.OFF_HEAP);
        IllegalStateException failure = assertThrows(
            IllegalStateException.class,
            () -> codec.uncompress(chunk, BufferType.OFF_HEAP.allocate(4096)));
        assertEquals("the queue is full", failure.getMessage());
        assertEquals(0, codec.counters().getDamagedChunks());
        assertSame(failure, codec.counters().lastFailure());
    }

    @Test
    void damageKeepsTheFailureOfTheLibrary() throws Exception {
        ByteBuffer noChunk = BufferType.OFF_HEAP.allocate(100).put(new byte[] { 0x48, (byte) 0x89 }).rewind();
        ChunkCodec failing = new ChunkCodec(ChunkOptions.parse(Map.of()), new FailingBlocks());
        IOException damaged = assertThrows(
            IOException.class, () -> failing.uncompress(noChunk.duplicate(), BufferType.OFF_HEAP.allocate(4096)));
        assertEquals("the queue is full", damaged.getSuppressed()[0].getMessage());
        assertEquals(1, failing.counters().getDamagedChunks());
        ICompressor tokens = ZiptierCompressor.create(options("token"));
        damaged = assertThrows(IOException.class,
                               () -> tokens.uncompress(noChunk.duplicate(), BufferType.OFF_HEAP.allocate(4096)));
        assertEquals(DamagedException.class, damaged.getSuppressed()[0].getClass());
    }

    /** A flush waited for zstd of level 19, though Cassandra flushes tables of its own slow compressors by LZ4. */
    @ParameterizedTest
    @CsvSource({ "deflate,6,7", "lz4,1,2", "token,1,2", "zstd,3,4" })
    void onlyLevelsUpToTheDefaultFlush(String format, String fast, String slow) {
        Map<String, String> options = new HashMap<>(options(format));
        assertEquals(EnumSet.allOf(ICompressor.Uses.class), ZiptierCompressor.create(options).recommendedUses());
        options.put("level", fast);
        assertEquals(EnumSet.allOf(ICompressor.Uses.class), ZiptierCompressor.create(options).recommendedUses());
        options.put("level", slow);
        assertEquals(EnumSet.of(ICompressor.Uses.GENERAL), ZiptierCompressor.create(options).recommendedUses());
    }

    @Test
    void equalOptionsShareACompressor() {
        assertSame(ZiptierCompressor.create(Map.of()),
                   ZiptierCompressor.create(new HashMap<>(Map.of("format", "deflate", "level", "6"))));
        assertNotSame(ZiptierCompressor.create(Map.of()), ZiptierCompressor.create(Map.of("level", "1")));
        assertNotSame(ZiptierCompressor.create(Map.of()), ZiptierCompressor.create(Map.of("split", "2")));
    }

    @Test
    void eightThreadsShareACompressor() throws Exception {
        Corpus corpus = Corpus.read();
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try {
            List<Callable<Integer>> tasks = new ArrayList<>();
            for (int thread = 0; thread < 8; thread++) {
                int first = thread * 1000;
                tasks.add(() -> {
                    ICompressor ziptier = ZiptierCompressor.create(Map.of());
                    int equal = 0;
                    for (int chunk = 0; chunk < 300; chunk++) {
                        ByteBuffer raw = copy(corpus.piece(first + chunk, 16384), BufferType.OFF_HEAP);
                        equal += passed(raw, ziptier, ziptier, DIRECT).equals(raw) ? 1 : 0;
                    }
                    return equal;
                });
            }
            for (Future<Integer> equal : threads.invokeAll(tasks))
                assertEquals(300, equal.get());
        } finally {
            threads.shutdown();
        }
    }

    /** Fails in the middle of its work, as a device may. */
    static final class FailingBlocks implements BlockCodec {
        @Override
        public int compressedBytesMax(int rawBytes) {
            return rawBytes;
        }

        @Override
        public void compress(ByteBuffer raw, ByteBuffer block) {
            raw.position(raw.limit());
            block.put((byte) 1);
            throw new IllegalStateException("the queue is full");
        }

        @Override
        public void decompress(ByteBuffer block, ByteBuffer raw) {
            block.position(block.limit());
            raw.put((byte) 1);
            throw new IllegalStateException("the queue is full");
        }

        @Override
        public String worker() {
            return "hardware";
        }

        @Override
        public Map<String, Long> counters() {
            return Map.of();
        }
    }

    private static ICompressor ofCassandra(String format) {
        if (format.equals("deflate"))
            return DeflateCompressor.create(Map.of());
        return format.equals("lz4") ? LZ4Compressor.create(Map.of()) : ZstdCompressor.create(Map.of());
    }

    private static List<BufferType[]> pairs() {
        List<BufferType[]> pairs = new ArrayList<>();
        for (BufferType of : BufferType.values()) {
            for (BufferType to : BufferType.values())
                pairs.add(new BufferType[] { of, to });
        }
        return pairs;
    }

    /** Compresses into a buffer of one type, and uncompresses into one of the other. */
    static ByteBuffer passed(ByteBuffer raw, ICompressor writer, ICompressor reader, BufferType[] types)
        throws IOException {
        ByteBuffer chunk = compressed(raw.duplicate(), writer, types[1]);
        ByteBuffer back = types[0].allocate(raw.remaining());
        reader.uncompress(chunk, back);
        assertEquals(0, chunk.remaining(), "the whole chunk is consumed");
        return back.flip();
    }

    static ByteBuffer compressed(ByteBuffer raw, ICompressor writer, BufferType type) throws IOException {
        ByteBuffer chunk = type.allocate(writer.initialCompressedBufferLength(raw.remaining()));
        ByteBuffer input = raw.duplicate();
        writer.compress(input, chunk);
        assertEquals(0, input.remaining(), "all is compressed");
        return chunk.flip();
    }

    static ByteBuffer copy(ByteBuffer source, BufferType type) {
        return type.allocate(source.remaining()).put(source.duplicate()).flip();
    }
}
