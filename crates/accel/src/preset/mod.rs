//! Canned codes and preset history that streams share, in the device's form.

mod behind;
mod learned;

use std::fmt;
use std::sync::LazyLock;

use ziptier_deflate::Dictionary;

use crate::aecs::{CompressState, DecompressState};
use crate::device::Device;
use crate::error::JobError;
pub(crate) use behind::BehindState;

/// Engine states of a dictionary. All jobs share the states and only read them. A preset holds up to 45 KiB.
pub struct Preset {
    /// At the header of a stream's first block, behind the history.
    headed: DecompressState,
    /// The fixed codes, behind the history.
    fixed: Box<BehindState>,
    canned: Option<Canned>,
}

/// States with the canned codes.
struct Canned {
    compress: CompressState,
    behind: Box<BehindState>,
    decompress: DecompressState,
}

impl Preset {
    /// States of history and, if the dictionary has them, canned codes, with which this device reads and writes canned
    /// blocks. The device writes the parts of its state that only it knows.
    pub fn new(dictionary: &Dictionary, device: &dyn Device) -> Result<Preset, JobError> {
        Preset::with(dictionary, |codes| learned::state_behind_header(device, codes))
    }

    /// The same with states written without a device. Only the model is sure to understand those of canned codes.
    pub fn written(dictionary: &Dictionary) -> Preset {
        let canned = Preset::with(dictionary, |codes| {
            let state = DecompressState::canned(codes.literals(), codes.distances());
            Ok(state.expect("canned codes were checked"))
        });
        canned.expect("no device was asked")
    }

    fn with(
        dictionary: &Dictionary,
        decompress: impl FnOnce(&ziptier_deflate::CannedLengths) -> Result<DecompressState, JobError>,
    ) -> Result<Preset, JobError> {
        let history = dictionary.history();
        let mut headed = DecompressState::new();
        headed.set_history(history);
        let canned = match dictionary.codes() {
            None => None,
            Some(codes) => {
                let compress = CompressState::canned(codes.literals(), codes.distances());
                let compress = compress.expect("canned codes were checked");
                let mut decompress = decompress(codes)?;
                decompress.set_history(history);
                Some(Canned { behind: BehindState::new(&compress, history), compress, decompress })
            }
        };
        Ok(Preset { headed, fixed: BehindState::new(fixed(), history), canned })
    }

    /// Whether it has canned codes.
    pub fn has_canned(&self) -> bool {
        self.canned.is_some()
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let behind = self.canned.as_ref().map_or(0, |canned| size_of_val(&*canned.behind));
        size_of_val(self) + size_of_val(&*self.fixed) + behind
    }

    /// The addresses of its parts, which a device reads.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, u64)> {
        fn part<T>(part: &T) -> (u64, u64) {
            let start = std::ptr::from_ref(part).addr() as u64;
            (start, start + size_of::<T>() as u64)
        }
        let behind = self.canned.as_ref().map(|canned| part(&*canned.behind));
        [part(self), part(&*self.fixed)].into_iter().chain(behind)
    }

    pub(crate) fn headed(&self) -> &DecompressState {
        &self.headed
    }

    pub(crate) fn fixed_behind(&self) -> &BehindState {
        &self.fixed
    }

    pub(crate) fn canned(&self) -> Option<&CompressState> {
        self.canned.as_ref().map(|canned| &canned.compress)
    }

    pub(crate) fn canned_behind(&self) -> Option<&BehindState> {
        self.canned.as_ref().map(|canned| &*canned.behind)
    }

    pub(crate) fn canned_decompress(&self) -> Option<&DecompressState> {
        self.canned.as_ref().map(|canned| &canned.decompress)
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
