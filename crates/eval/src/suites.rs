//! Whole evaluations: many configurations measured in turns, and a verdict on each.

pub(crate) mod bypass;
#[cfg(feature = "plots")]
pub(crate) mod bypass_plot;
pub(crate) mod bypass_rounds;
pub(crate) mod bypass_summary;
pub(crate) mod cassandra;
pub(crate) mod codec;
pub(crate) mod database;
pub(crate) mod database_scaling;
pub(crate) mod models;
pub(crate) mod published;
pub(crate) mod server;
pub(crate) mod verdict;
