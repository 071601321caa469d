package io.ziptier.codec;

/** An option has an unknown name or a wrong value, or options contradict each other. */
public final class InvalidOptionException extends ZiptierException {
    private static final long serialVersionUID = 1;

    InvalidOptionException(String message) {
        super(message);
    }
}
