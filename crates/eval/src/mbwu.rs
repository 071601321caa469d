//! Media-based work units (MBWU): what a platform costs for as much work as one storage medium allows.
//!
//! A unit belongs to a workload, a medium and a software: it is the throughput of a platform that nothing but the
//! medium limits. A platform's throughput over that is its number of units. Price, watts and litres for each unit tell
//! whether a data access function is better placed on it. The method is of Liu, Kufeldt and Maltzahn, "MBWU: Benefit
//! Quantification for Data Access Function Offloading" (HPC-IODC 2019).
//!
//! | module | what |
//! |---|---|
//! | `comparison`, `text` | units and platforms as numbers, and what is saved |
//! | `command` | a program of the user's that a round starts, and that ends with it |
//! | `service` | the server of a platform, which runs for one round |
//! | `preparation` | commands that purge and precondition the medium before a round |
//! | `sheets` | the files that describe a unit and platforms to measure |
//! | `evaluation` | measures them, round by round |
//! | `rounds`, `measured` | the rounds and the files that keep them; all that was measured, as the command tells it |
//! | `origin` | whether rounds belong together |
//! | `verdict` | whether what was measured is steady enough for a verdict |
//! | `raw`, `limit` | a raw load on the medium, and what held a platform back |
//! | `power` | watts, by meters, by a file of readings or by a model |

mod command;
mod comparison;
mod evaluation;
mod limit;
mod measured;
mod origin;
mod power;
mod preparation;
mod raw;
mod rounds;
mod service;
mod sheets;
mod text;
mod verdict;

pub use comparison::{Comparison, EXAMPLE, Part, Platform, Resource, Unit, effects_on_saving};
pub use evaluation::{Evaluation, Means, read};
pub use limit::{Limit, Shares};
pub use measured::Measured;
pub use origin::Origin;
pub(crate) use origin::known_by;
pub use power::{Power, Source};
pub use raw::Raw;
pub use rounds::Round;
pub use sheets::init;
pub use text::render;
pub(crate) use text::verdicts;
