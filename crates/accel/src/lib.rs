//! Intel's In-Memory Analytics Accelerator (IAA) from user space, and a software model of it.
//!
//! A work queue of the device takes 64-byte [descriptors](Descriptor), which name buffers by their virtual addresses.
//! The device writes a [completion record](CompletionRecord) into memory when a job is done. The trait [`Device`]
//! stands for everything that executes descriptors. It is a work queue of the machine, or the model, which does the
//! same in software on its own thread. Every output of the model is labelled *modelled*.
//!
//! ```
//! use std::sync::Arc;
//! use ziptier_accel::{Codes, Limits, Model, ModelOptions, Operation, Session, Stream};
//!
//! // A machine without the device; `discovery` finds the work queues of one that has it.
//! let device = Arc::new(Model::open(&ModelOptions::default())?);
//! let mut session = Session::new(vec![device], Limits::default());
//! let mut run = |operation, input: &[u8]| {
//!     session.submit(&operation, 0, input, 4096)?;
//!     let mut output = Vec::new();
//!     session.reap_all(|_tag, result| output = result.expect("the model completes this job").output.to_vec());
//!     Ok::<_, ziptier_accel::JobError>(output)
//! };
//!
//! let block = b"a block, a block, and a block again".repeat(50);
//! let packed = run(Operation::Compress { codes: Codes::Dynamic, verify: true }, &block)?;
//! assert!(packed.len() < block.len() / 10);
//! assert_eq!(run(Operation::Decompress(Stream::Plain), &packed)?, block);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`descriptor`] | the 64 bytes of a job, and the flags in them |
//! | [`completion`] | the 64 bytes of an answer: status, error code, results |
//! | [`device`] | the border between those who make descriptors and those who execute them |
//! | [`discovery`] | what the machine has, and why a work queue cannot be used |
//! | [`doctor`] | what stands between a process and the device, and the commands that would help |
//! | [`guarded`] | a queue that is lost after time-outs in a row, and in a forked child |
//! | [`home`] | which process this is |
//! | [`hardware`] | work queues of the machine, mapped or written to |
//! | [`null`] | a device that does nothing, to measure the host's part |
//! | [`session`] | a thread's jobs: submit, go on, reap; faults, full queues, time-outs |
//! | [`operations`] | compress, decompress, CRC64, filters: descriptors and what follows from their outcomes |
//! | `error`, `fields`, `jobs`, `memory`, `alone`, `preset` | parts of these |
//! | [`aecs`] | engine state: Huffman codes, history, parameters of filters |
//! | [`model`] | a device in software, with timing and with faults |

#[macro_use]
mod fields;

pub mod aecs;
mod alone;
pub mod completion;
pub mod descriptor;
pub mod device;
pub mod discovery;
pub mod doctor;
mod error;
pub mod guarded;
pub mod hardware;
pub mod home;
mod jobs;
mod memory;
pub mod model;
pub mod null;
pub mod operations;
mod preset;
pub mod session;

pub use completion::{CompletionRecord, ErrorCode, Outcome, Status};
pub use descriptor::{Descriptor, Opcode};
pub use device::{Capabilities, Device, SubmitError};
pub use error::JobError;
pub use guarded::Guarded;
pub use home::Home;
pub use model::{
    Injection, Lateness, Misfortune, Model, ModelOptions, ModelOptionsError, ModelUsage, Timing,
};
pub use operations::{
    Codes, Crc64, Elements, Filter, FilterKind, Operation, OutputWidth, PART_ROOM_BYTES, Parser, Stream,
};
pub use preset::Preset;
pub use session::{Counters, Finished, Limits, Session};
