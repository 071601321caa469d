package io.ziptier.examples.lucene;

import org.apache.lucene.codecs.FilterCodec;
import org.apache.lucene.codecs.StoredFieldsFormat;
import org.apache.lucene.codecs.lucene90.compressing.Lucene90CompressingStoredFieldsFormat;
import org.apache.lucene.codecs.lucene912.Lucene912Codec;

/**
 * Lucene's codec with stored fields that ziptier compresses. All other files of an index are Lucene's own.
 *
 * <p>Each segment stores the name of its codec, and Lucene finds this class by that name in
 * {@code META-INF/services}. Every program that opens the index needs this jar. The name has the version of Lucene's
 * formats in it: a later Lucene needs a codec of a later name beside this one.
 */
public final class ZiptierCodec extends FilterCodec {
    /** Documents share blocks of so many bytes. Reading a document unpacks a block. */
    private static final int BLOCK_BYTES = 64 << 10;
    private static final int BLOCK_DOCUMENTS_MAX = 1024;
    /** Log 2 of the blocks that an entry of Lucene's index of blocks stands for, as Lucene's own formats have it. */
    private static final int INDEX_SHIFT = 10;

    private final StoredFieldsFormat storedFields = new Lucene90CompressingStoredFieldsFormat(
        "ZiptierStoredFields", new ZiptierCompression(), BLOCK_BYTES, BLOCK_DOCUMENTS_MAX, INDEX_SHIFT);

    public ZiptierCodec() {
        super("Ziptier912", new Lucene912Codec());
    }

    @Override
    public StoredFieldsFormat storedFieldsFormat() {
        return storedFields;
    }
}
