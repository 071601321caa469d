package io.ziptier.cassandra;

/** Blocks by ziptier's native library. */
final class NativeBlocks
{
    private NativeBlocks()
    {
    }

    /** Null if this machine has no library. */
    static BlockCodec open(ChunkOptions options)
    {
        return null;
    }
}
