//! The compressors of Cassandra that can be compared: its own, and ziptier's in each of its formats.

use ziptier_eval::Path;

/// The maker of a table's dictionary, which it trains on rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trainer {
    /// The benchmark, which reads the SSTables and sets the dictionary as an option of the table.
    Client,
    /// The node, by an order of its nodetool. Cassandra has that order from version 6 on.
    Node,
}

/// One compressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressor {
    /// Its name in the benchmark.
    pub name: &'static str,
    class: &'static str,
    /// The format of ziptier's class.
    format: Option<&'static str>,
    /// The trainer of its dictionary, if it needs one.
    pub trainer: Option<Trainer>,
}

const fn builtin(name: &'static str, class: &'static str) -> Compressor {
    Compressor { name, class, format: None, trainer: None }
}

const fn ziptier(name: &'static str, format: &'static str) -> Compressor {
    Compressor { name, class: ZIPTIER, format: Some(format), trainer: None }
}

/// ziptier's class.
pub(crate) const ZIPTIER: &str = "ZiptierCompressor";

/// All of them; the first is Cassandra's default.
pub static COMPRESSORS: [Compressor; 8] = [
    builtin("builtin-lz4", "LZ4Compressor"),
    builtin("builtin-zstd", "ZstdCompressor"),
    Compressor {
        trainer: Some(Trainer::Node),
        ..builtin("builtin-zstd-dictionary", "ZstdDictionaryCompressor")
    },
    builtin("builtin-deflate", "DeflateCompressor"),
    ziptier("ziptier-deflate", "deflate"),
    ziptier("ziptier-lz4", "lz4"),
    ziptier("ziptier-zstd", "zstd"),
    Compressor { trainer: Some(Trainer::Client), ..ziptier("ziptier-token", "token") },
];

impl Compressor {
    /// The compressor of this name.
    pub fn named(name: &str) -> Option<&'static Compressor> {
        COMPRESSORS.iter().find(|compressor| compressor.name == name)
    }

    /// Whether each node has it that the benchmark supports. The others come from version 6 on.
    pub fn is_everywhere(&self) -> bool {
        self.trainer != Some(Trainer::Node)
    }

    /// Whether ziptier's class does its work.
    pub fn is_ziptier(&self) -> bool {
        self.format.is_some()
    }

    /// Whether a device can do its work.
    pub fn takes_path(&self) -> bool {
        self.format == Some("deflate")
    }

    /// The option `compression` of a table, without a dictionary. Until the client has trained one, a table that needs
    /// it is compressed by LZ4.
    pub fn option(&self, chunk_kib: usize, path: Option<Path>) -> String {
        if self.trainer == Some(Trainer::Client) {
            return COMPRESSORS[0].option(chunk_kib, None);
        }
        let format = self.format.map(|format| format!(", 'format': '{format}'")).unwrap_or_default();
        let path = path.map(|path| format!(", 'path': '{path}'")).unwrap_or_default();
        format!("{{'class': '{}'{format}{path}, 'chunk_length_in_kb': {chunk_kib}}}", self.class)
    }
}

/// The same for tokens with their dictionary, in base64.
pub fn option_with_dictionary(chunk_kib: usize, dictionary: &str) -> String {
    format!(
        "{{'class': '{ZIPTIER}', 'format': 'token', 'chunk_length_in_kb': {chunk_kib}, 'dictionary': '{dictionary}'}}"
    )
}

/// KiB of a chunk of so many bytes. The error is a sentence that begins with "it".
///
/// # Errors
///
/// Cassandra takes powers of two from 1 KiB on.
pub fn chunk_kib(bytes: usize) -> Result<usize, String> {
    match bytes.is_power_of_two() && bytes >= 1 << 10 {
        true => Ok(bytes >> 10),
        false => Err(format!(
            "it has no chunks of {bytes} bytes; give --block-bytes a power of two from 1024 on, such as 16384"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_cassandra() {
        let option = |name, path| Compressor::named(name).map(|found| found.option(16, path));
        assert_eq!(
            option("builtin-zstd", None).as_deref(),
            Some("{'class': 'ZstdCompressor', 'chunk_length_in_kb': 16}")
        );
        assert_eq!(
            option("ziptier-deflate", Some(Path::Software)).as_deref(),
            Some(
                "{'class': 'ZiptierCompressor', 'format': 'deflate', 'path': 'software', 'chunk_length_in_kb': 16}"
            )
        );
        let before_training = option("ziptier-token", None);
        assert_eq!(before_training, option("builtin-lz4", None));
        assert!(
            option_with_dictionary(4, "QUJD")
                .contains("'format': 'token', 'chunk_length_in_kb': 4, 'dictionary': 'QUJD'")
        );
        assert_eq!(
            option("builtin-zstd-dictionary", None).as_deref(),
            Some("{'class': 'ZstdDictionaryCompressor', 'chunk_length_in_kb': 16}")
        );
        assert_eq!(option("snappy", None), None);
    }

    #[test]
    fn chunks_are_powers_of_two() {
        assert_eq!(chunk_kib(16384), Ok(16));
        for bytes in [512, 12 << 10] {
            assert!(chunk_kib(bytes).is_err_and(|told| told.contains(&format!("chunks of {bytes} bytes"))));
        }
    }
}
