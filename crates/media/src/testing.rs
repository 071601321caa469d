//! Disks for tests: one that remembers every operation and rebuilds what a power cut may leave, one that fails on
//! purpose, and one that holds an operation.
//!
//! Part of the crate so that whoever builds on [`crate::log`] and [`crate::segments`] tests with the same disks.

mod failing;
mod images;
mod pausing;
mod recording;

pub use failing::{FailingDisk, Fault};
pub use images::{CrashImage, Images};
pub use pausing::PausingDisk;
pub use recording::RecordingDisk;
