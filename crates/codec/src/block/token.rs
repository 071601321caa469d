//! Format `token`: blocks as runs of token numbers, by a [`Dictionary`] of tokens. They unpack several times faster
//! than zstd.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | 0: the block itself follows; 1: token numbers and their check ([`crate::token`]); 2: a zstd frame without its magic number |
//! | rest | that |
//!
//! The encoder takes zstd only where tokens are longer by a quarter, at level 2 by a tenth: tokens unpack four times
//! faster. While zstd keeps losing, the encoder tries it on fewer and fewer blocks, and on those whose tokens save less
//! than usual. A block never grows by more than its first byte.

use super::context::{Coder, Context, Damage, Failure};
use super::setting::SettingError;
use super::zstd::{self, Zstd};
use super::{BlockCodec, BlockError, Counters, Dictionary, Engine};
use crate::format::Format;
use crate::scratch::{SCRATCH_BYTES_MAX, trim};
use crate::token::{self, BITS, CHECK_BYTES, DecodeError, Effort, Encoder, TOKEN_BYTES_MAX};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Levels of the format: 1 is fast, 2 is dense.
pub const LEVELS: RangeInclusive<i32> = 1..=2;

/// Level of zstd.
const ZSTD_LEVEL: i32 = 3;

/// Tokens may be longer than zstd's bytes by this many per cent.
fn worth_pct(effort: Effort) -> usize {
    match effort {
        Effort::Fast => 25,
        Effort::Dense => 10,
    }
}

/// Blocks in a row that zstd was no better for, or was not tried on, after which it is tried on one in so many.
const TRY_EVERY: [(u32, u32); 2] = [(8, 16), (128, 64)];

/// Tokens of a block that are longer than usual by this fraction, one in so many, may be those of other data.
const UNUSUAL: u32 = 8;

/// The trainer and the encoder take rows of this length. The encoder codes them side by side.
pub(super) const ROW_BYTES: usize = 512;

const RAW: u8 = 0;
const TOKENS: u8 = 1;
const ZSTD: u8 = 2;

/// The engine of format `token`: the CPU.
pub struct Tokens {
    effort: Effort,
    dictionary: Arc<Dictionary>,
    tokens: Arc<token::Dictionary>,
    zstd: Zstd,
    counters: Counters,
}

impl Tokens {
    /// An engine for a level and a dictionary of tokens, which it needs.
    pub fn new(level: i32, dictionary: Option<Arc<Dictionary>>) -> Result<Tokens, SettingError> {
        let effort = match level {
            1 => Effort::Fast,
            2 => Effort::Dense,
            _ => {
                return Err(SettingError::Level {
                    engine: "cpu",
                    format: Format::Token,
                    level,
                    levels: LEVELS,
                });
            }
        };
        let dictionary = dictionary.ok_or(SettingError::NoDictionary { format: Format::Token })?;
        let tokens = dictionary
            .tokens()
            .ok_or(SettingError::DictionaryFormat { found: dictionary.format(), expected: Format::Token })?;
        let zstd = Zstd::new(ZSTD_LEVEL, None)?;
        Ok(Tokens { effort, dictionary, tokens, zstd, counters: Counters::new() })
    }
}

impl Engine for Tokens {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn format(&self) -> Format {
        Format::Token
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        raw_bytes + 1
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let coder = TokenCoder {
            effort: self.effort,
            tokens: &self.tokens,
            zstd: self.zstd.open()?,
            encoder: Encoder::new(),
            scratch: Vec::new(),
            losses: 0,
            usual: 0,
        };
        Ok(Box::new(Context::new(coder, Format::Token, self.dictionary.fingerprint(), self.counters.open())))
    }
}

struct TokenCoder<'a> {
    effort: Effort,
    tokens: &'a token::Dictionary,
    zstd: Box<dyn BlockCodec + 'a>,
    encoder: Encoder,
    /// A coded block, or a value that is decoded with room to spare.
    scratch: Vec<u8>,
    /// Blocks in a row that were no zstd.
    losses: u32,
    /// Coded bytes of 1,024 raw ones, the mean of late over blocks that were no zstd.
    usual: u32,
}

impl TokenCoder<'_> {
    /// Whether zstd is tried on a block that is like those before.
    fn tries_zstd(&mut self) -> bool {
        self.losses = self.losses.wrapping_add(1);
        let pause = TRY_EVERY.iter().rev().find(|(losses, _)| self.losses > *losses);
        pause.is_none_or(|(_, every)| self.losses.is_multiple_of(*every))
    }

    /// Leaves the shortest form of a block in the scratch, behind its first byte. `None` if that is the block itself.
    fn code(&mut self, raw: &[u8]) -> Result<Option<u8>, BlockError> {
        self.scratch.clear();
        self.tokens.encode_block(&mut self.encoder, self.effort, raw, ROW_BYTES, &mut self.scratch);
        let coded_bytes = self.scratch.len();
        let share = (coded_bytes * 1024 / raw.len().max(1)).min(2048) as u32;
        let is_unusual = self.usual > 0 && share > self.usual + self.usual / UNUSUAL;
        if is_unusual || self.tries_zstd() {
            let worth = coded_bytes.min(raw.len()) * 100 / (100 + worth_pct(self.effort));
            if self.zstd.compress(raw, &mut self.scratch, worth)?.is_some() {
                self.losses = if is_unusual { self.losses } else { 0 };
                self.scratch.drain(..coded_bytes);
                return Ok(Some(ZSTD));
            }
        }
        self.usual = if self.usual == 0 { share } else { (15 * self.usual + share) / 16 };
        Ok((coded_bytes < raw.len()).then_some(TOKENS))
    }
}

