//! The statement that gives a table tokens. `ALTER TABLE` replaces all options of compression, so the statement has the
//! other ones, too.

use std::fmt::Write;

use ziptier_codec::block::Dictionary;

use crate::compressor::dictionary_option;
use crate::table::Table;

/// Cassandra's own default.
const CHUNK_KIB: u32 = 16;

/// Options of compression that a table has, beside its compressor and dictionary.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenOptions {
    /// KiB of a chunk before compression: a power of two.
    pub chunk_kib: u32,
    /// A chunk that is not smaller by this factor is stored raw. `None` if none is.
    pub min_compress_ratio: Option<f64>,
    /// Names and values of the compressor's own options, such as `level`.
    own: Vec<(String, String)>,
}

impl TokenOptions {
    /// The options of the newest SSTable. Only the schema, which is not read here, has them for certain: a node may
    /// have written an SSTable before they changed, or flushed it with the defaults.
    pub fn of(table: &Table) -> TokenOptions {
        let Some(info) = table.newest().and_then(|ss_table| ss_table.compression()) else {
            return TokenOptions { chunk_kib: CHUNK_KIB, min_compress_ratio: None, own: Vec::new() };
        };
        let has_tokens = info.compressor == "ZiptierCompressor" && info.option("format") == Some("token");
        let is_kept = |name: &str| has_tokens && !["class", "format", "dictionary"].contains(&name);
        TokenOptions {
            chunk_kib: (info.chunk_bytes >> 10).max(1),
            min_compress_ratio: info.min_compress_ratio(),
            own: info.options.iter().filter(|(name, _)| is_kept(name)).cloned().collect(),
        }
    }

    /// The statement that gives a table these options, and tokens of a dictionary. `name` stands as it is in the
    /// statement: `shop.orders`.
    pub fn statement(&self, name: &str, dictionary: &Dictionary) -> String {
        let mut statement = format!(
            "ALTER TABLE {name} WITH compression = {{'class': 'ZiptierCompressor', 'format': 'token', \
             'chunk_length_in_kb': {}",
            self.chunk_kib
        );
        let ratio = self.min_compress_ratio.map(|ratio| ("min_compress_ratio", ratio.to_string()));
        let own = self.own.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let dictionary = ("dictionary", dictionary_option(dictionary));
        for (name, value) in ratio.into_iter().chain(own).chain([dictionary]) {
            let [name, value] = [name, &value].map(|text| text.replace('\'', "''"));
            let _ = write!(statement, ", '{name}': '{value}'");
        }
        statement + "};"
    }
}
