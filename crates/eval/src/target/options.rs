//! Options of a target beyond its codec: block size, level, engine and so on.
//!
//! Eval knows the names of these options, not their effects. Each target declares the options that it takes
//! ([`Target::check`](crate::Target::check)), and refuses others before the first run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Options of a target; `None` is always the target's own default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetOptions {
    /// The engine of the codec, for codecs with several engines.
    pub engine: Option<String>,
    /// Whether a device may, must or must not do it.
    pub path: Option<Path>,
    /// The modelled accelerator, for engines that work on a model.
    pub model: Option<String>,
    /// Raw bytes of a block that is compressed as one.
    pub block_bytes: Option<usize>,
    /// How hard the codec tries.
    pub level: Option<i32>,
    /// Which Huffman codes a deflate encoder uses.
    pub huffman: Option<Huffman>,
    /// Whether the codec's contexts are kept between calls.
    pub context_cache: Option<ContextCache>,
    /// How full a landing may be, in per cent, before it is handed over for packing.
    pub landing_watermark_pct: Option<u8>,
    /// Codec that background repacking uses, where it differs from that of the write path.
    pub background_codec: Option<String>,
}

/// The place where an engine with a device does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// On the device, and on the CPU if the device cannot do a job.
    Auto,
    /// On the device alone.
    Hardware,
    /// On the CPU alone.
    Software,
}

/// Huffman codes of a deflate encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Huffman {
    /// The codes that the format defines.
    Fixed,
    /// Made for each block.
    Dynamic,
    /// Trained once and shared by all blocks.
    Canned,
}

/// The handling of a codec's contexts between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextCache {
    /// Every thread keeps its own.
    Thread,
    /// They are made anew for each call.
    None,
}

impl TargetOptions {
    /// Every option that was asked for: its flag and the value.
    pub fn asked(&self) -> Vec<(&'static str, String)> {
        // A field that is added and not listed here would be taken by every target without a word.
        let TargetOptions {
            engine,
            path,
            model,
            block_bytes,
            level,
            huffman,
            context_cache,
            landing_watermark_pct,
            background_codec,
        } = self;
        let all = [
            ("--codec-engine", engine.clone()),
            ("--path", path.map(|path| path.to_string())),
            ("--model", model.clone()),
            ("--block-bytes", block_bytes.map(|bytes| bytes.to_string())),
            ("--level", level.map(|level| level.to_string())),
            ("--huffman", huffman.map(|huffman| huffman.to_string())),
            ("--context-cache", context_cache.map(|cache| cache.to_string())),
            ("--landing-watermark-pct", landing_watermark_pct.map(|pct| pct.to_string())),
            ("--background-codec", background_codec.clone()),
        ];
        all.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect()
    }

    /// The engine asked for, with its path and its Huffman mode if these were, too.
    pub(crate) fn engine_in_words(&self) -> Option<String> {
        let path = self.path.map(|path| format!("-{path}")).unwrap_or_default();
        let huffman = self.huffman.map(|huffman| format!("-{huffman}")).unwrap_or_default();
        Some(format!("{}{path}{huffman}", self.engine.as_ref()?))
    }

    /// Refuses, in one sentence, every option that is not among `taken` (flags such as `--level`).
    pub fn take_only(&self, taken: &[&str]) -> Result<(), String> {
        let refused: Vec<String> = self
            .asked()
            .into_iter()
            .filter(|(flag, _)| !taken.contains(flag))
            .map(|(flag, value)| format!("{flag} {value}"))
            .collect();
        match refused.as_slice() {
            [] => Ok(()),
            [one] => Err(format!("it does not take {one}; leave it out")),
            [some @ .., last] => {
                Err(format!("it does not take {} and {last}; leave them out", some.join(", ")))
            }
        }
    }

    /// Checks what can be wrong whatever the target.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(bytes) = self.block_bytes.filter(|bytes| !(64..=1 << 24).contains(bytes)) {
            return Err(Error::invalid("--block-bytes", bytes.to_string(), "give 64 to 16777216"));
        }
        if let Some(pct) = self.landing_watermark_pct.filter(|pct| !(1..=100).contains(pct)) {
            return Err(Error::invalid("--landing-watermark-pct", pct.to_string(), "give 1 to 100 per cent"));
        }
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Auto => "auto",
            Path::Hardware => "hardware",
            Path::Software => "software",
        })
    }
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Path::Auto),
            "hardware" => Ok(Path::Hardware),
            "software" => Ok(Path::Software),
            _ => {
                let known = "auto, hardware, software".into();
                Err(Error::Unknown { what: "--path", given: text.into(), known })
            }
        }
    }
}

impl fmt::Display for Huffman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Huffman::Fixed => "fixed",
            Huffman::Dynamic => "dynamic",
            Huffman::Canned => "canned",
        })
    }
}

impl FromStr for Huffman {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "fixed" => Ok(Huffman::Fixed),
            "dynamic" => Ok(Huffman::Dynamic),
            "canned" => Ok(Huffman::Canned),
            _ => {
                let known = "fixed, dynamic, canned".into();
                Err(Error::Unknown { what: "--huffman", given: text.into(), known })
            }
        }
    }
}

impl fmt::Display for ContextCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextCache::Thread => "thread",
            ContextCache::None => "none",
        })
    }
}

impl FromStr for ContextCache {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "thread" => Ok(ContextCache::Thread),
            "none" => Ok(ContextCache::None),
            _ => Err(Error::Unknown {
                what: "--context-cache",
                given: text.into(),
                known: "thread, none".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_named_in_one_sentence() {
        let options = TargetOptions {
            block_bytes: Some(4096),
            level: Some(-3),
            huffman: Some(Huffman::Fixed),
            ..TargetOptions::default()
        };
        assert_eq!(options.take_only(&["--block-bytes", "--level", "--huffman"]), Ok(()));
        let refused = |taken: &[&str]| options.take_only(taken).unwrap_err();
        assert_eq!(refused(&["--level", "--huffman"]), "it does not take --block-bytes 4096; leave it out");
        assert_eq!(
            refused(&[]),
            "it does not take --block-bytes 4096, --level -3 and --huffman fixed; leave them out"
        );
        assert_eq!(TargetOptions::default().take_only(&[]), Ok(()));
    }

    #[test]
    fn words_go_both_ways() {
        for word in ["fixed", "dynamic"] {
            assert_eq!(word.parse::<Huffman>().unwrap().to_string(), word);
        }
        for word in ["auto", "hardware", "software"] {
            assert_eq!(word.parse::<Path>().unwrap().to_string(), word);
        }
        for word in ["thread", "none"] {
            assert_eq!(word.parse::<ContextCache>().unwrap().to_string(), word);
        }
        assert!("static".parse::<Huffman>().is_err() && "process".parse::<ContextCache>().is_err());
    }
}