/// Writes a block's first byte and the rest, if there is room.
fn write(kind: u8, rest: &[u8], target: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let target = target.get_mut(..=rest.len())?;
    target[0].write(kind);
    target[1..].write_copy_of_slice(rest);
    Some(target.len())
}

// SAFETY: `compress` and `decompress` return the length of what they copied to the start of the target, or of what
// other coders have written there.
unsafe impl Coder for TokenCoder<'_> {
    type Error = Failure;

    fn bound(&self, raw_bytes: usize) -> usize {
        raw_bytes + 1
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        let (kind, rest) = kind_of(packed)?;
        Ok(match kind {
            TOKENS => rest.len().saturating_mul(TOKEN_BYTES_MAX * 8 / *BITS.start() as usize + 1),
            ZSTD => zstd::raw_bytes_max(rest),
            _ => rest.len(),
        })
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let kind = self.code(raw)?;
        let written = match kind {
            Some(kind) => write(kind, &self.scratch, target),
            None => write(RAW, raw, target),
        };
        trim(&mut self.scratch);
        Ok(written)
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        let (kind, rest) = kind_of(packed)?;
        match kind {
            RAW => Ok(target.get_mut(..rest.len()).map(|target| target.write_copy_of_slice(rest).len())),
            TOKENS => {
                // Decoding with room to spare and copying is faster than measuring first.
                self.scratch.clear();
                let spare_bytes = self.tokens.spare_bytes(rest.len());
                if spare_bytes <= SCRATCH_BYTES_MAX {
                    self.scratch.reserve(spare_bytes);
                }
                let decoded = self.tokens.decode_append(rest, &mut self.scratch, target.len());
                let written = decoded.map(|length| target[..length].write_copy_of_slice(&self.scratch).len());
                trim(&mut self.scratch);
                match written {
                    Ok(written) => Ok(Some(written)),
                    Err(DecodeError::TooLong { .. }) => Ok(None),
                    Err(_) => Err(Damage { position: 1, what: "no tokens of this dictionary" }.into()),
                }
            }
            _ => match self.zstd.decompress_up_to(rest, target) {
                Ok(raw) => Ok(raw.map(|raw| raw.len())),
                Err(BlockError::Damaged { position, what, .. }) => {
                    Err(Damage { position: position + 1, what }.into())
                }
                Err(error) => Err(Failure::Engine(error.to_string())),
            },
        }
    }
}

/// The first byte and the rest of a block that may be any bytes.
fn kind_of(packed: &[u8]) -> Result<(u8, &[u8]), Damage> {
    match packed.split_first() {
        Some((&kind @ (RAW | ZSTD), rest)) => Ok((kind, rest)),
        Some((&TOKENS, rest)) if rest.len() >= CHECK_BYTES => Ok((TOKENS, rest)),
        _ => Err(Damage { position: 0, what: "no kind of token block" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that a dictionary knows.
    fn text(seed: u32) -> Vec<u8> {
        let mut seed = seed;
        let words = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ["alpha ", "beta ", "gamma ", "delta ", "epsilon, ", "zeta. "][(seed >> 16) as usize % 6]
        });
        words.flat_map(str::bytes).take(4096).collect()
    }

    #[test]
    fn a_block_of_other_data_is_zstd_at_once() {
        let samples: Vec<Vec<u8>> = (0..40).map(text).collect();
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let dictionary = Dictionary::train(Format::Token, &samples, 16 << 10, 0).expect("words repeat");
        let engine = Tokens::new(1, Some(Arc::new(dictionary))).expect("it is one of tokens");
        let mut codec = engine.open().expect("it opens");
        let mut kind_of_block = |raw: &[u8]| {
            let mut packed = Vec::new();
            codec.compress(raw, &mut packed, raw.len() + 1).expect("it works").expect("it fits");
            packed[0]
        };
        // So many that zstd is tried on one in 64.
        assert!((1000..1200).all(|seed| kind_of_block(&text(seed)) == TOKENS));
        let numbers: Vec<u8> = (0..256).flat_map(|number: u32| (number * 7919).to_le_bytes()).collect();
        let others = numbers.repeat(4);
        for _ in 0..3 {
            assert_eq!(kind_of_block(&others), ZSTD);
            assert_eq!(kind_of_block(&text(7)), TOKENS);
        }
    }
}
