package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermissions;
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

    private static String said(String... properties) throws IOException, InterruptedException {
        return saidBy(jvm(properties));
    }

    /** A JVM of its own, which runs {@link #main}. */
    private static List<String> jvm(String... properties) {
        List<String> command = new ArrayList<>(List.of(
            Paths.get(System.getProperty("java.home"), "bin", "java").toString(), "-cp",
            System.getProperty("java.class.path")));
        command.addAll(List.of(properties));
        command.add(NativeLibraryTest.class.getName());
        return command;
    }

    private static String saidBy(List<String> command) throws IOException, InterruptedException {
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

    /** The copy replaced a file of the user's alone by one with the rights of the umask, which a group may write. */
    @Test
    void theCopyIsTheUsersAlone() throws Exception {
        Path copy = Files.createTempFile(folder, "copy-", ".so");
        byte[] library = {1, 2, 3};
        NativeLibrary.write(new ByteArrayInputStream(library), copy);
        assertArrayEquals(library, Files.readAllBytes(copy));
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(copy)));
    }

    @Test
    void saysWhyItDoesNotLoad() throws Exception {
        assertSays(said("-Dziptier.native=" + folder.resolve("no.so")), "-Dziptier.native", "no.so");
        Path foreign = Paths.get(System.getProperty("java.home"), "lib", "libprefs.so");
        assertSays(said("-Dziptier.native=" + foreign), "-Dziptier.native names is no native library of ziptier");
        assertSays(said("-Dziptier.tmpdir=" + folder.resolve("none")), "cannot write", "-Dziptier.tmpdir");
        assertSays(said("-Dos.arch=sparc"), "no native library for linux-sparc", "make java");
    }

    /** The mount is in a namespace of the JVM's own and ends with it. */
    @Test
    void namesThePropertyForFoldersWithoutExecution() throws Exception {
        List<String> inside = new ArrayList<>(List.of("unshare", "--mount", "sh", "-ec",
            "mount -t tmpfs -o noexec tmpfs \"$0\"; exec \"$@\"", folder.toString()));
        List<String> probe = new ArrayList<>(inside);
        probe.add("true");
        assumeTrue(mounts(probe), "only root may mount a tmpfs");
        inside.addAll(jvm("-Dziptier.tmpdir=" + folder));
        assertSays(saidBy(inside), "cannot load", "noexec", "-Dziptier.tmpdir");
    }

    private static boolean mounts(List<String> probe) throws InterruptedException {
        try {
            return new ProcessBuilder(probe).start().waitFor() == 0;
        } catch (IOException error) {
            return false;
        }
    }

    private static void assertSays(String said, String... parts) {
        for (String part : parts) {
            assertTrue(said.contains(part), said);
        }
    }
}
