package io.ziptier.codec;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Without a frame damage may give other bytes. It must not stop the JVM, nor write behind the limit. */
class DamageWithoutFrameTest {
    private static final int CHUNKS = 20_000;

    @Test
    void damagedChunksStayInTheirBuffers() {
        byte[] raw = Blocks.text(4096, 7);
        Random random = new Random(8);
        for (Map<String, String> options : List.of(Map.of("format", "lz4"), Map.of("format", "zstd"),
                Map.of("format", "deflate"), Map.of("format", "deflate", "huffman", "fixed"),
                Map.of("format", "deflate", "engine", "iaa", "model", "devices=1"),
                Map.of("format", "deflate", "engine", "iaa", "model", "devices=1", "split", "4"))) {
            try (Codec codec = Codec.open(options)) {
                byte[] packed = Blocks.compress(codec, raw);
                ByteBuffer chunk = ByteBuffer.allocateDirect(packed.length), back = ByteBuffer.allocateDirect(5000);
                int found = 0;
                for (int i = 0; i < CHUNKS; i++) {
                    chunk.clear().put(packed).flip();
                    int at = random.nextInt(packed.length);
                    chunk.put(at, (byte) (chunk.get(at) ^ 1 << random.nextInt(8)));
                    back.clear().limit(4500);
                    try {
                        assertTrue(codec.decompress(chunk, back) <= 4500);
                    } catch (DamagedException | OutputTooSmallException error) {
                        found++;
                    }
                    back.clear();
                    assertTrue(back.getLong(4500) == 0 && back.getLong(4992) == 0, "bytes behind the limit changed");
                }
                assertTrue(found > CHUNKS / 100, options + " found " + found);
            }
        }
    }
}
