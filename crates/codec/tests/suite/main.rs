//! Tests of the codecs through their public types. They are one program, and each file is a module of it; tests that
//! need their own allocator stand beside this folder.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod a_broken_codec_is_caught;
mod a_failing_device_is_no_damage;
mod a_hostile_block_dictionary_is_an_error;
mod a_hostile_dictionary_is_an_error;
mod analytics_answers_agree_everywhere;
mod blocks_come_back_and_damage_is_noticed;
mod blocks_of_former_releases_are_read;
mod corpus;
mod engines_say_what_they_lack;
mod inflate;
mod libz_can_be_replaced;
mod other_decoders_read_our_blocks;
mod parts_are_what_the_whole_block_says;
mod values_come_back_and_damage_is_noticed;
