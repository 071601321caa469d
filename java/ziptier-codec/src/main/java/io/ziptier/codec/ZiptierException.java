package io.ziptier.codec;

/** A call failed. The message says what was tried, what was found and what to do. */
public class ZiptierException extends RuntimeException {
    private static final long serialVersionUID = 1;

    ZiptierException(String message) {
        super(message);
    }
}
