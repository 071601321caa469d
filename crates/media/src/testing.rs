//! Disks for tests. One records every operation and rebuilds the states that a power cut may leave, one fails on
//! purpose, and one holds an operation.
//!
//! The module is part of the crate, so that users of [`crate::log`] and [`crate::segments`] can test with the same
//! disks.

mod failing;
mod images;
mod pausing;
mod recording;

pub use failing::{FailingDisk, Fault};
pub use images::{CrashImage, Images};
pub use pausing::PausingDisk;
pub use recording::RecordingDisk;
