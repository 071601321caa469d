package io.ziptier.codec;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import java.util.Properties;

/**
 * Loads the native library once, from the file that the property {@code ziptier.native} names, or from the jar.
 *
 * <p>The library of the jar is copied into a new file, which is deleted as soon as it is mapped. A killed JVM leaves
 * nothing behind, and two class loaders do not share a file.
 */
final class NativeLibrary {
    /** Why there is no library, or null. */
    private static final String FAILURE = tryLoad();

    private NativeLibrary() {
    }

    static void load() {
        if (FAILURE != null) {
            throw new EngineException(FAILURE);
        }
    }

    private static String tryLoad() {
        try {
            String version = version(), file = System.getProperty("ziptier.native");
            String failure = file != null ? loadFile(Paths.get(file)) : loadFromJar(version);
            if (failure != null) {
                return failure;
            }
            String found = Native.text(Native.version());
            return found.equals(version) ? null : "the native library has version " + found + ", the jar has "
                + version + ": name another file by -Dziptier.native, or leave the property out";
        } catch (IOException error) {
            return "cannot read ziptier's native library from the jar: " + error;
        } catch (UnsatisfiedLinkError missing) {
            return "the file that -Dziptier.native names is no native library of ziptier, for it lacks "
                + missing.getMessage() + ": name another one, or leave the property out";
        }
    }

    private static String version() throws IOException {
        try (InputStream stream = NativeLibrary.class.getResourceAsStream("library.properties")) {
            Properties properties = new Properties();
            properties.load(stream);
            return properties.getProperty("version");
        }
    }

    private static String loadFile(Path file) {
        try {
            System.load(file.toAbsolutePath().toString());
            return null;
        } catch (UnsatisfiedLinkError error) {
            return "cannot load ziptier's native library, which -Dziptier.native names: " + error.getMessage();
        }
    }

    private static String loadFromJar(String version) throws IOException {
        String arch = System.getProperty("os.arch").replace("amd64", "x86_64");
        String platform = System.getProperty("os.name").toLowerCase(Locale.ROOT) + "-" + arch;
        String resource = platform + "/libziptier_jni-" + version + ".so";
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                return "the jar has no native library for " + platform + " (" + resource
                    + "): build one with `make java` and name it by -Dziptier.native";
            }
            return loadCopy(library, version);
        }
    }

    private static String loadCopy(InputStream library, String version) {
        Path folder = Paths.get(System.getProperty("ziptier.tmpdir", System.getProperty("java.io.tmpdir")));
        Path copy = null;
        try {
            copy = Files.createTempFile(folder, "libziptier_jni-" + version + "-", ".so");
            write(library, copy);
            System.load(copy.toAbsolutePath().toString());
            return null;
        } catch (IOException error) {
            return "cannot write ziptier's native library into " + folder + ": " + error
                + "; name a folder with room by -Dziptier.tmpdir";
        } catch (UnsatisfiedLinkError error) {
            return "cannot load ziptier's native library from " + folder + ": " + error.getMessage()
                + "; if the folder is mounted noexec, name another one by -Dziptier.tmpdir";
        } finally {
            delete(copy);
        }
    }

    /** Keeps the file, which is the user's alone. A new one has the rights of the umask, so others may change it. */
    static void write(InputStream library, Path copy) throws IOException {
        try (OutputStream out = Files.newOutputStream(copy, StandardOpenOption.WRITE)) {
            library.transferTo(out);
        }
    }

    private static void delete(Path copy) {
        try {
            if (copy != null) {
                Files.deleteIfExists(copy);
            }
        } catch (IOException error) {
            copy.toFile().deleteOnExit();
        }
    }
}
