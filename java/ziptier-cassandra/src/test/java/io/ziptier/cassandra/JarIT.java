package io.ziptier.cassandra;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Set;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.zip.ZipEntry;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The jar brought a class of Cassandra's own, which hid that of the node. */
@Tag("smoke")
class JarIT {
    @Test
    void theOnlyClassInCassandrasPackagesIsTheCompressor() throws Exception {
        try (JarFile jar = new JarFile(System.getProperty("ziptier.jar"))) {
            Set<String> ofCassandra = jar.stream().map(ZipEntry::getName)
                                         .filter(name -> name.startsWith("org/") && name.endsWith(".class"))
                                         .map(name -> name.replaceFirst("\\$.*", ".class"))
                                         .collect(Collectors.toSet());
            assertEquals(Set.of("org/apache/cassandra/io/compress/ZiptierCompressor.class"), ofCassandra);
        }
    }
}
