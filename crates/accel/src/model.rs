//! A device in software: it executes the same descriptors over the memory of this process.
//!
//! It is written from the description of the interface, as a device would be: from the bytes of descriptors, states and
//! buffers, and from nothing that is passed beside them. It is strict where the hardware's behaviour is not known. Not
//! modelled are mini-blocks (indexing), dictionaries for compression, states in format 2, and the operations on zero
//! records.
//!
//! Jobs run on a thread of the device's own, or within their submission. With [`Timing`] each one completes when the
//! modelled device would have completed it, provided that the software is fast enough: executing a job takes the
//! processor longer than it would take the device. So a timed model answers from memory what it has decompressed
//! before, which what it packed and verified has been. [`Model::lateness`] says how far behind it fell; a prediction
//! from a run that fell behind underestimates the device.
//!
//! Every figure that comes from it is labelled *modelled*: see [`Device::is_modelled`](crate::Device::is_modelled).

mod checksum;
mod compress;
mod elements;
mod engine;
mod filter;
mod header;
mod inflate;
mod injection;
mod input;
mod matches;
mod memo;
mod memory;
mod options;
mod queue;
mod schedule;
mod sink;
mod tables;
mod usage;
mod validate;

pub use injection::{Injection, Misfortune};
pub use options::{ModelOptions, ModelOptionsError, Timing};
pub use queue::{Lateness, Model};
pub use usage::ModelUsage;
