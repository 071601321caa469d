//! Tests of logs, segments and far memory through their public types. They are one program, and each file is a module
//! of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod a_bad_page_is_told_from_a_refusal;
mod empty_records_keep_to_their_segment;
mod far_places;
mod killed_processes_leave_a_log_that_starts;
mod log_crash_images_lose_nothing;
mod log_damage_is_named;
mod log_failures_are_told;
mod log_serves_many_threads;
mod log_starts_whatever_its_records_hold;
mod scenario;
mod segments_keep_synced_bodies;
