//! The form that a pack gives a body.
//!
//! Not for deciding when a leaf gets another form: the host does that.

use ziptier_codec::token::{Dictionary, Effort};

use crate::record::Kind;

/// The form that a pack gives a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The leaf's form and dictionary as they are. New values are coded fast.
    Keep,
    /// As [`Goal::Keep`], but new values become dense tokens.
    Settle,
    /// Coded with the current dictionary: tokens fast, blocks densely.
    Renew,
    /// Coded densely with the current dictionary.
    Recode,
    /// The leaf's dictionary as it is. Token numbers are coded by entropy where that saves bytes.
    Condense,
    /// The leaf's dictionary as it is. Token numbers have one width, which readers decode faster.
    Relax,
    /// Raw, because the leaf is hot.
    Heat,
}

impl Goal {
    /// Whether the leaf keeps its form and its dictionary.
    pub fn keeps_form(self) -> bool {
        matches!(self, Self::Keep | Self::Settle)
    }

    /// Whether the leaf keeps its dictionary.
    pub(crate) fn keeps_tokens(self) -> bool {
        self.keeps_form() || matches!(self, Self::Condense | Self::Relax)
    }

    /// The kind of values whose token numbers change, and their kind then.
    pub(super) fn renumbers(self) -> Option<(Kind, Kind)> {
        match self {
            Self::Condense => Some((Kind::Coded, Kind::Recoded)),
            Self::Relax => Some((Kind::Recoded, Kind::Coded)),
            _ => None,
        }
    }

    /// The effort with which values become tokens.
    pub(super) fn effort(self) -> Effort {
        match self {
            Self::Settle | Self::Recode | Self::Condense => Effort::Dense,
            Self::Keep | Self::Renew | Self::Relax | Self::Heat => Effort::Fast,
        }
    }

    /// How many of `records` whose values become tokens so could be smaller.
    pub(super) fn loose(self, records: usize) -> usize {
        if self.effort() == Effort::Fast { records } else { 0 }
    }

    /// How many of `records` whose values become tokens of `dictionary` so could be tried by entropy.
    pub(super) fn plain(self, records: usize, dictionary: &Dictionary) -> usize {
        if self.effort() == Effort::Fast || dictionary.codes().is_none() { records } else { 0 }
    }
}
