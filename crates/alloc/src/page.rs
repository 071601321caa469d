//! The shared page: one process has the library, another the command, and both map the page.
//!
//! The library makes the page in a memfd and writes down what it does. The command finds the page by the name of the
//! memfd in `/proc/PID/fd`, reads it, and writes down what it wants. Every field is an atomic, so a process that is
//! killed in the middle leaves no lock behind.
//!
//! Neither side trusts the other: [`Page::wanted`] and [`Page::told`] check every number, and the memfd is sealed so
//! that nobody can shorten it under a mapping.
//!
//! 1. The library makes a page ([`SharedPage::create`]), or keeps a private one ([`Page::new`]) if it gets none.
//! 2. The library writes [`Told`] fields whenever it likes, each by itself.
//! 3. The command writes [`Wanted`] fields between two steps of [`Page::changes`] ([`Page::want`]).
//! 4. At its next tick the library sees another number of changes and reads them ([`Page::wanted`]). It stores the
//!    number in [`Page::applied`] after it has obeyed, or in [`Page::refused`] if it cannot.
//! 5. A forked child shares the page of its parent. The library calls [`SharedPage::detach`] right after the fork and
//!    [`SharedPage::renew`] before it tells: the same address then has a page of the child's own.

#[allow(unsafe_code, reason = "a mapping that other processes share")]
mod mapping;
mod snapshot;
mod text;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::configuration::{ClassName, Configuration, NodeSet, Policy, Ratio};
use crate::size_class::CLASSES;
pub use mapping::{AttachError, SharedPage};
pub use snapshot::{MediumSeen, Snapshot};
pub use text::Text;

/// The name of the memfd. `/proc/PID/fd` links it as `/memfd:ziptier-alloc (deleted)`.
pub const MEMFD_NAME: &core::ffi::CStr = c"ziptier-alloc";

/// The first word of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ztALLOC\0");

/// The version of the layout. Both sides refuse another one. A change of any field raises it.
pub const VERSION: u32 = 1;

/// The page. It is larger than what the kernel calls a page.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Page {
    /// [`MAGIC`], stored last by [`Page::publish`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The size of this structure.
    pub size_bytes: AtomicU32,
    /// The process that writes [`Page::told`].
    pub pid: AtomicU32,
    /// Padding.
    pub unused: AtomicU32,
    /// The version of the library, such as `0.2.0`.
    pub library_version: Text<4>,
    /// The sentence about the mistake for which the library serves by DRAM alone; empty without one.
    pub mistake: Text<64>,
    /// Changes begun and ended by commands: odd while one writes.
    pub changes: AtomicU64,
    /// What commands want.
    pub wanted: Wanted,
    /// The number of changes that the library obeys.
    pub applied: AtomicU64,
    /// The number of changes that the library last refused, because they were no valid options.
    pub refused: AtomicU64,
    /// What the library tells.
    pub told: Told,
}

/// Options that a command changes, as [`Configuration`] has them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Wanted {
    policy: AtomicU32,
    tables_in_dram: AtomicU32,
    ratio: AtomicU64,
    threshold_bytes: AtomicU64,
    threshold_min_bytes: AtomicU64,
    threshold_max_bytes: AtomicU64,
    pinned_below_bytes: AtomicU64,
    dram_limit_bytes: AtomicU64,
    far_limit_bytes: AtomicU64,
}

/// The two media, as indices of [`Told::media`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Medium {
    /// DRAM.
    Dram = 0,
    /// Far memory.
    Far = 1,
}

/// What far memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FarKind {
    /// Not decided yet.
    Unknown = 0,
    /// The nodes of [`Told::far_nodes`].
    Nodes = 1,
    /// Ordinary memory that is counted as far.
    Simulated = 2,
}

impl FarKind {
    /// The kind of a number; an impossible one is unknown.
    pub const fn of_number(number: u32) -> FarKind {
        match number {
            1 => FarKind::Nodes,
            2 => FarKind::Simulated,
            _ => FarKind::Unknown,
        }
    }
}

