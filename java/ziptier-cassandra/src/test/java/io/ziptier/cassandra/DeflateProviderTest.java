package io.ziptier.cassandra;

import static io.ziptier.cassandra.ChunksTest.compressed;
import static io.ziptier.cassandra.ChunksTest.copy;
import static io.ziptier.cassandra.ChunksTest.passed;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.io.compress.AbstractCompressionProvider;
import org.apache.cassandra.io.compress.BufferType;
import org.apache.cassandra.io.compress.DeflateCompressor;
import org.apache.cassandra.io.compress.ICompressor;
import org.apache.cassandra.io.compress.LZ4Compressor;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.Corpus;
import io.ziptier.codec.Codec;
import io.ziptier.codec.EngineException;

/** A substitute wrote a table that names DeflateCompressor, and DeflateCompressor could not read the table. */
class DeflateProviderTest {
    private static final DeflateCompressor BUILT_IN = DeflateCompressor.create(Map.of());
    private static final List<Map<String, String>> PARAMETERS = List.of(
        Map.of(), Map.of("level", "1"), Map.of("level", "12"), Map.of("huffman", "fixed"), Map.of("path", "software"),
        Map.of("split", "4"));

    /** The steps of a node at its start and at each table, with the check that it makes of each compressor. */
    private static ICompressor compressor(Map<String, String> parameters) throws Exception {
        DeflateProvider provider = new DeflateProvider();
        provider.init(parameters);
        assertTrue(provider.isHealthy());
        ICompressor compressor = provider.createCompressor(DeflateCompressor.class, Map.of());
        assertSame(DeflateCompressor.class, serializedAs(compressor));
        return compressor;
    }

    /** Cassandra 5.0 has no such method in its interface, and a newer one calls the method of this signature. */
    private static Object serializedAs(ICompressor compressor) throws Exception {
        Method method = compressor.getClass().getMethod("serializedAs");
        assertEquals("java.lang.Class<? extends " + ICompressor.class.getName() + ">",
                     method.getGenericReturnType().getTypeName());
        method.setAccessible(true);
        return method.invoke(compressor);
    }

    @Test
    void eachReadsWhatTheOtherWrote() throws Exception {
        Corpus corpus = Corpus.read();
        for (Map<String, String> parameters : PARAMETERS) {
            ICompressor substitute = compressor(parameters);
            for (int length : new int[] { 1, 100, 4096, 16384, 65536 }) {
                for (BufferType type : BufferType.values()) {
                    BufferType[] types = { type, type };
                    ByteBuffer raw = copy(corpus.piece(length + 7, length), type);
                    assertEquals(raw, passed(raw, substitute, BUILT_IN, types), parameters + " of " + length);
                    assertEquals(raw, passed(raw, BUILT_IN, substitute, types), parameters + " of " + length);
                    assertEquals(raw, passed(raw, substitute, substitute, types), parameters + " of " + length);
                }
            }
        }
    }

    /** Half zeros and half noise, which a node of CEP-49 passes both ways at its start. It does not start otherwise. */
    @Test
    void theCheckOfANodeAtItsStartPasses() throws Exception {
        byte[] payload = new byte[4096], noise = new byte[2048];
        new Random(4).nextBytes(noise);
        System.arraycopy(noise, 0, payload, 2048, 2048);
        for (Map<String, String> parameters : PARAMETERS) {
            ICompressor substitute = compressor(parameters);
            for (ICompressor[] pair : new ICompressor[][] { { substitute, BUILT_IN }, { BUILT_IN, substitute } }) {
                ByteBuffer raw = copy(ByteBuffer.wrap(payload), pair[0].preferredBufferType());
                ByteBuffer written = compressed(raw, pair[0], pair[0].preferredBufferType());
                ByteBuffer back = pair[1].preferredBufferType().allocate(payload.length);
                pair[1].uncompress(copy(written, pair[1].preferredBufferType()), back);
                assertEquals(raw, back.flip(), parameters.toString());
            }
        }
    }

    @Test
    void allElseIsAsTheBuiltInHasIt() throws Exception {
        DeflateProvider provider = new DeflateProvider();
        provider.init(Map.of());
        assertTrue(provider.isHealthy());
        ICompressor substitute = provider.createCompressor(DeflateCompressor.class, null);
        assertSame(substitute, provider.createCompressor(DeflateCompressor.class, Map.of()));
        assertEquals(BUILT_IN.supportedOptions(), substitute.supportedOptions());
        assertEquals(BUILT_IN.recommendedUses(), substitute.recommendedUses());
        for (BufferType type : BufferType.values())
            assertTrue(!BUILT_IN.supports(type) || substitute.supports(type), type.name());
    }

