//! Tests of the store through its public types. They are one program: the store is linked once, and each file is a
//! module of it. Those that need an allocator of their own stand beside this folder.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod a_bad_sector_costs_what_lies_there;
mod a_batch_keeps_to_the_limit;
mod a_cache_comes_back_without_old_values;
mod a_device_packs_whole_bodies;
mod a_dump_is_a_store;
mod a_failing_disk_is_told_and_loses_nothing;
mod a_folder_of_segments_belongs_to_one_store;
mod a_full_cache_keeps_what_is_read;
mod a_full_cache_packs_before_it_evicts;
mod a_log_is_replayed_as_it_was_written;
mod a_power_cut_loses_nothing_acknowledged;
mod a_salvage_loses_only_what_is_damaged;
mod a_start_that_fails_loses_nothing;
mod a_store_on_a_full_disk_is_read;
mod an_update_that_panics_changes_nothing;
mod batches_are_all_or_nothing;
mod checkpoints_hold_everything;
mod clients_cannot_make_a_start_refuse;
mod cold_leaves_are_read_and_written_at_once;
mod damage_on_ssd_is_named;
mod dictionaries_follow_the_data;
mod durable;
mod durable_scenario;
mod every_flipped_bit_is_found;
mod eviction_begins_and_ends_while_it_runs;
mod expired_keys_are_gone;
mod far_memory_takes_what_dram_cannot_hold;
mod far_memory_works_with_eviction_and_folders;
mod folders_and_dumps_of_former_versions_are_read;
mod histories_are_linearizable;
mod hot_large_values_come_up;
mod hot_leaves_are_raw;
mod keys_move_whole;
mod large_batches_are_packed;
mod large_values_go_to_ssd;
mod large_values_never_stall;
mod leaves_go_from_far_memory_to_ssd;
mod leaves_on_ssd_are_there_again;
mod power_cuts_beside_writers_checkpoints_and_ssd_lose_nothing;
mod power_cuts_during_checkpoints_lose_nothing;
mod quiet_values_are_coded_by_entropy;
mod readers_see_whole_versions;
mod records_expire_alike_in_every_place;
mod store_agrees_with_a_btreemap;
mod the_background_has_its_own_codec;
mod the_examples_run;
mod values_are_changed_without_being_read;
mod waiting;
mod what_a_checkpoint_synced_is_no_torn_tail;
mod what_was_acknowledged_is_there_again;
mod writes_over_the_limit_are_refused;
