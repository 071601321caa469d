//! Named classes: processes that share a ratio, and a budget of bytes per medium.
//!
//! A file on tmpfs holds the classes and a slot for each member process. The command makes and changes classes; the
//! library of each member writes its slot alone. Every field is an atomic, and no member waits for another. The kernel
//! copies the file for members, since a file that somebody shortens would end a process that looks into its mapping.
//!
//! 1. The library joins a class by its name ([`Membership::join`]): it takes a free slot, or that of a dead process.
//! 2. At each tick it says how many bytes it has in each medium ([`Membership::tick`]) and learns the ratio of the
//!    class and how many bytes it may have until the next tick. That is its *grant*.
//! 3. A grant is the member's bytes and a share of the room that is left. The member writes it down first and adds up
//!    the grants again; if two members have taken the same room, at least one of them sees it and takes less.
//!    Therefore the grants of members that tick never exceed a budget.
//! 4. A member that has not ticked for a second is idle, and only its bytes count. When it wakes before its tick, it
//!    can exceed the budget by the rest of its grant, which is at most a sixteenth of the budget.
//! 5. A member that has died, or runs another program by `exec`, is found by its process number, start time and stack.
//!    The others look for the dead once a second. The slot is free for the next one.
//!
//! The file belongs to the user of the processes or to root, and nobody outside its group may open it.

#[allow(unsafe_code, reason = "a mapping that other processes share")]
mod file;
mod membership;
mod process;
#[cfg(test)]
#[allow(unsafe_code, reason = "tests that fork")]
mod tests;

pub use file::{ClassError, ClassFile, ClassSeen, Locked, MemberSeen, default_path};
pub use membership::{Membership, Share};

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::page::Text;

/// The first word of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"ztCLASS\0");
/// The version of the layout.
const VERSION: u32 = 3;
/// Classes in a file.
pub const CLASSES_MAX: usize = 32;
/// Members of all classes together.
pub const MEMBERS_MAX: usize = 256;
/// A member that has not ticked for so long is idle. Other members check as often whether its process lives.
const IDLE_MS: u64 = 1000;

/// The file, as it is mapped.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Table {
    magic: AtomicU64,
    version: AtomicU32,
    size_bytes: AtomicU32,
    classes: [Class; CLASSES_MAX],
    members: [Member; MEMBERS_MAX],
}

/// One class. It is in use while its generation is odd.
#[derive(Debug)]
#[repr(C, align(64))]
struct Class {
    generation: AtomicU32,
    unused: AtomicU32,
    name: Text<4>,
    /// The ratio of the members by [`crate::configuration::Ratio::to_word`]; 0 leaves each member its own.
    ratio: AtomicU64,
    /// Bytes that all members may have in DRAM and in far memory; [`u64::MAX`] is no limit.
    limit_bytes: [AtomicU64; 2],
}

/// One slot for a member.
#[derive(Debug)]
#[repr(C, align(64))]
struct Member {
    /// [`process::Identity`] as a word; 0 is a free slot.
    owner: AtomicU64,
    /// The class: its generation in the upper half, its index in the lower.
    class: AtomicU64,
    told: Told,
}

/// What a member says at each tick.
#[derive(Debug)]
#[repr(C)]
struct Told {
    live_bytes: [AtomicU64; 2],
    granted_bytes: [AtomicU64; 2],
    /// Milliseconds of the system's monotonic clock at the tick.
    ticked_ms: AtomicU64,
}
