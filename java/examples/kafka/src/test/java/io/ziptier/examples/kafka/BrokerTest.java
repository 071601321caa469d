package io.ziptier.examples.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ziptier.codec.Dictionary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordDeserializationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Values went through a broker, and a consumer of another configuration took what it could not read for a value. */
class BrokerTest {
    private static final int VALUES = 5_000, VALUE_BYTES = 300;

    @TempDir
    Path dir;

    @Test
    void consumersReadWhatProducersOfThreeConfigurationsWrote() throws Exception {
        Path tokens = dir.resolve("tokens");
        try (Dictionary trained = Dictionary.train("token", Corpus.pieces(0, 1_500, VALUE_BYTES), 16_000, 1)) {
            Files.write(tokens, trained.store());
        }
        Map<String, String> byTokens = Map.of("ziptier.format", "token", "ziptier.dictionary", tokens.toString());
        Map<String, String> dictionaries = Map.of("ziptier.dictionaries", tokens.toString());
        Path folder = Files.createDirectory(dir.resolve("broker"));
        try (Broker broker = Broker.start(folder)) {
            // The broker keeps the topics in files of their own, and so tells what each configuration costs.
            produce(broker, "zstd", Map.of());
            produce(broker, "tokens", byTokens);
            produce(broker, "both", Map.of("ziptier.format", "lz4"));
            produce(broker, "both", byTokens);

            assertEquals(VALUES, consume(broker, "zstd", Map.of()));
            assertEquals(VALUES, consume(broker, "tokens", dictionaries));
            assertEquals(2 * VALUES, consume(broker, "both", dictionaries));

            RecordDeserializationException refusal = assertThrows(RecordDeserializationException.class,
                () -> consume(broker, "tokens", Map.of()));
            assertTrue(refusal.getCause().getMessage().contains("it has format token with dictionary "),
                refusal.getCause().getMessage());
            assertEquals(0, refusal.offset());
        }
        long zstd = bytes(folder, "zstd"), coded = bytes(folder, "tokens");
        System.out.printf("log of %d values of %d bytes: zstd %d, tokens %d%n", VALUES, VALUE_BYTES, zstd, coded);
        assertTrue(coded < zstd * 9 / 10, coded + " bytes of log by tokens, " + zstd + " by zstd");
    }

    private static void produce(Broker broker, String topic, Map<String, String> configuration) throws Exception {
        Map<String, Object> configs = new HashMap<>(configuration);
        configs.put("bootstrap.servers", broker.address);
        configs.put("key.serializer", StringSerializer.class);
        configs.put("value.serializer", ZiptierSerializer.class);
        try (KafkaProducer<String, byte[]> producer = new KafkaProducer<>(configs)) {
            for (int number = 0; number < VALUES; number++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(number), value(number)));
            }
        }
    }

    /** Compares each value with that of its key. Gives how many the topic has. */
    private static int consume(Broker broker, String topic, Map<String, String> configuration) {
        Map<String, Object> configs = new HashMap<>(configuration);
        configs.put("bootstrap.servers", broker.address);
        configs.put("key.deserializer", StringDeserializer.class);
        configs.put("value.deserializer", ZiptierDeserializer.class);
        try (KafkaConsumer<String, byte[]> consumer = new KafkaConsumer<>(configs)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            int[] equal = {0};
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> {
                    assertArrayEquals(value(Integer.parseInt(record.key())), record.value(), record.key());
                    equal[0]++;
                });
            }
            return equal[0];
        }
    }

    private static byte[] value(int number) {
        return Corpus.piece(number, VALUE_BYTES);
    }

    private static long bytes(Path folder, String topic) throws IOException {
        long bytes = 0;
        try (Stream<Path> files = Files.list(folder.resolve("data").resolve(topic + "-0"))) {
            for (Path file : (Iterable<Path>) files.filter(name -> name.toString().endsWith(".log"))::iterator) {
                bytes += Files.size(file);
            }
        }
        return bytes;
    }
}