/// What the library tells.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Told {
    /// DRAM, then far memory.
    pub media: [MediumTold; 2],
    /// The threshold now: sizes above lie in far memory, smaller ones in DRAM.
    pub threshold_bytes: AtomicU64,
    /// The part of the allocations of the threshold's size class that goes to far memory, in 2^-32.
    pub dither: AtomicU64,
    /// The policy now.
    pub policy: AtomicU32,
    /// [`FarKind`] as a number.
    pub far_kind: AtomicU32,
    /// The ratio now, by [`Ratio::to_word`]: that of the class, if the process is in one.
    pub ratio: AtomicU64,
    /// The nodes of far memory.
    pub far_nodes: [AtomicU64; NodeSet::WORDS],
    /// The name of the class, filled up with zeros; all zeros without one.
    pub class: Text<4>,
    /// Whether the process is not in its class: the file of classes is damaged, or has no such class.
    pub is_class_lost: AtomicU32,
    /// Threads that live and have allocated in far memory.
    pub threads: AtomicU32,
    /// Ticks so far.
    pub ticks: AtomicU64,
    /// Milliseconds of the system's monotonic clock at the last tick.
    pub ticked_ms: AtomicU64,
    /// Mappings that could not be bound to the nodes of far memory.
    pub failed_bindings: AtomicU64,
}

/// What the library tells of one medium.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct MediumTold {
    /// Bytes of live allocations, by their usable sizes.
    pub live_bytes: AtomicU64,
    /// Bytes of pages that hold live allocations.
    pub active_bytes: AtomicU64,
    /// Bytes of mappings.
    pub mapped_bytes: AtomicU64,
    /// Allocations that the policy gave this medium and that the other took, because this one had no room.
    pub spills: AtomicU64,
    /// Bytes of these.
    pub spilled_bytes: AtomicU64,
    /// Allocations that moved to this medium when they were reallocated.
    pub moves: AtomicU64,
    /// Bytes of these.
    pub moved_bytes: AtomicU64,
    /// Live bytes by [`crate::size_class::class`].
    pub live_bytes_by_class: [AtomicU64; CLASSES],
}

const fn zero() -> AtomicU64 {
    AtomicU64::new(0)
}

impl MediumTold {
    const fn new() -> MediumTold {
        MediumTold {
            live_bytes: zero(),
            active_bytes: zero(),
            mapped_bytes: zero(),
            spills: zero(),
            spilled_bytes: zero(),
            moves: zero(),
            moved_bytes: zero(),
            live_bytes_by_class: [const { zero() }; CLASSES],
        }
    }
}

impl Page {
    /// A page that no other process sees, for the time before [`SharedPage::create`].
    #[allow(clippy::new_without_default, reason = "a static needs it")]
    pub const fn new() -> Page {
        Page {
            magic: zero(),
            version: AtomicU32::new(VERSION),
            size_bytes: AtomicU32::new(size_of::<Page>() as u32),
            pid: AtomicU32::new(0),
            unused: AtomicU32::new(0),
            library_version: Text::new(),
            mistake: Text::new(),
            changes: zero(),
            wanted: Wanted::new(),
            applied: zero(),
            refused: zero(),
            told: Told::new(),
        }
    }

    /// Makes a zeroed page one that commands take. The library calls this after it has told what it starts with.
    pub fn publish(&self, pid: u32, library_version: &str, configuration: &Configuration) {
        self.version.store(VERSION, Relaxed);
        self.size_bytes.store(size_of::<Page>() as u32, Relaxed);
        self.pid.store(pid, Relaxed);
        self.library_version.set(library_version.as_bytes());
        self.wanted.store(configuration);
        self.magic.store(MAGIC, Release);
    }

    /// Whether a page is one, and of this version.
    ///
    /// # Errors
    ///
    /// What it is instead.
    pub fn check(&self) -> Result<(), AttachError> {
        if self.magic.load(Acquire) != MAGIC {
            return Err(AttachError::NoPage);
        }
        let (version, size_bytes) = (self.version.load(Relaxed), self.size_bytes.load(Relaxed));
        if version != VERSION || size_bytes as usize != size_of::<Page>() {
            return Err(AttachError::Version { found: version });
        }
        Ok(())
    }

    /// Writes down options for the library, and returns the number that it will store in [`Page::applied`]. Only the
    /// options that a running program takes are written. Commands call this one after another: each locks the file.
    pub fn want(&self, configuration: &Configuration) -> u64 {
        // Odd while the fields are written. A writer that was killed has left it odd.
        let begun = self.changes.load(Relaxed) | 1;
        self.changes.store(begun, Relaxed);
        fence(Release);
        self.wanted.store(configuration);
        self.changes.store(begun + 1, Release);
        begun + 1
    }

