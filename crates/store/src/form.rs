//! The form of a body: how it holds its values.
//!
//! Not for choosing a form: the sweep and the tierer choose, and [`Goal`](crate::packing::Goal) tells a pack.

use crate::leaf::LeafState;

/// How a body holds its values, from the form that is read fastest to the densest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Raw, and kept raw because the leaf is read so often.
    Hot,
    /// Raw: nothing has coded the values, or coding makes none of them smaller.
    Raw,
    /// Each value by itself, by tokens. A leaf that is condensed has values whose tokens are coded by entropy.
    Coded,
    /// Several values in a block.
    Packed,
}

impl Form {
    /// Whether a reader decodes or unpacks values.
    pub(crate) fn is_compressed(self) -> bool {
        matches!(self, Self::Coded | Self::Packed)
    }
}

impl LeafState {
    /// How the body holds its values.
    #[inline]
    pub(crate) fn form(&self) -> Form {
        if self.heated { Form::Hot } else { self.body.form() }
    }
}
