package io.ziptier.cassandra;

import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

import org.apache.cassandra.exceptions.ConfigurationException;

/** The options of a table's compression, checked. A user sees the sentence of each refusal. */
public final class ChunkOptions {
    public static final Set<String> NAMES = Set.of("format", "huffman", "split", "path", "level", "dictionary");
    /** Each SSTable carries the options of its table, and one as {@code DataOutput.writeUTF} does. */
    private static final int DICTIONARY_LENGTH_MAX = 65535;
    private static final int SPLIT_MAX = 16;

    final ChunkFormat format;
    final String huffman;
    /** The most parts of a chunk of DEFLATE. */
    final int split;
    final String path;
    final int level;
    /** In base64; empty but for format {@code token}. */
    private final String dictionary;
    /** Whether they are those of a node, which does the work of Cassandra's own compressor, and not of a table. */
    private final boolean isOfNode;

    private ChunkOptions(ChunkFormat format, String huffman, int split, String path, int level, String dictionary,
                         boolean isOfNode) {
        this.format = format;
        this.huffman = huffman;
        this.split = split;
        this.path = path;
        this.level = level;
        this.dictionary = dictionary;
        this.isOfNode = isOfNode;
    }

    /**
     * Checks the options that a table has beside Cassandra's own.
     *
     * @throws ConfigurationException if a name or a value is wrong
     */
    public static ChunkOptions parse(Map<String, String> options) {
        for (String name : options.keySet()) {
            if (!NAMES.contains(name))
                throw refused("has no option '%s': choose among dictionary, format, huffman, level, path, split", name);
        }
        ChunkFormat format = format(options.getOrDefault("format", "deflate"));
        for (String name : List.of("huffman", "split")) {
            if (format != ChunkFormat.DEFLATE && options.containsKey(name))
                throw refused("knows '%s' with format 'deflate' only: leave it out with format '%s'", name, format);
        }
        return new ChunkOptions(format,
                                huffman(options.getOrDefault("huffman", "dynamic")),
                                split(options.getOrDefault("split", "1")),
                                path(options.getOrDefault("path", "auto")),
                                level(format, options.get("level")),
                                dictionary(format, options.get("dictionary")),
                                false);
    }

    /**
     * Checks the parameters that one node has for DeflateCompressor. They may demand a device, for no other node has
     * them.
     *
     * @throws ConfigurationException if a name or a value is wrong
     */
    static ChunkOptions ofNode(Map<String, String> parameters) {
        for (String name : parameters.keySet()) {
            if (!Set.of("huffman", "level", "path", "split").contains(name))
                throw refused("has no parameter '%s' in compressor_providers: "
                              + "choose among huffman, level, path, split", name);
        }
        String path = parameters.getOrDefault("path", "auto");
        if (!Set.of("auto", "hardware", "software").contains(path))
            throw refused("cannot use path '%s': choose auto, hardware or software", path);
        return new ChunkOptions(ChunkFormat.DEFLATE,
                                huffman(parameters.getOrDefault("huffman", "dynamic")),
                                split(parameters.getOrDefault("split", "1")),
                                path,
                                level(ChunkFormat.DEFLATE, parameters.get("level")),
                                "",
                                true);
    }

    private static String dictionary(ChunkFormat format, String text) {
        if (format != ChunkFormat.TOKEN) {
            if (text != null)
                throw refused("knows 'dictionary' with format 'token' only: leave it out with format '%s'", format);
            return "";
        }
        if (text == null)
            throw refused("needs a 'dictionary' for format 'token': ziptier cassandra train makes one");
        if (text.length() > DICTIONARY_LENGTH_MAX)
            throw refused("cannot keep a 'dictionary' of %d characters, for an SSTable has room for %d: "
                          + "train a smaller one", text.length(), DICTIONARY_LENGTH_MAX);
        return text;
    }

    /** Whether the level is no slower than the default of its format. */
    boolean isFast() {
        return level <= format.levelDefault;
    }

    /** The bytes of the dictionary. */
    byte[] dictionary() {
        try {
            return Base64.getDecoder().decode(dictionary);
        } catch (IllegalArgumentException notBase64) {
            throw refused("cannot read the 'dictionary', which is no base64: %s", notBase64.getMessage());
        }
    }

    private static ChunkFormat format(String name) {
        for (ChunkFormat format : ChunkFormat.values()) {
            if (format.toString().equals(name))
                return format;
        }
        throw refused("cannot write format '%s': choose deflate, lz4, token or zstd", name);
    }

    private static String huffman(String value) {
        if (value.equals("canned"))
            throw refused("cannot use huffman 'canned', for Cassandra alone could not read it: "
                          + "choose dynamic or fixed");
        if (!Set.of("dynamic", "fixed").contains(value))
            throw refused("cannot use huffman '%s': choose dynamic or fixed", value);
        return value;
    }

    private static int split(String text) {
        try {
            int split = Integer.parseInt(text);
            if (split >= 1 && split <= SPLIT_MAX)
                return split;
        } catch (NumberFormatException notANumber) {
            // The sentence below tells of it.
        }
        throw refused("cannot use split '%s': choose a number from 1 to %d", text, SPLIT_MAX);
    }

    /** All nodes share the options of a table, so that no option may name a device that one of them could lack. */
    private static String path(String value) {
        if (value.equals("hardware"))
            throw refused("cannot use path 'hardware', for a node without the device could not open the table: "
                          + "choose auto, which uses a device where there is one");
        if (!Set.of("auto", "software").contains(value))
            throw refused("cannot use path '%s': choose auto or software", value);
        return value;
    }

    private static int level(ChunkFormat format, String text) {
        if (text == null)
            return format.levelDefault;
        try {
            int level = Integer.parseInt(text);
            if (level >= format.levelMin && level <= format.levelMax && level != 0)
                return level;
        } catch (NumberFormatException notANumber) {
            // The sentence below tells of it.
        }
        throw refused("cannot use level '%s' with format '%s': choose a number from %d to %d%s",
                      text, format, format.levelMin, format.levelMax, format.levelMin < 0 ? ", but not 0" : "");
    }

    static ConfigurationException refused(String sentence, Object... arguments) {
        return new ConfigurationException(String.format("ZiptierCompressor " + sentence, arguments));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ChunkOptions && toString().equals(other.toString())
               && dictionary.equals(((ChunkOptions) other).dictionary);
    }

    @Override
    public int hashCode() {
        return Objects.hash(toString());
    }

    /** As the key properties of an object name of JMX. */
    @Override
    public String toString() {
        String options = String.format("format=%s,level=%d,path=%s", format, level, path);
        if (format == ChunkFormat.TOKEN)
            return options + String.format(",dictionary=%08x", dictionary.hashCode());
        if (isOfNode)
            options += ",substitutes=DeflateCompressor";
        if (split > 1)
            options += ",split=" + split;
        return format == ChunkFormat.DEFLATE ? options + ",huffman=" + huffman : options;
    }
}
