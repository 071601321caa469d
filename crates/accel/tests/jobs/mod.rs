//! Jobs for a device, in buffers with guard bytes around them.

// Each test file uses a part of it.
#![allow(dead_code)]

use ziptier_accel::aecs::{CompressState, DecompressState, Histogram};
use ziptier_accel::descriptor::{compress, decompress, operation};
use ziptier_accel::{CompletionRecord, Descriptor, Device, Model, ModelOptions, Opcode, Outcome, Status};

pub(crate) const FLAGS: u32 = operation::COMPLETION_ADDRESS_VALID | operation::REQUEST_COMPLETION;

const GUARD: u8 = 0xA5;
const GUARD_BYTES: usize = 64;

/// Bytes that lie aligned to 64 between guard bytes.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn new(bytes: usize) -> Buffer {
        let mut memory = vec![GUARD; bytes + 3 * GUARD_BYTES];
        let begin = GUARD_BYTES + memory.as_ptr().align_offset(64);
        memory[begin..begin + bytes].fill(0);
        Buffer { memory, begin, bytes }
    }

    pub(crate) fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn address(&mut self) -> u64 {
        (self.memory.as_mut_ptr().expose_provenance() + self.begin) as u64
    }

    pub(crate) fn len(&self) -> u32 {
        self.bytes as u32
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.bytes]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }

    /// Fails if a guard byte was written.
    pub(crate) fn check(&self) {
        let before = self.memory[..self.begin].iter();
        let mut guards = before.chain(&self.memory[self.begin + self.bytes..]);
        assert!(guards.all(|&byte| byte == GUARD), "a byte beside a buffer was written");
    }
}

/// A model without a thread, of that generation.
pub(crate) fn model(generation: u8) -> Model {
    let options = ModelOptions { generation, is_synchronous: true, ..ModelOptions::default() };
    Model::open(&options).unwrap()
}

/// A descriptor of these buffers.
pub(crate) fn job(
    opcode: Opcode,
    flags: u32,
    source: &mut Buffer,
    target: Option<&mut Buffer>,
) -> Descriptor {
    let mut descriptor = Descriptor::new(opcode, FLAGS | flags);
    descriptor.set_source1(source.address()).set_source1_bytes(source.len());
    if let Some(target) = target {
        descriptor.set_destination(target.address()).set_destination_bytes_max(target.len());
    }
    descriptor
}

pub(crate) fn with_source2(mut descriptor: Descriptor, source2: &mut Buffer, bytes: usize) -> Descriptor {
    descriptor.set_source2(source2.address()).set_source2_bytes(bytes as u32);
    descriptor
}

/// Submits a job and waits for it.
///
/// The buffers that the descriptor names must live, as the tests' do.
pub(crate) fn run(device: &dyn Device, descriptor: &Descriptor) -> Outcome {
    let mut record = Box::new(CompletionRecord::new());
    let record: *mut CompletionRecord = &raw mut *record;
    let mut descriptor = *descriptor;
    descriptor.set_completion(record.expose_provenance() as u64);
    // SAFETY: the record lives until the job has ended; the buffers are the caller's.
    unsafe {
        while device.submit(&descriptor).is_err() {
            std::thread::yield_now();
        }
        loop {
            if let Some(outcome) = CompletionRecord::poll(record) {
                device.retire();
                return outcome;
            }
            std::thread::yield_now();
        }
    }
}

/// Compresses a block with a state's codes.
pub(crate) fn compress(
    device: &dyn Device,
    state: &CompressState,
    raw: &[u8],
    flags: u16,
    bytes_max: usize,
) -> Result<Vec<u8>, Outcome> {
    let (mut source, mut target) = (Buffer::of(raw), Buffer::new(bytes_max));
    let mut state = Buffer::of(state.as_bytes());
    let mut descriptor = job(Opcode::Compress, operation::READ_SOURCE2_STATE, &mut source, Some(&mut target));
    descriptor.set_kind_flags(flags);
    let outcome = run(device, &with_source2(descriptor, &mut state, CompressState::BYTES));
    [&source, &target, &state].into_iter().for_each(Buffer::check);
    if outcome.status() != Some(Status::Success) {
        return Err(outcome);
    }
    Ok(target.bytes()[..outcome.output_bytes() as usize].to_vec())
}

/// The flags of a block that is complete in itself.
pub(crate) const WHOLE_BLOCK: u16 = compress::FLUSH_OUTPUT | compress::APPEND_END_OF_BLOCK;

/// Counts the symbols of a block.
pub(crate) fn histogram(device: &dyn Device, raw: &[u8]) -> Histogram {
    let (mut source, mut target) = (Buffer::of(raw), Buffer::new(Histogram::BYTES));
    let mut descriptor = job(Opcode::Compress, 0, &mut source, Some(&mut target));
    descriptor.set_kind_flags(compress::STATISTICS);
    let outcome = run(device, &descriptor);
    assert_eq!((outcome.status(), outcome.output_bytes()), (Some(Status::Success), 0x500));
    target.check();
    Histogram::from_bytes(target.bytes().try_into().unwrap())
}

/// Decompresses a stream, from a state if there is one.
pub(crate) fn decompress(
    device: &dyn Device,
    state: Option<&DecompressState>,
    packed: &[u8],
    bytes_max: usize,
) -> Result<Vec<u8>, Outcome> {
    decompress_with(device, state, packed, decompress::WHOLE_STREAM, bytes_max)
}

/// The same with other flags.
pub(crate) fn decompress_with(
    device: &dyn Device,
    state: Option<&DecompressState>,
    packed: &[u8],
    flags: u16,
    bytes_max: usize,
) -> Result<Vec<u8>, Outcome> {
    let (mut source, mut target) = (Buffer::of(packed), Buffer::new(bytes_max));
    let mut states = Buffer::new(DecompressState::BYTES);
    let reads = if state.is_some() { operation::READ_SOURCE2_STATE } else { 0 };
    let mut descriptor = job(Opcode::Decompress, reads, &mut source, Some(&mut target));
    descriptor.set_kind_flags(flags);
    if let Some(state) = state {
        states.bytes_mut().copy_from_slice(state.as_bytes());
        descriptor = with_source2(descriptor, &mut states, DecompressState::BYTES);
    }
    let outcome = run(device, &descriptor);
    [&source, &target, &states].into_iter().for_each(Buffer::check);
    if outcome.status() != Some(Status::Success) {
        return Err(outcome);
    }
    Ok(target.bytes()[..outcome.output_bytes() as usize].to_vec())
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A block of records, text, runs or noise.
    pub(crate) fn block(&mut self) -> Vec<u8> {
        let scale = 2 * self.below(7);
        let bytes = 1 + self.below(4 << scale);
        let mut block = Vec::new();
        let kind = self.below(4);
        while block.len() < bytes {
            match kind {
                0 => block.extend_from_slice(
                    format!("{{\"user\":{},\"state\":\"active\"}}", self.below(3000)).as_bytes(),
                ),
                1 => block.extend_from_slice([&b"the "[..], b"quick ", b"brown ", b"fox "][self.below(4)]),
                2 => block.extend(std::iter::repeat_n(self.below(3) as u8, 1 + self.below(700))),
                _ => block.push(self.next() as u8),
            }
        }
        block.truncate(bytes);
        block
    }
}
