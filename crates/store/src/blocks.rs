//! Blocks of values: what lies in one, and the engines and contexts that pack and unpack them.
//!
//! A block holds the values of consecutive records, and is stored as a `frame` of the codec: with format, length and
//! checksum, raw if it does not shrink.
//!
//! ```text
//! varint   bytes of the first value, times two; odd if lengths differ
//! varint   bytes of each other value, if lengths differ
//! ..       the values
//! ```
//!
//! A block whose values are all empty has an empty frame. Records whose values lie elsewhere have an empty one here, so
//! that a record's place in its block is its distance from the block's first record.
//!
//! Contexts cost more than small blocks do, so each thread keeps its own. They live in the coding that they work for, and are
//! freed with it: with the last body of its generation.

use std::cell::RefCell;
use std::sync::Arc;

use thread_local::ThreadLocal;
use ziptier_codec::block::{BlockCodec, BlockError, Dictionary, Engine, Huffman, Setting, frame};
use ziptier_codec::format::Format;

use crate::Error;
use crate::options::Options;

/// No block is longer than this; a longer one is damage.
const RAW_BYTES_MAX: usize = 128 << 10;

/// Values of a block at most, so that a leaf can be cut between blocks.
pub(crate) const BLOCK_RECORDS_MAX: usize = 64;

/// Bytes of a block dictionary: the size that the codec's table of formats was measured with.
const DICTIONARY_BYTES: usize = 16 << 10;

/// How a store packs blocks.
#[derive(Clone, Copy, Debug)]
struct Packing {
    format: Format,
    fast_level: i32,
    dense_level: i32,
    huffman: Huffman,
    bytes: usize,
    context_cache: bool,
}

/// How hard an encoder tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Fast,
    Dense,
}

/// A generation of blocks: engines and dictionary, and the contexts of every thread that used them.
pub(crate) struct BlockCoding {
    /// Dropped before the engines, which they borrow: see [`open`].
    contexts: ThreadLocal<RefCell<Option<Context>>>,
    packing: Packing,
    generation: u32,
    dictionary: Option<Arc<Dictionary>>,
    fast: Arc<dyn Engine>,
    /// Reads what `fast` writes, and the other way round: only the level differs.
    dense: Arc<dyn Engine>,
}

/// What one thread keeps.
struct Context {
    fast: Box<dyn BlockCodec>,
    dense: Option<Box<dyn BlockCodec>>,
    raw: Vec<u8>,
}

impl BlockCoding {
    /// The coding that a store begins with, if it packs blocks: without dictionary.
    pub(crate) fn first(options: &Options) -> Result<Option<Arc<Self>>, Error> {
        let Some(format) = options.codec.block_format() else { return Ok(None) };
        let block = options.block;
        let (fast_level, dense_level) = default_levels(format);
        let packing = Packing {
            format,
            fast_level: block.level.unwrap_or(fast_level),
            dense_level: block.dense_level.or(block.level).unwrap_or(dense_level),
            huffman: block.huffman,
            bytes: block.bytes,
            context_cache: block.context_cache,
        };
        match Self::new(packing, None, 0) {
            Ok(coding) => Ok(Some(Arc::new(coding))),
            Err(reason) => Err(Error::BlockOptions { reason }),
        }
    }

    /// The same packing with a dictionary that is trained on `samples`; `None` if they give none.
    pub(crate) fn trained(&self, samples: &[&[u8]], generation: u32) -> Option<Self> {
        let packing = self.packing;
        // Canned codes are made for blocks of the samples' size.
        let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        let in_a_block = (packing.bytes * samples.len() / bytes.max(1)).max(1);
        let blocks: Vec<Vec<u8>> = samples.chunks(in_a_block).map(|values| values.concat()).collect();
        let blocks: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let samples = if packing.format == Format::Deflate { &blocks } else { samples };
        let dictionary = Dictionary::train(packing.format, samples, DICTIONARY_BYTES, generation).ok()?;
        Self::new(packing, Some(Arc::new(dictionary)), generation).ok()
    }

