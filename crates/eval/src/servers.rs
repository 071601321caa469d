//! Servers in other processes: how to start, find and ask them.

pub(crate) mod client;
pub(crate) mod listening;
pub(crate) mod process;
pub(crate) mod resp;
