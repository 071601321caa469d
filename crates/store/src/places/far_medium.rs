//! Far memory of the machine as a medium of the tree.

use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier_media::far::{Far, FarKind, FarOptions, Fit};
use ziptier_tree::far::{FarMedium, FarMemory, FarUsage};
use ziptier_tree::placement::Placement;

use crate::Error;

/// DRAM to far memory, as a ratio of bytes; `1:3` in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarRatio {
    dram: u32,
    far: u32,
}

impl FarRatio {
    /// So many parts of DRAM to so many of far memory; `None` if both are 0.
    pub fn new(dram: u32, far: u32) -> Option<Self> {
        (dram > 0 || far > 0).then_some(Self { dram, far })
    }

    fn placement(self) -> Placement {
        Placement::new(self.dram, self.far)
    }
}

impl FromStr for FarRatio {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let part = |part: &str| part.trim().parse::<u32>().ok();
        let parts = text.split_once(':').and_then(|(dram, far)| Some((part(dram)?, part(far)?)));
        let ratio = parts.and_then(|(dram, far)| Self::new(dram, far));
        ratio.ok_or_else(|| Error::FarRatio { ratio: text.to_owned() })
    }
}

/// Opens far memory empty, whatever an earlier process left there.
pub(crate) fn open_far(
    options: &FarOptions,
    ratio: Option<FarRatio>,
    takes_any: bool,
) -> Result<Arc<FarMemory>, Error> {
    let far = Far::open_empty(options).map_err(|error| Error::Far { reason: error.to_string() })?;
    let medium = Mapped { far, takes_any: AtomicBool::new(takes_any) };
    Ok(FarMemory::new(Box::new(medium), ratio.map(FarRatio::placement)))
}

struct Mapped {
    far: Far,
    takes_any: AtomicBool,
}

impl Mapped {
    fn fit(&self) -> Fit {
        if self.takes_any.load(Relaxed) { Fit::Any } else { Fit::Close }
    }
}

// SAFETY: the medium writes to no block until `free` gives it back, and its mapping never moves.
unsafe impl FarMedium for Mapped {
    fn put(&self, bytes: &[u8]) -> Option<NonNull<[u8]>> {
        let block = self.far.put_fitting(bytes, self.fit()).ok()?;
        Some(NonNull::from(self.far.get(&block)))
    }

    unsafe fn free(&self, block: NonNull<[u8]>) {
        // SAFETY: by the contract the block is one of this medium, and this is its one owner.
        self.far.free(unsafe { self.far.block_at(block) });
    }

    unsafe fn is_whole(&self, block: NonNull<[u8]>) -> bool {
        // SAFETY: by the contract the block is one of this medium. Dropping this second handle frees nothing.
        let block = unsafe { self.far.block_at(block) };
        self.far.verify(&block).is_ok()
    }

    fn has_room(&self, bytes: usize, blocks: usize) -> bool {
        self.far.has_room(bytes, blocks, self.fit())
    }

    fn set_takes_any(&self, takes_any: bool) {
        self.takes_any.store(takes_any, Relaxed);
    }

    fn usage(&self) -> FarUsage {
        let usage = self.far.usage();
        FarUsage { capacity_bytes: usage.capacity_bytes, used_bytes: usage.used_bytes }
    }

    fn kind(&self) -> String {
        self.far.kind().to_string()
    }

    fn persistence(&self) -> String {
        self.far.persistence().to_string()
    }

    fn is_anonymous(&self) -> bool {
        matches!(self.far.kind(), FarKind::Node { .. })
    }
}
