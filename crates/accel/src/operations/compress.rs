//! Descriptors of compress.

use ziptier_deflate::{BlockCodes, PART_END};

use super::{FLAGS, Sizes, address_of, descriptor};
use crate::aecs::{CompressState, Histogram};
use crate::completion::Outcome;
use crate::descriptor::{Descriptor, Opcode, compress, compress2, operation};
use crate::error::JobError;
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

/// An empty last block with fixed codes. Behind a part it makes a complete stream.
const LAST_BLOCK: [u8; 2] = [0b011, 0];

/// The most bytes that the end of a part takes, and the block behind it while the part is verified.
pub const PART_ROOM_BYTES: usize = 1 + PART_END.len() + LAST_BLOCK.len();

/// Bytes of a part, its end included, of which a device has written the rest.
pub(super) fn part_bytes(outcome: &Outcome) -> u32 {
    // The end is an empty stored block. The three bits of its header lie in the last byte, or else in one of their own.
    let fits = (1..=5).contains(&outcome.output_bits());
    outcome.output_bytes() + u32::from(!fits) + PART_END.len() as u32
}

/// Makes a part of the stream that a device has written to `output`, and puts a last block behind the part. Returns the
/// bytes of both. Verification finds an outcome with a wrong number of bits.
pub(super) fn end_part(output: &mut [u8], outcome: &Outcome) -> Result<u32, JobError> {
    let (written, end) = (outcome.output_bytes() as usize, part_bytes(outcome) as usize);
    let packed = end + LAST_BLOCK.len();
    let output = output.get_mut(..packed).ok_or(JobError::DoesNotFit)?;
    let (stream, behind) = output.split_at_mut(written);
    let (Some(first), bits @ 0..8) = (stream.first_mut(), outcome.output_bits()) else {
        return Err(JobError::Contradiction("a stream without bytes, or more than eight bits in one"));
    };
    // The stream is one block, which is no longer the last one.
    *first &= !1;
    if let Some(last) = stream.last_mut().filter(|_| bits > 0) {
        *last &= (1 << bits) - 1;
    }
    behind.fill(0);
    behind[end - PART_END.len() - written..end - written].copy_from_slice(&PART_END);
    behind[end - written..].copy_from_slice(&LAST_BLOCK);
    Ok(packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::Status;

    #[test]
    fn a_part_ends_with_the_bytes_that_its_last_bits_need() {
        let ended = |stream: &[u8], bits: u8, room: usize| {
            let mut output = [stream, &[9; 8]].concat();
            let mut outcome = Outcome::new(Status::Success);
            outcome.set_output_bytes(stream.len() as u32).set_output_bits(bits);
            let packed = end_part(&mut output[..room], &outcome);
            packed.map(|packed| output[..packed as usize].to_vec())
        };
        let with_room = |stream: &[u8], bits| ended(stream, bits, stream.len() + 8).unwrap();
        assert_eq!(with_room(&[0xFF, 0xFF], 5), [0xFE, 0x1F, 0, 0, 0xFF, 0xFF, 3, 0]);
        assert_eq!(with_room(&[0xFF, 0xFF], 6), [0xFE, 0x3F, 0, 0, 0, 0xFF, 0xFF, 3, 0]);
        assert_eq!(with_room(&[0xFF, 0xFF], 0), [0xFE, 0xFF, 0, 0, 0, 0xFF, 0xFF, 3, 0]);
        assert!(matches!(ended(&[1, 0], 5, 7), Err(JobError::DoesNotFit)));
        assert!(matches!(ended(&[], 5, 8), Err(JobError::Contradiction(_))));
        assert!(matches!(ended(&[1, 0], 8, 10), Err(JobError::Contradiction(_))));
    }
}
