//! The coding of a body: a dictionary of tokens, or an engine for blocks. A leaf's state shares the coding that decodes
//! its body.

use std::sync::Arc;

use ziptier_codec::token::Dictionary;

use crate::blocks::BlockCoding;

/// Tokens of so many bits have a table of 256 KiB, which stays in the second cache.
pub(crate) const BITS_CACHED: u32 = 14;

/// A generation of tokens or of blocks. Shared by every body that was written with it, and freed with the last.
#[derive(Clone)]
pub enum Coding {
    /// Each value by itself, by the tokens of a dictionary.
    Tokens(Arc<Dictionary>),
    /// Several values in a block.
    Blocks(Arc<BlockCoding>),
}

impl Coding {
    /// Its number: of two codings of a store, the later has the higher one.
    pub fn generation(&self) -> u32 {
        match self {
            Self::Tokens(dictionary) => dictionary.generation(),
            Self::Blocks(blocks) => blocks.generation(),
        }
    }

    /// Bytes it holds, whoever uses it.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Tokens(dictionary) => dictionary.memory_bytes(),
            Self::Blocks(blocks) => blocks.memory_bytes(),
        }
    }

    /// Whether it is a table of tokens that a processor's second cache does not hold.
    pub(crate) fn outgrows_cache(&self) -> bool {
        self.tokens().is_some_and(|tokens| tokens.bits() > BITS_CACHED)
    }

    /// The token dictionary, if it is one.
    pub fn tokens(&self) -> Option<&Arc<Dictionary>> {
        match self {
            Self::Tokens(dictionary) => Some(dictionary),
            Self::Blocks(_) => None,
        }
    }

    /// Whether it is a token dictionary with codes.
    pub fn has_codes(&self) -> bool {
        self.tokens().is_some_and(|tokens| tokens.codes().is_some())
    }

    /// The blocks' engines, if it has any.
    pub fn blocks(&self) -> Option<&Arc<BlockCoding>> {
        match self {
            Self::Tokens(_) => None,
            Self::Blocks(blocks) => Some(blocks),
        }
    }
}
