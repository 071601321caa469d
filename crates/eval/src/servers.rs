//! Servers in other processes: how to start, find and ask them.

pub(crate) mod client;
pub(crate) mod function;
pub(crate) mod listening;
pub(crate) mod process;
pub mod replies;
pub(crate) mod resp;
