package io.ziptier.codec;

/** The bytes are damaged, or were made with another format or dictionary. */
public final class DamagedException extends ZiptierException {
    private static final long serialVersionUID = 1;

    DamagedException(String message) {
        super(message);
    }
}