    /** Adler-32 misses one flip of the 14,504 in this chunk of the built-in, which zlib itself reads as other text. */
    @Test
    void damageIsToldWhereverZlibTellsOfIt() throws Exception {
        ICompressor substitute = compressor(Map.of());
        ByteBuffer raw = copy(Corpus.read().piece(3, 4096), BufferType.OFF_HEAP);
        for (ICompressor writer : List.of(substitute, BUILT_IN)) {
            ByteBuffer chunk = compressed(raw, writer, BufferType.OFF_HEAP);
            int flips = chunk.limit() * 8, told = 0;
            for (int flip = 0; flip < flips; flip++) {
                byte sound = chunk.get(flip / 8);
                chunk.put(flip / 8, (byte) (sound ^ 1 << flip % 8));
                ByteBuffer back = BufferType.OFF_HEAP.allocate(4096);
                try {
                    substitute.uncompress(chunk.duplicate(), back);
                    assertEquals(byZlib(chunk.duplicate(), 4096), back.flip(), "bit " + flip);
                } catch (IOException damaged) {
                    told++;
                }
                chunk.put(flip / 8, sound);
            }
            assertTrue(told > flips - 10, told + " of " + flips + " flips are told");
            ByteBuffer cut = chunk.duplicate().limit(chunk.limit() - 1);
            assertThrows(IOException.class, () -> substitute.uncompress(cut, BufferType.OFF_HEAP.allocate(4096)));
        }
    }

    private static ByteBuffer byZlib(ByteBuffer chunk, int rawBytes) throws DataFormatException {
        Inflater inflater = new Inflater();
        try {
            ByteBuffer raw = ByteBuffer.allocate(rawBytes + 1);
            inflater.setInput(chunk);
            inflater.inflate(raw);
            assertTrue(inflater.finished(), "zlib reads the whole stream");
            return raw.flip();
        } finally {
            inflater.end();
        }
    }

    @Test
    void wrongParametersAreTold() {
        for (String[] wrong : new String[][] {
            { "level", "0", "ZiptierCompressor cannot use level '0' with format 'deflate': "
                            + "choose a number from 1 to 12" },
            { "huffman", "canned", "ZiptierCompressor cannot use huffman 'canned', "
                                   + "for Cassandra alone could not read it: choose dynamic or fixed" },
            { "path", "fast", "ZiptierCompressor cannot use path 'fast': choose auto, hardware or software" },
            { "format", "lz4", "ZiptierCompressor has no parameter 'format' in compressor_providers: "
                               + "choose among huffman, level, path, split" },
            { "split", "0", "ZiptierCompressor cannot use split '0': choose a number from 1 to 16" },
        }) {
            Map<String, String> parameters = Map.of(wrong[0], wrong[1]);
            String said = assertThrows(ConfigurationException.class,
                                       () -> new DeflateProvider().init(parameters)).getMessage();
            assertTrue(said.startsWith(wrong[2]), said);
        }
    }

    /** A node that demands a device in its own file is told that it has none, before it has opened a table. */
    @Test
    void onPathHardwareTheHealthIsThatOfTheDevice() {
        boolean hasDevice = true;
        try (Codec codec = Codec.open(Map.of("format", "deflate", "path", "hardware"))) {
            assertEquals("hardware", codec.worker());
        } catch (EngineException none) {
            hasDevice = false;
        }
        DeflateProvider provider = new DeflateProvider();
        provider.init(Map.of("path", "hardware"));
        assertEquals(hasDevice, provider.isHealthy());
        if (!hasDevice)
            assertThrows(IllegalStateException.class,
                         () -> provider.createCompressor(DeflateCompressor.class, Map.of()));
    }

    @Test
    void anEngineThatFailsIsNotHealthy() {
        ChunkCodec failing = new ChunkCodec(ChunkOptions.ofNode(Map.of()), new ChunksTest.FailingBlocks());
        String said = assertThrows(IOException.class, () -> DeflateProvider.pass(failing)).getMessage();
        assertTrue(said.contains("did not come back by worker 'hardware'"), said);
    }

    @Test
    void otherTablesAreRefused() throws Exception {
        DeflateProvider provider = new DeflateProvider();
        provider.init(new HashMap<>());
        assertTrue(provider.isHealthy());
        assertThrows(IllegalStateException.class, () -> provider.createCompressor(LZ4Compressor.class, Map.of()));
        assertThrows(ConfigurationException.class,
                     () -> provider.createCompressor(DeflateCompressor.class, Map.of("level", "1")));
        assertFalse(((AbstractCompressionProvider) provider).isFailOnMissingProvider());
    }
}