    fn new(packing: Packing, dictionary: Option<Arc<Dictionary>>, generation: u32) -> Result<Self, String> {
        let engine = |level| {
            // Canned codes come with the first dictionary.
            let huffman = match packing.huffman {
                Huffman::Canned if dictionary.is_none() => Huffman::Dynamic,
                huffman => huffman,
            };
            let setting = Setting::new(packing.format).with_level(level).with_huffman(huffman);
            let setting = Setting { dictionary: dictionary.clone(), ..setting };
            setting.engine().map_err(|error| error.to_string())
        };
        let fast = engine(packing.fast_level)?;
        let dense = if packing.dense_level == packing.fast_level {
            fast.clone()
        } else {
            engine(packing.dense_level)?
        };
        Ok(Self { contexts: ThreadLocal::new(), packing, generation, dictionary, fast, dense })
    }

    /// Bytes that only packing densely needs.
    pub(crate) fn dense_memory_bytes(&self) -> usize {
        if Arc::ptr_eq(&self.fast, &self.dense) { 0 } else { self.dense.memory_bytes() }
    }

    /// The same without an engine of its own for packing densely.
    pub(crate) fn without_dense(self) -> Self {
        Self { dense: self.fast.clone(), contexts: ThreadLocal::new(), ..self }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Bytes of values in a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.packing.bytes
    }

    /// Whether a dictionary can pay. `deflate` has one for canned codes only: without them another coder than libdeflate
    /// does the work, and takes longer (`docs/MEASUREMENTS.md`, "Small DEFLATE blocks").
    pub(crate) fn wants_dictionary(&self) -> bool {
        self.packing.format != Format::Deflate || self.packing.huffman == Huffman::Canned
    }

    /// Bytes of dictionary and engines.
    pub(crate) fn memory_bytes(&self) -> usize {
        let dictionary = self.dictionary.as_ref().map_or(0, |own| own.memory_bytes());
        dictionary + self.fast.memory_bytes() + self.dense_memory_bytes()
    }

    /// About what [`BlockCoding::memory_bytes`] of one with a dictionary will be.
    pub(crate) fn memory_bytes_expected(&self) -> usize {
        // With both encoders' tables, `lz4` at its default levels held 295,000 bytes and `zstd` 549,000.
        Dictionary::memory_bytes_expected(self.packing.format, DICTIONARY_BYTES) + (192 << 10)
    }

    /// Appends the frame of a block; `raw` is its contents.
    pub(crate) fn pack(&self, effort: Effort, raw: &[u8], out: &mut Vec<u8>) {
        let format = self.packing.format;
        let packed = self.with_context(|context| {
            let codec = match effort {
                Effort::Dense if !Arc::ptr_eq(&self.fast, &self.dense) => {
                    if context.dense.is_none() {
                        context.dense = Some(open(&self.dense)?);
                    }
                    context.dense.as_deref_mut().expect("it was opened just now")
                }
                _ => &mut *context.fast,
            };
            // An engine that fails leaves the block raw.
            frame::pack(codec, format, raw, out).or_else(|_| frame::pack(codec, Format::None, raw, out))
        });
        packed.expect("an allocator that has no memory for a context ends the process");
    }

    /// Appends the contents of a block.
    ///
    /// # Errors
    /// What is wrong with the frame; `raw` is as it was then.
    pub(crate) fn unpack(&self, frame: &[u8], raw: &mut Vec<u8>) -> Result<(), String> {
        self.with_context(|context| self.unpack_with(context, frame, raw)).map_err(|error| error.to_string())
    }

    fn unpack_with(&self, context: &mut Context, frame: &[u8], raw: &mut Vec<u8>) -> Result<(), BlockError> {
        frame::unpack(&mut *context.fast, self.packing.format, frame, raw, RAW_BYTES_MAX).map(|_| ())
    }

