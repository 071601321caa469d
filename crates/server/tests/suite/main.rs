//! Tests of the server through sockets. They are one program: the server is linked once, and each file is a module of
//! it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

#[macro_use]
mod support;

mod a_dump_that_stands_still_is_told;
mod a_failed_log_is_told;
mod an_ssd_keeps_files_from_clients;
mod background_work_is_told;
mod client_libraries_work;
mod clients_share_a_budget;
mod clients_wait_for_a_recovery;
mod commands_answer_as_redis_does;
mod concurrent_writes_lose_nothing;
mod histories_over_the_wire_are_linearizable;
mod keys_are_listed_within_bounds;
mod large_values_come_back_whole;
mod long_commands_stall_nobody;
mod look_ups_are_counted_as_in_redis;
mod malformed_input_never_stops_the_server;
mod passwords_keep_strangers_out;
mod random_commands_answer_as_redis_does;
mod random_requests;
mod ranges_hold_their_records;
mod readers_of_old_values_hold_little;
mod redis_tools_work;
mod renames_and_copies_keep_to_the_limit;
mod scan_returns_every_key;
mod settings_change_while_it_runs;
mod slow_readers_hold_little;
mod sockets_are_looked_at_between_steps;
mod stopping_ends_every_thread;
mod the_page_for_operators_holds;
mod tls_keeps_words_secret;
mod transactions_run_nothing;
