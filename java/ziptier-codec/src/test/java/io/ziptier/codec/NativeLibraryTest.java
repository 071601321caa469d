package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The library loads from a folder that stays empty, and says what to do where it does not load. */
class NativeLibraryTest {
    @TempDir
    private Path folder;

    /** What a JVM of its own with these properties says. */
    private static String said(String... properties) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of(
            Paths.get(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
            System.getProperty("java.class.path")));
        command.addAll(List.of(properties));
        command.add(NativeLibraryTest.class.getName());
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        process.waitFor();
        return said.trim();
    }

    public static void main(String[] arguments) {
        try (Codec codec = Codec.open(Map.of("format", "lz4"))) {
            System.out.println("opened by " + codec.worker());
        } catch (EngineException error) {
            System.out.println(error.getMessage());
        }
    }

    @Test
    void loadsFromTheJarAndLeavesNothing() throws Exception {
        assertEquals("opened by cpu", said("-Dziptier.tmpdir=" + folder));
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(0, left.count());
        }
    }

    @Test
    void saysWhyItDoesNotLoad() throws Exception {
        assertSays(said("-Dziptier.native=" + folder.resolve("no.so")), "-Dziptier.native", "no.so");
        assertSays(said("-Dziptier.tmpdir=" + folder.resolve("none")), "cannot write", "-Dziptier.tmpdir");
        assertSays(said("-Dos.arch=sparc"), "no native library for linux-sparc", "make java");
    }

    @Test
    void namesThePropertyForFoldersWithoutExecution() throws Exception {
        assumeTrue(isWithoutExecution("/dev/shm"), "/dev/shm is not mounted noexec");
        assertSays(said("-Dziptier.tmpdir=/dev/shm"), "noexec", "-Dziptier.tmpdir");
    }

    private static void assertSays(String said, String... parts) {
        for (String part : parts) {
            assertTrue(said.contains(part), said);
        }
    }

    private static boolean isWithoutExecution(String folder) {
        try (Stream<String> mounts = Files.lines(Paths.get("/proc/mounts"))) {
            return mounts.map(line -> line.split(" "))
                .anyMatch(mount -> mount[1].equals(folder) && List.of(mount[3].split(",")).contains("noexec"));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
