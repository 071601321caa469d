//! What streams share, as the device wants it: canned codes and preset history.

use std::fmt;
use std::sync::LazyLock;

use ziptier_deflate::Dictionary;

use crate::aecs::{CompressState, DecompressState};

/// Engine states of a dictionary. They are only read by jobs, and shared by all of them.
pub struct Preset {
    /// At the header of a stream's first block, behind the history.
    headed: DecompressState,
    /// With the canned codes: for compress, and for decompress behind the history.
    canned: Option<(CompressState, DecompressState)>,
}

impl Preset {
    /// States of history and, if the dictionary has them, canned codes.
    pub fn new(dictionary: &Dictionary) -> Preset {
        let mut headed = DecompressState::new();
        headed.set_history(dictionary.history());
        let canned = dictionary.codes().map(|codes| {
            let (literals, distances) = (codes.literals(), codes.distances());
            let compress = CompressState::canned(literals, distances);
            let mut decompress =
                DecompressState::canned(literals, distances).expect("canned codes were checked");
            decompress.set_history(dictionary.history());
            (compress.expect("canned codes were checked"), decompress)
        });
        Preset { headed, canned }
    }

    /// Whether it has canned codes.
    pub fn has_canned(&self) -> bool {
        self.canned.is_some()
    }

    pub(crate) fn headed(&self) -> &DecompressState {
        &self.headed
    }

    pub(crate) fn compress(&self) -> Option<&CompressState> {
        self.canned.as_ref().map(|canned| &canned.0)
    }

    pub(crate) fn canned(&self) -> Option<&DecompressState> {
        self.canned.as_ref().map(|canned| &canned.1)
    }
}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preset").field("has_canned", &self.has_canned()).finish_non_exhaustive()
    }
}

/// The state of compress jobs with the codes of RFC 1951: one final block.
pub(crate) fn fixed() -> &'static CompressState {
    static FIXED: LazyLock<CompressState> = LazyLock::new(|| CompressState::fixed(true));
    &FIXED
}
