//! A device in software: it executes the same descriptors over the memory of this process.
//!
//! The model follows the description of the interface, as a device does. It uses only the bytes of descriptors, states
//! and buffers. It is strict where the hardware's behaviour is unknown. It does not model mini-blocks (indexing),
//! dictionaries for compression, states in format 2, and the operations on zero records.
//!
//! Jobs run on a thread of the device, or within their submission. With [`Timing`] each job completes at the time at
//! which the modelled device would complete it, if the software is fast enough. A processor takes longer for a job than
//! the device would. So a timed model answers repeated decompressions from memory, including streams that it packed and
//! verified. [`Model::lateness`] reports the delay. A prediction from a delayed run underestimates the device.
//!
//! Every figure from the model is labelled *modelled*: see [`Device::is_modelled`](crate::Device::is_modelled).

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
