//! What a page tells at one moment, with every number checked.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::time::{ClockId, clock_gettime};

use super::{FarKind, MediumTold, Page};
use crate::configuration::{ClassName, NodeSet, Policy, Ratio};
use crate::fixed_text::FixedText;
use crate::size_class::CLASSES;
use core::fmt::Write;

/// What a library tells.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The version of the library.
    pub library_version: FixedText<33>,
    /// The sentence about the mistake for which it serves by DRAM alone; empty without one.
    pub mistake: FixedText<513>,
    /// The policy, unless the page holds none.
    pub policy: Option<Policy>,
    /// The ratio, unless the page holds none.
    pub ratio: Option<Ratio>,
    /// The threshold.
    pub threshold_bytes: u64,
    /// The part of the allocations of the threshold's size class that goes to far memory, 0 to 1.
    pub dither: f64,
    /// What far memory is.
    pub far_kind: FarKind,
    /// Its nodes.
    pub far_nodes: NodeSet,
    /// The class.
    pub class: Option<ClassName>,
    /// Whether the library lost its class.
    pub is_class_lost: bool,
    /// Threads that live and have allocated in far memory.
    pub threads: u32,
    /// Ticks so far.
    pub ticks: u64,
    /// Milliseconds of the system's monotonic clock at the last tick.
    pub ticked_ms: u64,
    /// Mappings that could not be bound to the nodes of far memory.
    pub failed_bindings: u64,
    /// Changes by commands, changes that the library obeys, and the last one that it refused.
    pub changes: u64,
    /// The number of changes that the library obeys.
    pub applied: u64,
    /// The number of changes that the library last refused.
    pub refused: u64,
    /// DRAM, then far memory.
    pub media: [MediumSeen; 2],
}

/// What a library tells of one medium; [`MediumTold`] names the fields.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "MediumTold has them")]
pub struct MediumSeen {
    pub live_bytes: u64,
    pub active_bytes: u64,
    pub mapped_bytes: u64,
    pub spills: u64,
    pub spilled_bytes: u64,
    pub moves: u64,
    pub moved_bytes: u64,
    pub live_bytes_by_class: [u64; CLASSES],
}

impl Snapshot {
    /// Reads a page.
    pub fn of(page: &Page) -> Snapshot {
        let told = &page.told;
        let class = ClassName::new(told.class.get(&mut [[0; 8]; 4]));
        Snapshot {
            library_version: printable(page.library_version.get(&mut [[0; 8]; 4])),
            mistake: printable(page.mistake.get(&mut [[0; 8]; 64])),
            policy: Policy::of_number(told.policy.load(Relaxed)),
            ratio: Ratio::of_word(told.ratio.load(Relaxed)),
            threshold_bytes: told.threshold_bytes.load(Relaxed),
            dither: told.dither.load(Relaxed).min(1 << 32) as f64 / (1u64 << 32) as f64,
            far_kind: FarKind::of_number(told.far_kind.load(Relaxed)),
            far_nodes: told.nodes(),
            class,
            is_class_lost: told.is_class_lost.load(Relaxed) != 0,
            threads: told.threads.load(Relaxed),
            ticks: told.ticks.load(Relaxed),
            ticked_ms: told.ticked_ms.load(Relaxed),
            failed_bindings: told.failed_bindings.load(Relaxed),
            changes: page.changes.load(Acquire),
            applied: page.applied.load(Acquire),
            refused: page.refused.load(Acquire),
            media: [0, 1].map(|medium: usize| MediumSeen::of(&told.media[medium])),
        }
    }

    /// Milliseconds since the last tick; none before the first one.
    pub fn age_ms(&self) -> Option<u64> {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ms = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000;
        (self.ticks > 0).then(|| now_ms.saturating_sub(self.ticked_ms))
    }

    /// Bytes in far memory to bytes in DRAM; none without bytes in DRAM.
    pub fn far_to_dram(&self) -> Option<f64> {
        let [dram, far] = &self.media;
        (dram.live_bytes > 0).then(|| far.live_bytes as f64 / dram.live_bytes as f64)
    }
}

impl MediumSeen {
    fn of(told: &MediumTold) -> MediumSeen {
        MediumSeen {
            live_bytes: told.live_bytes.load(Relaxed),
            active_bytes: told.active_bytes.load(Relaxed),
            mapped_bytes: told.mapped_bytes.load(Relaxed),
            spills: told.spills.load(Relaxed),
            spilled_bytes: told.spilled_bytes.load(Relaxed),
            moves: told.moves.load(Relaxed),
            moved_bytes: told.moved_bytes.load(Relaxed),
            live_bytes_by_class: core::array::from_fn(|class| told.live_bytes_by_class[class].load(Relaxed)),
        }
    }
}

/// The text, with a question mark for each byte that is no printable character.
fn printable<const BYTES: usize>(text: &[u8]) -> FixedText<BYTES> {
    let mut printable = FixedText::new();
    for &byte in text {
        let is_plain = byte == b' ' || byte.is_ascii_graphic();
        // Never fails: what has no room is cut off.
        let _ = printable.write_char(if is_plain { byte.into() } else { '?' });
    }
    printable
}
