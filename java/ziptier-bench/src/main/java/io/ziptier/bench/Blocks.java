package io.ziptier.bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The text of the Calgary corpus. Every other piece trains dictionaries, and the rest is cut into blocks. */
final class Blocks {
    private static final List<String> FILES = List.of("bib", "book1", "book2", "news", "paper1", "paper2", "paper3",
        "paper4", "paper5", "paper6", "progc", "progl", "progp", "trans");
    private static final int PIECE_BYTES = 64 << 10;
    private static final int SAMPLE_BYTES = 4 << 10;

    final List<byte[]> samples = new ArrayList<>();
    /** No two have a byte of the corpus in common. */
    final List<ByteBuffer> raw = new ArrayList<>();

    Blocks(int blockBytes) {
        byte[] text = text();
        for (int start = 0; start + PIECE_BYTES <= text.length; start += PIECE_BYTES) {
            boolean trains = start / PIECE_BYTES % 2 == 0;
            int step = trains ? SAMPLE_BYTES : blockBytes;
            for (int at = start; at < start + PIECE_BYTES; at += step) {
                byte[] bytes = Arrays.copyOfRange(text, at, at + step);
                if (trains) {
                    samples.add(bytes);
                } else {
                    raw.add(ByteBuffer.allocateDirect(step).put(bytes).flip());
                }
            }
        }
    }

    private static byte[] text() {
        Path folder = Paths.get(System.getenv().getOrDefault("ZIPTIER_CORPUS", "."), "calgary");
        ByteBuffer all = ByteBuffer.allocate(16 << 20);
        try {
            for (String file : FILES) {
                all.put(Files.readAllBytes(folder.resolve(file)));
            }
        } catch (IOException error) {
            throw new UncheckedIOException("cannot read the Calgary corpus in " + folder
                + ": name the folder above it by ZIPTIER_CORPUS", error);
        }
        return Arrays.copyOf(all.array(), all.position());
    }
}
