package io.ziptier.bench;

import com.github.luben.zstd.ZstdCompressCtx;
import com.github.luben.zstd.ZstdDecompressCtx;
import com.github.luben.zstd.ZstdDictTrainer;
import io.ziptier.codec.Codec;
import io.ziptier.codec.Dictionary;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.zip.DataFormatException;
import java.util.zip.Deflater;
import java.util.zip.Inflater;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;

/** A library that compresses one direct buffer into another. Contexts are made once, as each library advises. */
interface Coder {
    /** The contents of every trained dictionary. */
    int DICTIONARY_BYTES = 64 << 10;

    /** Compresses all that remains of {@code raw} to the position of {@code packed}; positions advance. */
    void compress(ByteBuffer raw, ByteBuffer packed) throws Exception;

    /** Decompresses all that remains of {@code packed}, which fills {@code raw}; positions advance. */
    void decompress(ByteBuffer packed, ByteBuffer raw) throws Exception;

    /** The coder of that name, with a dictionary of the samples if it has one. */
    static Coder of(String name, List<byte[]> samples) {
        switch (name) {
            case "lz4-java":
                return new Lz4();
            case "zstd-jni":
                return new Zstd(null);
            case "zstd-jni+dictionary":
                return new Zstd(samples);
            case "java.util.zip":
                return new Zip();
            default:
                return new Ziptier(name.substring("ziptier ".length()), samples);
        }
    }

    /** Formats at their usual levels: lz4 1, zstd 3, deflate 6, token 1. */
    final class Ziptier implements Coder {
        private final Codec codec;

        Ziptier(String format, List<byte[]> samples) {
            Map<String, String> options = Map.of("format", format, "path", "software");
            if (!format.equals("token")) {
                codec = Codec.open(options);
                return;
            }
            try (Dictionary dictionary = Dictionary.train(format, samples, DICTIONARY_BYTES, 1)) {
                codec = Codec.open(options, dictionary);
            }
        }

        @Override
        public void compress(ByteBuffer raw, ByteBuffer packed) {
            codec.compress(raw, packed);
        }

        @Override
        public void decompress(ByteBuffer packed, ByteBuffer raw) {
            codec.decompressExact(packed, raw);
        }
    }

    /** The fast compressor. */
    final class Lz4 implements Coder {
        private final LZ4Compressor compressor = LZ4Factory.nativeInstance().fastCompressor();
        private final LZ4SafeDecompressor decompressor = LZ4Factory.nativeInstance().safeDecompressor();

        @Override
        public void compress(ByteBuffer raw, ByteBuffer packed) {
            compressor.compress(raw, packed);
        }

        @Override
        public void decompress(ByteBuffer packed, ByteBuffer raw) {
            decompressor.decompress(packed, raw);
        }
    }

    /** Level 3. */
    final class Zstd implements Coder {
        private final ZstdCompressCtx compressor = new ZstdCompressCtx().setLevel(3);
        private final ZstdDecompressCtx decompressor = new ZstdDecompressCtx();

        Zstd(List<byte[]> samples) {
            if (samples == null) {
                return;
            }
            int bytes = samples.stream().mapToInt(sample -> sample.length).sum();
            ZstdDictTrainer trainer = new ZstdDictTrainer(bytes, DICTIONARY_BYTES, 3);
            samples.forEach(trainer::addSample);
            byte[] dictionary = trainer.trainSamples();
            compressor.loadDict(dictionary);
            decompressor.loadDict(dictionary);
        }

        @Override
        public void compress(ByteBuffer raw, ByteBuffer packed) {
            compressor.compress(packed, raw);
        }

        @Override
        public void decompress(ByteBuffer packed, ByteBuffer raw) {
            decompressor.decompress(raw, packed);
        }
    }

    /** Raw DEFLATE at level 6. */
    final class Zip implements Coder {
        private final Deflater deflater = new Deflater(6, true);
        private final Inflater inflater = new Inflater(true);

        @Override
        public void compress(ByteBuffer raw, ByteBuffer packed) {
            deflater.reset();
            deflater.setInput(raw);
            deflater.finish();
            deflater.deflate(packed);
        }

        @Override
        public void decompress(ByteBuffer packed, ByteBuffer raw) throws DataFormatException {
            inflater.reset();
            inflater.setInput(packed);
            inflater.inflate(raw);
        }
    }
}
