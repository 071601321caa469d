//! Tests of the C interface. They are one program, and each file is a module of it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod blocks_stay_in_their_memory;
mod installed;
mod one_codec_serves_many_threads;
mod packed_integers_agree_with_a_plain_count;
mod programs_link_as_the_page_says;
mod records_go_in_and_out;
mod support;
mod symbols_are_those_of_the_header;
mod wrong_input_is_told;
