//! The form of a leaf's body: how the body holds its values, and what is left to do about that.
//!
//! Not for choosing a form: the host chooses, and [`Goal`](crate::packing::Goal) tells a pack.

use std::sync::Arc;

use ziptier_codec::token::Dictionary;

use crate::blocks::BlockCoding;
use crate::coding::Coding;

/// How a body holds its values, from the form that is read fastest to the densest ones.
#[derive(Clone, Default)]
pub enum Form {
    /// Raw, and kept raw because the leaf is read so often.
    Hot,
    /// Raw: no pack has coded the values.
    #[default]
    Raw,
    /// Each value by itself, by tokens, if that makes the value smaller. A leaf that is condensed has values whose
    /// tokens are coded by entropy.
    Coded {
        /// The dictionary that decodes the values.
        tokens: Arc<Dictionary>,
        /// About how many values were coded fast and would be smaller if they were coded densely.
        loose: u16,
        /// About how many values have token numbers of one width, and were not tried by entropy.
        plain: u16,
        /// A damaged value keeps the body in its coding. Nobody tries again before the leaf has another body.
        keeps_damage: bool,
    },
    /// Several values in a block.
    Packed {
        /// The coding that unpacks the blocks.
        blocks: Arc<BlockCoding>,
        /// About how many values were packed fast and would be smaller if they were packed densely.
        loose: u16,
        /// As in [`Form::Coded`].
        keeps_damage: bool,
    },
}

// Each leaf has one.
const _: () = assert!(size_of::<Form>() == 2 * size_of::<usize>());

impl Form {
    /// The form that `coding` gives values: raw without one.
    pub fn of(coding: Option<Coding>) -> Self {
        match coding {
            None => Self::Raw,
            Some(Coding::Tokens(tokens)) => Self::Coded { tokens, loose: 0, plain: 0, keeps_damage: false },
            Some(Coding::Blocks(blocks)) => Self::Packed { blocks, loose: 0, keeps_damage: false },
        }
    }

    /// The same form of another body, of whose values nothing is known.
    pub fn renewed(&self) -> Self {
        if self.is_hot() { Self::Hot } else { Self::of(self.coding()) }
    }

    /// The same form of a body with so many loose and plain values.
    pub fn with_counts(mut self, loose_values: u16, plain_values: u16) -> Self {
        match &mut self {
            Self::Hot | Self::Raw => {}
            Self::Coded { loose, plain, .. } => (*loose, *plain) = (loose_values, plain_values),
            Self::Packed { loose, .. } => *loose = loose_values,
        }
        self
    }

    /// Notes that a damaged value keeps the body in its coding.
    pub(crate) fn keep_damage(&mut self) {
        match self {
            Self::Hot | Self::Raw => {}
            Self::Coded { keeps_damage, .. } | Self::Packed { keeps_damage, .. } => *keeps_damage = true,
        }
    }

    /// The coding that decodes the values.
    pub fn coding(&self) -> Option<Coding> {
        match self {
            Self::Hot | Self::Raw => None,
            Self::Coded { tokens, .. } => Some(Coding::Tokens(tokens.clone())),
            Self::Packed { blocks, .. } => Some(Coding::Blocks(blocks.clone())),
        }
    }

    /// The token dictionary of the values, if they are coded by one.
    #[inline]
    pub fn tokens(&self) -> Option<&Arc<Dictionary>> {
        if let Self::Coded { tokens, .. } = self { Some(tokens) } else { None }
    }

    /// The engines of the values' blocks, if they lie in blocks.
    #[inline]
    pub fn blocks(&self) -> Option<&Arc<BlockCoding>> {
        if let Self::Packed { blocks, .. } = self { Some(blocks) } else { None }
    }

    /// The number of the coding.
    pub fn generation(&self) -> Option<u32> {
        match self {
            Self::Hot | Self::Raw => None,
            Self::Coded { tokens, .. } => Some(tokens.generation()),
            Self::Packed { blocks, .. } => Some(blocks.generation()),
        }
    }

    /// Whether a dictionary codes the values. Blocks without one are generation 0.
    pub(crate) fn has_dictionary(&self) -> bool {
        self.generation().is_some_and(|generation| generation > 0)
    }

    /// Whether values of the other form are as this one codes them: both are raw, have the same coding, or have the
    /// same tokens under another number, which got codes.
    pub fn codes_as(&self, other: &Self) -> bool {
        let is_renumbered = || {
            let tokens = self.tokens().zip(other.tokens());
            tokens.is_some_and(|(own, other)| own.is_renumbered(other) && other.codes().is_none())
        };
        self.generation() == other.generation() || is_renumbered()
    }

    /// Whether the body is kept raw because the leaf is read so often.
    #[inline]
    pub fn is_hot(&self) -> bool {
        matches!(self, Self::Hot)
    }

    /// About how many values were coded fast and would be smaller if they were coded densely.
    pub fn loose(&self) -> u16 {
        match self {
            Self::Hot | Self::Raw => 0,
            Self::Coded { loose, .. } | Self::Packed { loose, .. } => *loose,
        }
    }

    /// About how many values have token numbers of one width, and were not tried by entropy.
    pub fn plain(&self) -> u16 {
        if let Self::Coded { plain, .. } = self { *plain } else { 0 }
    }

    /// Whether a damaged value keeps the body in its coding.
    pub fn keeps_damage(&self) -> bool {
        matches!(self, Self::Coded { keeps_damage: true, .. } | Self::Packed { keeps_damage: true, .. })
    }
}
