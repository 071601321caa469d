package io.ziptier.codec;

/** The output has no room for the result. The positions of the buffers are unchanged. */
public final class OutputTooSmallException extends ZiptierException {
    private static final long serialVersionUID = 1;

    private final int neededBytes;

    OutputTooSmallException(int room, int neededBytes) {
        super("the output has room for " + room + " bytes, which is too little: "
            + (neededBytes == 0 ? "give it more" : "give it " + neededBytes));
        this.neededBytes = neededBytes;
    }

    /** The room that the result needs, or 0 if only the caller can know. */
    public int neededBytes() {
        return neededBytes;
    }
}
