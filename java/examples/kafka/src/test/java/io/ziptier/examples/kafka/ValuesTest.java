package io.ziptier.examples.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ziptier.codec.Dictionary;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.SerializationException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A consumer with another dictionary took a value for damaged, or gave other bytes than were sent. */
class ValuesTest {
    @TempDir
    Path dir;

    @Test
    void valuesOfAllFormatsComeBack() throws Exception {
        Path tokens = trained("token", 0), zstd = trained("zstd", 0);
        try (ZiptierDeserializer reader = reader(tokens + ", " + zstd)) {
            List<Map<String, String>> configurations = List.of(Map.of(), Map.of("ziptier.format", "lz4"),
                Map.of("ziptier.format", "deflate"), Map.of("ziptier.dictionary", zstd.toString()),
                Map.of("ziptier.format", "token", "ziptier.dictionary", tokens.toString()));
            for (Map<String, String> configuration : configurations) {
                try (ZiptierSerializer writer = new ZiptierSerializer()) {
                    writer.configure(configuration, false);
                    for (int length : new int[] {0, 1, 300, 5_000, 200_000}) {
                        byte[] value = Corpus.piece(length, length), noise = new byte[length];
                        new Random(length).nextBytes(noise);
                        assertArrayEquals(value, reader.deserialize("t", writer.serialize("t", value)));
                        byte[] stored = writer.serialize("t", noise);
                        assertEquals(length + 14, stored.length, "noise grows by the header alone");
                        assertArrayEquals(noise, reader.deserialize("t", stored));
                    }
                    assertNull(reader.deserialize("t", writer.serialize("t", null)), "a tombstone");
                }
            }
        }
    }

    @Test
    void aDictionaryMakesSmallValuesSmaller() throws Exception {
        long plain = 0, tokens = 0, raw = 0;
        try (Values byZstd = Values.writing("zstd", null);
             Values byTokens = Values.writing("token", trained("token", 0))) {
            for (int number = 1_000; number < 2_000; number++) {
                byte[] value = Corpus.piece(number, 300);
                raw += value.length;
                plain += byZstd.pack(value).length;
                tokens += byTokens.pack(value).length;
            }
        }
        System.out.printf("%d bytes of values of 300 bytes: zstd %d, tokens %d%n", raw, plain, tokens);
        assertTrue(tokens < plain * 8 / 10, tokens + " bytes by tokens, " + plain + " by zstd");
    }

    @Test
    void anUnknownDictionaryIsNamed() throws Exception {
        Path mine = trained("token", 0), other = trained("token", 500);
        try (Values writer = Values.writing("token", mine); ZiptierDeserializer none = reader("");
             ZiptierDeserializer another = reader(other.toString())) {
            byte[] stored = writer.pack(Corpus.piece(7, 3_000));
            String id = String.format("%02x%02x%02x%02x", stored[2], stored[3], stored[4], stored[5]);
            for (ZiptierDeserializer reader : List.of(none, another)) {
                String said = assertThrows(SerializationException.class, () -> reader.deserialize("orders", stored))
                    .getMessage();
                assertTrue(said.startsWith("cannot read a value of topic orders: it has format token with dictionary "
                    + id + ", and this program has ["), said);
            }
        }
    }

    @Test
    void eachFlippedBitIsTold() throws Exception {
        Path tokens = trained("token", 0);
        try (ZiptierDeserializer reader = reader(tokens.toString())) {
            for (String format : List.of("lz4", "zstd", "deflate", "token")) {
                try (Values writer = Values.writing(format, format.equals("token") ? tokens : null)) {
                    byte[] stored = writer.pack(Corpus.piece(3, 2_000));
                    assertTrue(stored.length < 2_000, format);
                    for (int flip = 0; flip < stored.length * 8; flip++) {
                        byte[] damaged = stored.clone();
                        damaged[flip / 8] ^= (byte) (1 << flip % 8);
                        assertRefused(reader, damaged, Corpus.piece(3, 2_000), format + ", bit " + flip);
                    }
                    for (int length = 0; length < stored.length; length++) {
                        byte[] cut = java.util.Arrays.copyOf(stored, length);
                        assertThrows(SerializationException.class, () -> reader.deserialize("t", cut));
                    }
                }
            }
        }
    }

    /** Such a value asked for the file of a dictionary. */
    @Test
    void aRawValueOfAnotherLengthIsDamaged() {
        try (Values writer = Values.writing("zstd", null); ZiptierDeserializer reader = reader("")) {
            byte[] stored = writer.pack(new byte[] {1, 2, 3}), cut = java.util.Arrays.copyOf(stored, stored.length - 1);
            String said = assertThrows(SerializationException.class, () -> reader.deserialize("t", cut)).getMessage();
            assertTrue(said.endsWith("it is damaged: it states a length of 3 bytes, and has 2"), said);
        }
    }

    /** Bits that no decoder needs may be others: the value is the same then. */
    private static void assertRefused(ZiptierDeserializer reader, byte[] damaged, byte[] value, String what) {
        try {
            assertArrayEquals(value, reader.deserialize("t", damaged), what);
        } catch (SerializationException told) {
            assertTrue(told.getMessage().startsWith("cannot read a value of topic t: it"), told.getMessage());
        }
    }

    @Test
    void wrongConfigurationsAreTold() throws Exception {
        Path damaged = Files.write(dir.resolve("damaged"), new byte[100]);
        for (Map<String, ?> wrong : List.of(Map.of("ziptier.format", "lzma"), Map.of("ziptier.format", "none"),
            Map.of("ziptier.dictionary", dir.resolve("missing").toString()))) {
            assertThrows(ConfigException.class, () -> new ZiptierSerializer().configure(wrong, false), "" + wrong);
        }
        assertThrows(ConfigException.class, () -> new ZiptierSerializer().configure(Map.of(), true));
        assertThrows(ConfigException.class, () -> reader(damaged.toString()));
        for (String wrong : List.of("many", "-1", "")) {
            Map<String, String> bound = Map.of("ziptier.value.bytes.max", wrong);
            String said = assertThrows(ConfigException.class,
                () -> new ZiptierDeserializer().configure(bound, false)).getMessage();
            assertTrue(said.contains("ziptier.value.bytes.max"), said);
        }
        byte[] stored;
        try (Values writer = Values.writing("zstd", null)) {
            stored = writer.pack(Corpus.piece(3, 2_000));
        }
        ZiptierDeserializer small = new ZiptierDeserializer();
        small.configure(Map.of("ziptier.value.bytes.max", "1999"), false);
        assertThrows(SerializationException.class, () -> small.deserialize("t", stored));
        small.close();
    }

    private static ZiptierDeserializer reader(String dictionaries) {
        ZiptierDeserializer reader = new ZiptierDeserializer();
        reader.configure(Map.of("ziptier.dictionaries", dictionaries), false);
        return reader;
    }

    private Path trained(String format, int from) throws Exception {
        try (Dictionary dictionary = Dictionary.train(format, Corpus.pieces(from, 1_000, 300), 16_000, 1)) {
            return Files.write(dir.resolve(format + from), dictionary.store());
        }
    }
}