    /// Hands the contents of a block to `take`; they lie in this thread's scratch.
    fn unpacked<R>(&self, frame: &[u8], take: impl FnOnce(&[u8]) -> R) -> Result<R, String> {
        let taken = self.with_context(|context| {
            let mut raw = std::mem::take(&mut context.raw);
            raw.clear();
            let unpacked = self.unpack_with(context, frame, &mut raw);
            let taken = unpacked.map(|()| take(&raw));
            context.raw = raw;
            taken
        });
        taken.map_err(|error| error.to_string())
    }

    fn with_context<R>(
        &self,
        work: impl FnOnce(&mut Context) -> Result<R, BlockError>,
    ) -> Result<R, BlockError> {
        if !self.packing.context_cache {
            return work(&mut self.open()?);
        }
        let mut context = self.contexts.get_or_default().borrow_mut();
        match &mut *context {
            Some(context) => work(context),
            none => work(none.insert(self.open()?)),
        }
    }

    /// Frees the calling thread's context: that of dense LZ4 alone holds 256 KiB.
    pub(crate) fn release_context(&self) {
        if let Some(context) = self.contexts.get() {
            context.borrow_mut().take();
        }
    }

    fn open(&self) -> Result<Context, BlockError> {
        Ok(Context { fast: open(&self.fast)?, dense: None, raw: Vec::new() })
    }
}

/// Levels for writing and for quiet leaves.
fn default_levels(format: Format) -> (i32, i32) {
    match format {
        Format::Lz4 => (1, 6),
        Format::Zstd => (1, 3),
        _ => (1, 6),
    }
}

/// Opens a context that outlives the borrow of its engine.
fn open(engine: &Arc<dyn Engine>) -> Result<Box<dyn BlockCodec>, BlockError> {
    let context = engine.open()?;
    // SAFETY: only the lifetime changes. The context borrows from the engine behind the `Arc`, which does not move. It is
    // kept in a `Context` only, and that either in the coding that holds the engine, where it is dropped first (fields
    // drop in the order of their declaration), or on the stack of a method that borrows the coding.
    Ok(unsafe { std::mem::transmute::<Box<dyn BlockCodec + '_>, Box<dyn BlockCodec + 'static>>(context) })
}

/// A value in a block.
#[derive(Clone, Copy)]
pub(crate) struct PackedValue<'a> {
    pub(crate) frame: &'a [u8],
    /// Which of the block's values.
    pub(crate) place: usize,
    /// Values in the block.
    pub(crate) count: usize,
    pub(crate) coding: &'a BlockCoding,
}

const NOT_A_BLOCK: &str = "the block's lengths do not add up";

impl PackedValue<'_> {
    /// Appends the value to `out`, which is as it was after an error.
    #[inline]
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), String> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let appended = self.coding.unpacked(self.frame, |raw| {
            span(raw, self.place, self.count).map(|(start, end)| out.extend_from_slice(&raw[start..end]))
        })?;
        appended.ok_or_else(|| NOT_A_BLOCK.to_owned())
    }

    /// Bytes of the value.
    pub(crate) fn raw_len(&self) -> Result<u64, String> {
        if self.frame.is_empty() {
            return Ok(0);
        }
        let len = self.coding.unpacked(self.frame, |raw| {
            span(raw, self.place, self.count).map(|(start, end)| (end - start) as u64)
        })?;
        len.ok_or_else(|| NOT_A_BLOCK.to_owned())
    }
}

/// One block at a time, unpacked once for all its values that are asked for in a row.
#[derive(Default)]
pub(crate) struct Unpacked {
    /// Where its frame lies; the body it belongs to is alive as long as this is.
    frame: Option<(usize, usize)>,
    raw: Vec<u8>,
}

