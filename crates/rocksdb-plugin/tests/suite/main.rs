//! Tests of the plugin in a stock RocksDB. They are one program, and each file is a module of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod an_estimate_is_what_a_rewrite_gives;
mod cache_survives_restarts;
mod compression_of_databases;
mod examples_run;
mod support;
mod the_log_is_followed_by_other_processes;
mod the_log_is_rocksdbs_own;
mod wrong_surroundings_are_told;
