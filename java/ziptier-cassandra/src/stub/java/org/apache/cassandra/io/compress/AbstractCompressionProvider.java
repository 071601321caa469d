package org.apache.cassandra.io.compress;

import java.util.Map;

/**
 * Stands in for the class of this name that CEP-49 adds to Cassandra, because no release of Cassandra has it.
 *
 * <p>The compiler and the tests see this class. The jar does not contain it: a node brings its own.
 */
public abstract class AbstractCompressionProvider {
    /** Cassandra's own parameter: a node refuses to start if the provider fails. Cassandra takes it out before init. */
    public static final String FAIL_ON_MISSING_PROVIDER = "fail_on_missing_provider";

    private Map<String, String> parameters = Map.of();

    /** Called once, before all other methods, with the parameters of {@code cassandra.yaml}. */
    public void init(Map<String, String> parameters) {
        this.parameters = parameters;
    }

    public Map<String, String> getParameters() {
        return parameters;
    }

    public boolean isFailOnMissingProvider() {
        return Boolean.parseBoolean(parameters.get(FAIL_ON_MISSING_PROVIDER));
    }

    /** Called once after init. A provider that is not healthy is not used. */
    public abstract boolean isHealthy() throws Exception;

    /** A compressor that does the work of {@code compressorClass}, with the options of a table. */
    public abstract ICompressor createCompressor(Class<?> compressorClass, Map<String, String> options);
}
