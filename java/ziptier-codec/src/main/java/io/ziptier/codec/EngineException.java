package io.ziptier.codec;

/** The native library, an engine or a device cannot work, or gets no memory. This says nothing against the data. */
public final class EngineException extends ZiptierException {
    private static final long serialVersionUID = 1;

    EngineException(String message) {
        super(message);
    }
}