impl Unpacked {
    /// The value, as long as no other block is asked for. All values must come from one body.
    pub(crate) fn value(&mut self, packed: &PackedValue<'_>) -> Result<&[u8], String> {
        if packed.frame.is_empty() {
            return Ok(&[]);
        }
        let wanted = Some((packed.frame.as_ptr().addr(), packed.frame.len()));
        if self.frame != wanted {
            self.frame = None;
            self.raw.clear();
            packed.coding.unpack(packed.frame, &mut self.raw)?;
            self.frame = wanted;
        }
        let (start, end) = span(&self.raw, packed.place, packed.count).ok_or(NOT_A_BLOCK)?;
        Ok(&self.raw[start..end])
    }
}

/// Writes the contents of a block in place of what is in `raw`; `false` if all values are empty.
pub(crate) fn lay_out(values: &[&[u8]], raw: &mut Vec<u8>) -> bool {
    raw.clear();
    let Some((first, rest)) = values.split_first() else { return false };
    let differ = rest.iter().any(|value| value.len() != first.len());
    if !differ && first.is_empty() {
        return false;
    }
    write_number(2 * first.len() + usize::from(differ), raw);
    if differ {
        rest.iter().for_each(|value| write_number(value.len(), raw));
    }
    values.iter().for_each(|value| raw.extend_from_slice(value));
    true
}

/// Where value `place` of `count` lies in the contents of a block; `None` if these are none.
fn span(raw: &[u8], place: usize, count: usize) -> Option<(usize, usize)> {
    let (head, mut at) = read_number(raw, 0)?;
    let first = head >> 1;
    if head & 1 == 0 {
        let start = at + place * first;
        return (at + count * first == raw.len() && place < count).then_some((start, start + first));
    }
    let (mut before, mut len, mut sum) = (0, first, first);
    for index in 1..count {
        let (next, behind) = read_number(raw, at)?;
        at = behind;
        if index <= place {
            before += len;
            len = next;
        }
        sum += next;
    }
    (at + sum == raw.len() && place < count).then_some((at + before, at + before + len))
}

/// Where every value of a block's contents lies, from `base` on, appended to `spans`; `false` if these are none.
pub(crate) fn spans(raw: &[u8], count: usize, base: usize, spans: &mut Vec<(usize, usize)>) -> bool {
    let before = spans.len();
    for place in 0..count {
        match span(raw, place, count) {
            Some((start, end)) => spans.push((base + start, base + end)),
            None => {
                spans.truncate(before);
                return false;
            }
        }
    }
    true
}

fn write_number(value: usize, out: &mut Vec<u8>) {
    crate::record::write_varint(u32::try_from(value).expect("a block is smaller than 4 GiB"), out);
}

/// A number of at most three bytes, and where the next one begins.
#[inline]
fn read_number(raw: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, byte) in raw.get(at..)?.iter().take(3).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, at + index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_block_is_found_and_other_bytes_are_refused() {
        let cases: [&[&[u8]]; 6] = [
            &[b"one"],
            &[b"one", b"two", b"six"],
            &[b"", b"a", b"", &[7; 300]],
            &[&[1; 2048], b"", b""],
            &[b"", b"x"],
            &[&[9; 128][..]; 64],
        ];
        let mut raw = Vec::new();
        for values in cases {
            assert!(lay_out(values, &mut raw));
            for (place, value) in values.iter().enumerate() {
                let (start, end) = span(&raw, place, values.len()).expect("it was laid out");
                assert_eq!(&raw[start..end], *value);
            }
            assert_eq!(span(&raw, values.len(), values.len()), None);
            assert_eq!(span(&raw[..raw.len() - 1], 0, values.len()), None);
            raw.push(0);
            assert_eq!(span(&raw, 0, values.len()), None);
        }
        assert!(!lay_out(&[], &mut raw) && !lay_out(&[b"", b""], &mut raw));
        assert_eq!(span(&[0xff; 9], 0, 1), None);
        assert_eq!(span(&[], 0, 1), None);
    }
}
