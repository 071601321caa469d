//! Descriptors of compress.

use ziptier_deflate::BlockCodes;

use super::{FLAGS, Sizes, address_of, descriptor};
use crate::aecs::{CompressState, Histogram};
use crate::descriptor::{Descriptor, Opcode, compress, compress2, operation};
use crate::jobs::Addresses;
use crate::preset::BehindState;

/// The device makes codes and stream in one pass of no more bytes than these.
pub(super) const ONE_PASS_BYTES_MAX: u32 = 4096;

/// The flags that end a stream: the end-of-block code, and the rest of its last byte.
const END: u16 = compress::FLUSH_OUTPUT | compress::APPEND_END_OF_BLOCK;

/// Compresses with the codes, and behind the bits, of a state that is shared.
pub(super) fn with_state(at: Addresses, sizes: Sizes, state: &CompressState) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS | operation::READ_SOURCE2_STATE, at, sizes);
    job.set_kind_flags(END).set_source2(address_of(state)).set_source2_bytes(CompressState::BYTES as u32);
    job
}

/// As [`with_state`], with matches in the history of that state.
pub(super) fn behind_history(at: Addresses, sizes: Sizes, state: &BehindState) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS | operation::READ_SOURCE2_STATE, at, sizes);
    job.set_kind_flags(END | u16::from(state.level()) << compress::DICTIONARY_SHIFT);
    job.set_source2(address_of(state)).set_source2_bytes(state.used_bytes());
    job
}

/// Compresses with the codes, and behind the bits, of the job's own state.
pub(super) fn with_own_state(at: Addresses, sizes: Sizes) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS | operation::READ_SOURCE2_STATE, at, sizes);
    job.set_kind_flags(END).set_source2(at.state).set_source2_bytes(CompressState::BYTES as u32);
    job
}

/// Counts symbols for the host.
pub(super) fn counting(at: Addresses, sizes: Sizes) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS, at, sizes);
    job.set_destination(at.histogram).set_destination_bytes_max(Histogram::BYTES as u32);
    job.set_kind_flags(compress::STATISTICS | END);
    job
}

/// Makes codes and stream at once.
pub(super) fn one_pass(at: Addresses, sizes: Sizes) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS, at, sizes);
    job.set_kind_flags(END | compress::HEADER_ONE_PASS_FINAL);
    job
}

/// Counts symbols and makes codes, which go to the second half of the job's pair of states.
pub(super) fn making_codes(at: Addresses, sizes: Sizes) -> Descriptor {
    let mut job = descriptor(Opcode::Compress, FLAGS | operation::WRITE_SOURCE2_ALWAYS, at, sizes);
    job.set_destination(0).set_destination_bytes_max(0);
    job.set_kind_flags(
        compress::STATISTICS | compress::APPEND_END_OF_BLOCK | compress::HEADER_TWO_PASS_FINAL,
    );
    job.set_source2(at.state).set_source2_bytes(CompressState::BYTES as u32);
    job.set_filter_flags(compress2::WRITE_HUFFMAN_TABLES);
    job
}

/// Compresses with the codes that were made, from the second half of the pair.
pub(super) fn with_made_codes(at: Addresses, sizes: Sizes) -> Descriptor {
    let mut job = with_own_state(at, sizes);
    job.set_source2(at.state + CompressState::BYTES as u64);
    job
}

/// Bits of header that the accumulator takes: QPL keeps 34 of its 256 bytes free.
const HEADER_BITS_MAX: usize = 8 * (CompressState::ACCUMULATOR_BYTES - 34);

/// Makes the codes for counted symbols, and the header. Takes the fixed codes if these give a shorter stream.
pub(super) fn codes_of(histogram: &Histogram, state: &mut CompressState) {
    let (literals, distances) = (histogram.literals(), histogram.distances());
    let own = BlockCodes::new(&literals, &distances, true);
    let fixed_bits = BlockCodes::fixed(true).block_bits(&literals, &distances);
    *state = if own.header_bits > HEADER_BITS_MAX || fixed_bits <= own.block_bits(&literals, &distances) {
        crate::preset::fixed().clone()
    } else {
        let state = CompressState::dynamic(&own.literals, &own.distances, &own.header, own.header_bits);
        state.expect("the header fits, and codes of Huffman are codes")
    };
}