    /// The options that commands want, over those of `now`, if they have changed since the number `seen`. The number
    /// is that for [`Page::applied`], or for [`Page::refused`] if the options are none.
    pub fn wanted(&self, seen: u64, now: &Configuration) -> Option<(u64, Option<Configuration>)> {
        let changes = self.changes.load(Acquire);
        if changes == seen || changes % 2 == 1 {
            return None;
        }
        let wanted = self.wanted.load(now);
        fence(Acquire);
        (self.changes.load(Relaxed) == changes).then_some((changes, wanted))
    }
}

impl Wanted {
    const fn new() -> Wanted {
        Wanted {
            policy: AtomicU32::new(0),
            tables_in_dram: AtomicU32::new(0),
            ratio: zero(),
            threshold_bytes: zero(),
            threshold_min_bytes: zero(),
            threshold_max_bytes: zero(),
            pinned_below_bytes: zero(),
            dram_limit_bytes: zero(),
            far_limit_bytes: zero(),
        }
    }

    fn store(&self, from: &Configuration) {
        self.policy.store(from.policy as u32, Relaxed);
        self.tables_in_dram.store(from.tables_in_dram.into(), Relaxed);
        self.ratio.store(from.ratio.to_word(), Relaxed);
        for (field, value) in [
            (&self.threshold_bytes, from.threshold_bytes),
            (&self.threshold_min_bytes, from.threshold_min_bytes),
            (&self.threshold_max_bytes, from.threshold_max_bytes),
            (&self.pinned_below_bytes, from.pinned_below_bytes),
            (&self.dram_limit_bytes, from.dram_limit_bytes),
            (&self.far_limit_bytes, from.far_limit_bytes),
        ] {
            field.store(value, Relaxed);
        }
    }

    /// The options, over those of `now`; `None` if they are not valid.
    pub fn load(&self, now: &Configuration) -> Option<Configuration> {
        let configuration = Configuration {
            policy: Policy::of_number(self.policy.load(Relaxed))?,
            ratio: Ratio::of_word(self.ratio.load(Relaxed))?,
            threshold_bytes: self.threshold_bytes.load(Relaxed),
            threshold_min_bytes: self.threshold_min_bytes.load(Relaxed),
            threshold_max_bytes: self.threshold_max_bytes.load(Relaxed),
            pinned_below_bytes: self.pinned_below_bytes.load(Relaxed),
            tables_in_dram: match self.tables_in_dram.load(Relaxed) {
                0 => false,
                1 => true,
                _ => return None,
            },
            dram_limit_bytes: self.dram_limit_bytes.load(Relaxed),
            far_limit_bytes: self.far_limit_bytes.load(Relaxed),
            ..*now
        };
        configuration.is_valid().then_some(configuration)
    }
}

impl Told {
    const fn new() -> Told {
        Told {
            media: [const { MediumTold::new() }; 2],
            threshold_bytes: zero(),
            dither: zero(),
            policy: AtomicU32::new(0),
            far_kind: AtomicU32::new(0),
            ratio: zero(),
            far_nodes: [const { zero() }; NodeSet::WORDS],
            class: Text::new(),
            is_class_lost: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            ticks: zero(),
            ticked_ms: zero(),
            failed_bindings: zero(),
        }
    }

    /// What is told of a medium.
    pub fn medium(&self, medium: Medium) -> &MediumTold {
        &self.media[medium as usize]
    }

    /// Tells what far memory is.
    pub fn set_far(&self, kind: FarKind, nodes: &NodeSet) {
        for (field, &word) in self.far_nodes.iter().zip(&nodes.words) {
            field.store(word, Relaxed);
        }
        self.far_kind.store(kind as u32, Relaxed);
    }

    /// The nodes of far memory.
    pub fn nodes(&self) -> NodeSet {
        NodeSet { words: core::array::from_fn(|index| self.far_nodes[index].load(Relaxed)) }
    }

    /// Tells the class.
    pub fn set_class(&self, class: Option<&ClassName>) {
        self.class.set(class.map_or(&[], |class| class.as_str().as_bytes()));
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "tests that look at descriptors and break a page")]
mod tests;
