//! Makes tokens of a block: numbers, or shorter codes if the dictionary has them.
//!
//! 1. The block is [cut into rows](crate::rows), which the encoder codes side by side. Their numbers are one run.
//! 2. If the dictionary has codes, the run is coded by them. The token before decides about the code of a token, also
//!    from row to row. A block with tokens enough has them in parts, which the decoder reads side by side.
//!
//! The decoder knows neither rows nor the way of the encoder. It always decodes the whole block.

use crate::codec::{BlockType, ENTROPY, ENTROPY_PARTS, TOKENS};
use crate::rows;
use std::collections::TryReserveError;
use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{Dictionary, Effort, Encoder};

/// Scratch for blocks of any dictionary: one for each thread.
#[derive(Default)]
pub(crate) struct TokenCoder {
    encoder: Encoder,
    recoder: Recoder,
    recoded: Vec<u8>,
}

impl TokenCoder {
    /// Bytes of heap that the scratch holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() + self.recoder.memory_bytes() + self.recoded.capacity()
    }

    /// Appends a block, and returns its type: [`ENTROPY`] or [`ENTROPY_PARTS`] if the dictionary has codes and they
    /// make the block shorter, else [`TOKENS`].
    ///
    /// # Errors
    ///
    /// Memory for the numbers was refused. Nothing was appended. If memory for codes is refused, numbers stay.
    pub(crate) fn append(
        &mut self,
        tokens: &Dictionary,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<BlockType, TryReserveError> {
        let mut cut = Vec::new();
        rows::cut(raw, &mut cut)?;
        let start = out.len();
        tokens.try_encode_rows(&mut self.encoder, effort, &cut, out)?;
        let Some(codes) = tokens.codes() else { return Ok(TOKENS) };
        self.recoded.clear();
        if self.recoder.try_reserve(codes, out.len() - start, &mut self.recoded).is_err() {
            return Ok(TOKENS);
        }
        let recoded = self.recoder.recode_block(codes, tokens, &out[start..], &mut self.recoded);
        let has_parts = recoded.expect("the dictionary has just coded it");
        if self.recoded.len() >= out.len() - start {
            return Ok(TOKENS);
        }
        out.truncate(start);
        out.extend_from_slice(&self.recoded);
        Ok(if has_parts { ENTROPY_PARTS } else { ENTROPY })
    }

    /// Codes for a dictionary that has none, made for such blocks. The training holds at most `bytes_max` beside the
    /// blocks and their numbers. `None` if memory for the numbers is refused.
    pub(crate) fn train(
        &mut self,
        tokens: &Dictionary,
        effort: Effort,
        blocks: &[&[u8]],
        bytes_max: usize,
    ) -> Option<Codes> {
        let (mut coded, mut ends) = (Vec::new(), vec![0]);
        for block in blocks {
            self.append(tokens, effort, block, &mut coded).ok()?;
            ends.push(coded.len());
        }
        let coded: Vec<&[u8]> = ends.windows(2).map(|ends| &coded[ends[0]..ends[1]]).collect();
        Codes::train_coded(tokens, &coded, bytes_max).ok()
    }
}
