//! Lets a device read the header of canned codes, and keeps the state that it writes.
//!
//! The state of a decompressor inside a block has fields that only the device knows, so the device writes them itself.
//! Its input is only the header of a block with these codes. It stops where it would decode the first symbol.

use ziptier_deflate::CannedLengths;

use crate::aecs::{DecompressState, Parser};
use crate::alone::{NoOutcome, run_alone};
use crate::completion::Status;
use crate::descriptor::{Descriptor, Opcode, decompress, operation};
use crate::device::{Device, SubmitError};
use crate::error::{JobError, error_of};
use crate::memory::Pages;

/// The offsets of source, destination and the pair of states, behind the completion record.
const SOURCE: usize = 64;
const DESTINATION: usize = 1024;
const STATES: usize = 2048;

/// The state behind the header, as the device writes it.
pub(super) fn state_behind_header(
    device: &dyn Device,
    codes: &CannedLengths,
) -> Result<DecompressState, JobError> {
    let (header, bits) = codes.header();
    assert!(SOURCE + header.len() <= DESTINATION, "a header is short");
    let pages = Pages::new(STATES + 2 * DecompressState::BYTES);
    // SAFETY: the source lies in the pages, which are ours.
    unsafe { pages.at(SOURCE).copy_from_nonoverlapping(header.as_ptr(), header.len()) };
    let descriptor = descriptor(pages.at(0).expose_provenance() as u64, header.len(), bits);
    // SAFETY: all buffers lie in the pages.
    let (outcome, pages) = match unsafe { run_alone(device, descriptor, pages) } {
        Ok(done) => done,
        Err(NoOutcome::Refused(SubmitError::Full)) => return Err(JobError::QueueFull),
        Err(NoOutcome::Refused(SubmitError::Lost(error))) => return Err(JobError::NoQueue(error)),
        Err(NoOutcome::Silent) => return Err(JobError::TimedOut),
    };
    if outcome.status() != Some(Status::Success) {
        return Err(error_of(&outcome, false));
    }
    // The device writes the second state of the pair. If it read no state, it may write the first.
    let states = [1, 0].map(|half| {
        let place = pages.at(STATES + half * DecompressState::BYTES).cast::<[u8; DecompressState::BYTES]>();
        // SAFETY: the state lies in the pages, and the job has ended.
        DecompressState::from_bytes(unsafe { place.read() })
    });
    let behind_header = |state: &DecompressState| state.parser() == Some(Parser::Token { is_final: true });
    let learned = states.into_iter().find(behind_header);
    let mut state = learned.ok_or(JobError::Contradiction("no state of canned codes was written"))?;
    state.set_crc(0).set_xor(0);
    Ok(state)
}

fn descriptor(start: u64, bytes: usize, bits: usize) -> Descriptor {
    let flags = operation::COMPLETION_ADDRESS_VALID
        | operation::REQUEST_COMPLETION
        | operation::CACHE_CONTROL
        | operation::WRITE_SOURCE2_ALWAYS;
    let mut job = Descriptor::new(Opcode::Decompress, flags);
    let ignored = (8 * bytes - bits) as u16;
    job.set_source1(start + SOURCE as u64).set_source1_bytes(bytes as u32);
    job.set_destination(start + DESTINATION as u64).set_destination_bytes_max((STATES - DESTINATION) as u32);
    job.set_source2(start + STATES as u64).set_source2_bytes(DecompressState::BYTES as u32);
    let flags = decompress::ENABLE | decompress::SUPPRESS_OUTPUT;
    job.set_kind_flags(flags | ignored << decompress::IGNORE_END_BITS_SHIFT);
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullDevice;
    use ziptier_deflate::Dictionary;

    #[test]
    fn the_descriptor_ignores_what_is_behind_the_header() {
        let job = descriptor(0x7000_0000, 80, 80 * 8 - 3);
        #[rustfmt::skip]
        let golden: [u8; 64] = [
            0, 0, 0, 0, 0x0C, 0x01, 0x04, 0x42, 0, 0, 0, 0, 0, 0, 0, 0,
            0x40, 0, 0, 0x70, 0, 0, 0, 0, 0, 0x04, 0, 0x70, 0, 0, 0, 0,
            80, 0, 0, 0, 0, 0, 0xC1, 0x02, 0, 0x08, 0, 0x70, 0, 0, 0, 0,
            0, 0x04, 0, 0, 0, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(job.as_bytes(), &golden);
    }

    #[test]
    fn a_device_that_writes_no_state_is_found_out() {
        let dictionary = Dictionary::train(&[b"one two three", b"two three four"], 64);
        let error = state_behind_header(&NullDevice::new(), dictionary.codes().unwrap()).unwrap_err();
        assert!(matches!(error, JobError::Contradiction(_)), "{error}");
    }
}
