//! Predicts what was not measured: other numbers of cores, threads and devices, many shards, memory beside DRAM.
//!
//! A prediction is labelled `predicted` wherever it is printed, and `modelled` as well if a device in it is modelled.
//! Nothing here measures; do not use it where a measurement is possible.
//!
//! | module | what |
//! |---|---|
//! | `measured` | points of threads and cores from the results of `ziptier bench` |
//! | `fit` | what an operation demands, fitted to these |
//! | `network` | queueing networks, solved |
//! | `what_if` | the file of cases: further stations, other cores |
//! | `cores` | cores for the throughput of another configuration |
//! | `memory_mode`, `memory_inputs`, `memory_text` | DRAM as a cache of far memory, or as a place beside it |
//! | `shards`, `sharding` | many shards, and how clients choose among them |
//! | `throughput`, `throughput_text` | predictions from these, and checks against points that the fit did not see |

mod cores;
mod fit;
mod measured;
mod memory_inputs;
mod memory_mode;
mod memory_text;
mod network;
mod sharding;
mod shards;
mod throughput;
mod throughput_text;
mod what_if;

pub(crate) use cores::cores_for;
pub use cores::{Saved, render_savings, savings};
pub use measured::{Point, Round, Series, read};
pub use memory_inputs::Memory;
pub use memory_mode::{Counts, Way, simulate_memory};
pub use memory_text::render_memory;
pub use sharding::Sharding;
pub use shards::{Balance, Cluster, render_balances, simulate};
pub use throughput::{HoldOut, Question, hold_out, predict};
pub use throughput_text::{render_held_out, render_predicted};
pub use what_if::WhatIf;

/// Files to begin with, by their names: cases for `throughput`, a cluster of shards, and DRAM in front of far memory.
pub const EXAMPLES: [(&str, &str); 3] = [
    ("what-if", include_str!("../sheets/what-if.toml")),
    ("shards", include_str!("../sheets/shards.toml")),
    ("memory-mode", include_str!("../sheets/memory-mode.toml")),
];
