//! The library in real processes: this program again under `LD_PRELOAD`, and other programs.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod a_lost_class_keeps_its_limits;
mod a_million_calls_agree_with_a_shadow;
mod a_stock_redis_keeps_its_values;
mod a_thread_precedes_the_library;
mod commands_of_jemalloc_disturb_no_tick;
mod every_name_is_served;
mod far_memory_lies_on_its_nodes;
mod forks_disturb_nobody;
mod full_media_spill;
mod other_programs_run;
mod processes_share_a_budget;
mod the_ratio_is_met;
mod threads_return_what_they_cached;
mod ticks_are_interrupted;

mod support;
