//! Disks for tests: one that remembers every operation and rebuilds what a power cut may leave, and one that fails on purpose.
//!
//! Part of the crate so that whoever builds on [`crate::log`] and [`crate::segments`] tests with the same disks.

mod failing;
mod images;
mod recording;

pub use failing::{FailingDisk, Fault};
pub use images::{CrashImage, Images};
pub use recording::RecordingDisk;
