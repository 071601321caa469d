//! For tests, which send leaves from place to place by chance.

use super::Store;
use crate::Error;

#[doc(hidden)]
impl Store {
    /// Sends leaves to SSD, those that `picks` says yes to; how many went there.
    pub fn send_to_ssd(&self, picks: impl FnMut() -> bool) -> Result<usize, Error> {
        self.core.moves().send_some_to_ssd(picks)
    }

    /// Brings leaves back, those that `picks` says yes to; how many came.
    pub fn bring_from_ssd(&self, picks: impl FnMut() -> bool) -> usize {
        self.core.moves().raise_some_from_ssd(picks)
    }

    /// Brings leaves back from far memory, those that `picks` says yes to; how many came.
    pub fn bring_from_far(&self, picks: impl FnMut() -> bool) -> usize {
        self.core.moves().raise_some_from_far(picks)
    }
}
