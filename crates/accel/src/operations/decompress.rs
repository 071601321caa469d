//! Descriptors of decompress.

use super::{FLAGS, Sizes, Stream, address_of, descriptor};
use crate::aecs::DecompressState;
use crate::descriptor::{Descriptor, Opcode, decompress, operation};
use crate::jobs::Addresses;

/// Decompresses one stream.
pub(super) fn stream(at: Addresses, sizes: Sizes, stream: &Stream) -> Descriptor {
    let mut job = descriptor(Opcode::Decompress, FLAGS, at, sizes);
    job.set_kind_flags(decompress::WHOLE_STREAM);
    with_state_of(&mut job, stream);
    job
}

/// Reads a compressed stream back: the job writes nothing and reports the CRC.
pub(super) fn verification(at: Addresses, sizes: Sizes, packed: u32, stream: &Stream) -> Descriptor {
    let mut job = descriptor(Opcode::Decompress, FLAGS, at, sizes);
    job.set_source1(at.output).set_source1_bytes(packed);
    // A place must be named, but nothing goes there.
    job.set_destination(at.input).set_destination_bytes_max(sizes.source);
    job.set_kind_flags(decompress::WHOLE_STREAM | decompress::SUPPRESS_OUTPUT);
    with_state_of(&mut job, stream);
    job
}

fn with_state_of(job: &mut Descriptor, stream: &Stream) {
    let state = match stream {
        Stream::Plain => return,
        Stream::History(preset) => preset.headed(),
        Stream::Canned(preset) => preset.canned_decompress().expect("canned codes were checked for"),
    };
    job.set_word(job.word() | operation::READ_SOURCE2_STATE);
    job.set_source2(address_of(state)).set_source2_bytes(DecompressState::BYTES as u32);
}
