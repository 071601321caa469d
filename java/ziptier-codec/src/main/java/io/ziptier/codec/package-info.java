/**
 * Compresses blocks and single values by ziptier's native library.
 *
 * <p>{@link io.ziptier.codec.Codec} compresses blocks of a few KiB and more. {@link io.ziptier.codec.Dictionary} holds
 * bytes that such blocks share. {@link io.ziptier.codec.Tokens} compresses single values of a few bytes and more.
 * {@link io.ziptier.codec.Analytics} answers questions to packed integers. All objects serve any number of threads at
 * once. After {@code close()} a call throws {@link IllegalStateException}.
 */
package io.ziptier.codec;
