//! Places to put bytes that are not the process's own memory, and what makes bytes durable there.
//!
//! Nothing here knows of records or codecs: callers hand over bytes, and get them back or an error that says what is wrong.
//!
//! | module | what it owns |
//! |---|---|
//! | [`disk`] | the one trait through which every operation on durable files goes, and the real disk behind it |
//! | [`log`] | the write-ahead log: opaque records, group commit, replay that tells a torn tail from damage |
//! | [`segments`] | segment files on SSD: immutable bodies, appended in large writes and read singly |
//! | `testing` | disks that record every operation and rebuild what a power cut would leave, and disks that fail on purpose |

mod aligned;
pub mod disk;
pub mod log;
pub mod segments;
#[doc(hidden)]
pub mod testing;
