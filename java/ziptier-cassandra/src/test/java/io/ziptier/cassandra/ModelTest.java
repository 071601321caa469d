package io.ziptier.cassandra;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.cassandra.exceptions.ConfigurationException;
import org.apache.cassandra.io.compress.ZiptierCompressor;
import org.junit.jupiter.api.Test;

import io.ziptier.cassandra.node.BenchNode;

/** A misspelled model was measured as Cassandra's own code, without a word. A model is an option of a whole JVM. */
class ModelTest {
    private static final String REFUSED = "ZiptierCompressor cannot model the device 'devces=2': ";

    @Test
    void aCompressorRefusesAMisspelledModel() throws Exception {
        Ended ended = run(Program.class);
        assertEquals(0, ended.status, ended.said);
        assertTrue(ended.said.contains(REFUSED), ended.said);
        assertTrue(ended.said.contains("software goes on"), ended.said);
    }

    @Test
    void aNodeForBenchmarksDoesNotStartWithAMisspelledModel() throws Exception {
        Ended ended = run(BenchNode.class);
        assertEquals(2, ended.status, ended.said);
        assertTrue(ended.said.startsWith(REFUSED) && ended.said.lines().count() == 1, ended.said);
    }

    /** Makes two compressors, as a node does that has a table of each. */
    static final class Program {
        private Program() {
        }

        public static void main(String[] arguments) {
            ZiptierCompressor.create(Map.of("path", "software"));
            System.out.println("software goes on");
            try {
                ZiptierCompressor.create(Map.of());
            } catch (ConfigurationException refused) {
                System.out.println(refused.getMessage());
            }
        }
    }

    private static final class Ended {
        private final int status;
        private final String said;

        Ended(int status, String said) {
            this.status = status;
            this.said = said;
        }
    }

    private static Ended run(Class<?> program) throws Exception {
        Process process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                             "-Dziptier.model=devces=2",
                                             "-cp",
                                             System.getProperty("java.class.path"),
                                             program.getName())
                          .redirectErrorStream(true)
                          .start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(process.waitFor(1, TimeUnit.MINUTES));
        return new Ended(process.exitValue(), said);
    }
}
