//! Tests of the command as a user runs it. They are one program, and each file is a module of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod a_cluster_is_measured;
mod a_corpus_is_made_of_packages;
mod a_full_disk_refuses_writes_and_loses_nothing;
mod a_function_is_measured;
mod a_killed_server_loses_nothing_acknowledged;
mod a_medium_is_measured;
mod a_rocksdb_is_served;
mod a_server_is_measured;
mod a_stock_rocksdb_is_measured;
mod a_trace_is_replayed;
mod bench_prints_and_fails_as_it_should;
mod bench_server_compares_with_redis;
mod costs_are_compared;
mod databases_have_names;
mod doctor_explains_what_it_found;
mod errors_look_alike;
mod figures_fail_when_a_row_fails;
mod folders_are_checked_dumped_and_restored;
mod heaps_are_spread_over_two_media;
mod libz_is_linked_dynamically;
mod limits_are_told;
mod pages_describe_every_command;
mod predictions_follow_from_measured_runs;
mod results_become_a_page;
mod scripts_find_broken_links;
mod scripts_hide_and_leave_nothing;
mod serve_keeps_a_folder;
mod serve_starts_and_stops_cleanly;
mod suites_run_and_judge;
mod support;
mod the_memory_limit_bounds_the_process;
mod units_and_platforms_are_measured;
