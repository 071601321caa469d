//! The work of one compression manager: it chooses the generation of new files, and packs and unpacks each block.

use crate::counters::{Counted, Counters};
use crate::generation::Generation;
use crate::lifecycle::{Lifecycle, Way};
use crate::rows;
use crate::settings::{self, Output, Private, Settings};
use crate::tokens::TokenCoder;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use ziptier_codec::block::{BlockError, Contexts, Path, Setting, parts, zstd};
use ziptier_codec::format::Format;
use ziptier_codec::token::{BITS, Dictionary, TOKEN_BYTES_MAX};

/// RocksDB's number of a block's format.
pub type BlockType = u8;

/// `kZlibCompression`: a varint length, then raw DEFLATE.
pub const ZLIB: BlockType = 2;
/// `kLZ4Compression`: a varint length, then an LZ4 block.
pub const LZ4: BlockType = 4;
/// `kCustomCompression80`: a varint length, then token numbers of the file's generation and their check.
pub const TOKENS: BlockType = 0x80;
/// `kCustomCompression81`: a varint length, then zstd without its magic number, by the file's generation if that has a
/// dictionary for it.
pub const ZSTD: BlockType = 0x81;
/// `kCustomCompression82`: a varint length, then DEFLATE behind the history and by the canned codes of the file's
/// generation.
pub const CANNED: BlockType = 0x82;
/// `kCustomCompression83`: a varint length, then tokens in the codes of the file's generation and their check. The
/// codes of the whole block depend on each other.
pub const ENTROPY: BlockType = 0x83;
/// `kCustomCompression84`: as [`ENTROPY`], in parts that are decoded side by side. Blocks of few tokens have no parts.
pub const ENTROPY_PARTS: BlockType = 0x84;

/// The most bytes that a thread keeps for unpacking tokens in one pass. Larger blocks take two passes.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// An encoder may write so many bytes behind the longest packed block that is taken.
const SLACK_BYTES: usize = 64;

/// The result of packing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// So many bytes of a type were written.
    Into(BlockType, usize),
    /// It does not fit: RocksDB stores the block raw.
    Declined,
}

/// The guidance for packing a new file.
pub enum Guidance {
    /// No dictionary.
    Plain,
    /// A dictionary made of samples of the file, of at most this many bytes.
    Sample(usize),
    /// This generation.
    Use(Arc<Generation>),
}

/// Why a block cannot be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The block is damaged, with the reason.
    #[error("{0}")]
    Damaged(String),
    /// An engine failed for lack of memory or of a device. This says nothing against the block.
    #[error("{0}; the block itself may be sound, so try again")]
    Engine(String),
}

impl UnpackError {
    fn of(error: &BlockError) -> UnpackError {
        match error {
            BlockError::Engine { .. } => UnpackError::Engine(error.to_string()),
            _ => UnpackError::Damaged(error.to_string()),
        }
    }
}

/// A compression manager's engines, shared by all its threads.
pub struct Codec {
    settings: Settings,
    zstd: Arc<Contexts>,
    standard: Option<Standard>,
    lifecycle: Lifecycle,
    counters: Arc<Counters>,
}

/// The engines of standard formats.
struct Standard {
    deflate: Counted,
    /// Contexts on the CPU for blocks at which a device failed.
    deflate_on_cpu: Counted,
    lz4: Counted,
}

/// The scratch that a thread keeps between blocks.
#[derive(Default)]
struct Scratch {
    coder: TokenCoder,
    bytes: Vec<u8>,
    check: Vec<u8>,
}

/// A thread keeps no more scratch than this between two blocks.
const SCRATCH_BYTES_MAX: usize = 4 << 20;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Gives `work` the thread's scratch. An ending thread has no scratch any more, but destructors may still read: they
/// get a new one.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = work(&mut scratch);
    let kept_bytes = scratch.bytes.capacity() + scratch.check.capacity() + scratch.coder.memory_bytes();
    if kept_bytes <= SCRATCH_BYTES_MAX {
        let _ = SCRATCH.try_with(|kept| kept.set(Some(scratch)));
    }
    result
}

/// zstd without a dictionary, for all managers of the process. If a database names no manager, RocksDB opens one for
/// each file.
fn shared_zstd() -> Result<Arc<Contexts>, String> {
    static ZSTD: Mutex<Option<Arc<Contexts>>> = Mutex::new(None);
    let mut zstd = ZSTD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zstd) = &*zstd {
        return Ok(Arc::clone(zstd));
    }
    let engine = Setting::new(Format::Zstd).engine().map_err(|error| error.to_string())?;
    Ok(Arc::clone(zstd.insert(Arc::new(Contexts::new(engine)))))
}

impl Codec {
    /// Opens the engines, or says in one sentence why one cannot work.
    pub fn open(settings: Settings) -> Result<Codec, String> {
        let zstd = shared_zstd()?;
        let counters = Counters::of_process();
        let has_standard = settings.private() != Some(Private::Tokens);
        let standard = has_standard.then(|| Standard::open(&settings)).transpose()?;
        Ok(Codec { zstd, standard, lifecycle: Lifecycle::new(Way::of(&settings)), counters, settings })
    }

    /// The type for blocks of a file with RocksDB's type `preferred`. `None` leaves them to RocksDB.
    ///
    /// With `force` every type is taken for ours.
    pub fn takes(&self, preferred: BlockType, force: bool) -> Option<BlockType> {
        let is_private = preferred >= TOKENS;
        match self.settings.private() {
            Some(Private::Tokens) => return (force || is_private).then_some(TOKENS),
            Some(Private::Canned) => return (force || is_private || preferred == ZLIB).then_some(CANNED),
            None => {}
        }
        match (self.settings.output, preferred) {
            (Output::Deflate, _) if force || preferred == ZLIB => Some(ZLIB),
            (Output::Lz4, _) if force || preferred == LZ4 => Some(LZ4),
            (Output::Auto, ZLIB) => Some(ZLIB),
            (Output::Auto, LZ4) => Some(LZ4),
            (Output::Auto, _) if force => Some(ZLIB),
            _ => None,
        }
    }

    /// Whether this codec unpacks blocks of a standard type itself. It does so for DEFLATE, on a device or in a third
    /// to a half of RocksDB's time, and for LZ4 if that was asked for. Blocks with a dictionary of RocksDB are left to
    /// RocksDB.
    pub fn unpacks_standard(&self, packed_as: BlockType) -> bool {
        self.standard.is_some()
            && (packed_as == ZLIB || packed_as == LZ4 && self.settings.output == Output::Lz4)
    }

    /// The guidance for the next file. A file that may not be sampled, because RocksDB would keep all of it meanwhile,
    /// gets the present generation.
    pub fn guidance(&self, may_sample: bool) -> Guidance {
        if self.settings.private().is_some() { self.lifecycle.guidance(may_sample) } else { Guidance::Plain }
    }

    /// Takes the generation of a file that was opened for new files, too, if there is none yet.
    pub fn adopt(&self, generation: &Arc<Generation>) {
        self.lifecycle.adopt(generation);
    }

    /// The generation for a file, from samples of its blocks; `None` if it would cost more than it saves.
    pub fn train(&self, blocks: &[&[u8]]) -> Option<Arc<Generation>> {
        self.lifecycle.train(blocks, self.alone(None).1)
    }

    /// Packs a block with the generation that the file carries, and lets `take` have the result, of `max_bytes` at
    /// most.
    ///
    /// A failure of an engine is no error here. The block is declined, and counted.
    pub fn pack(
        &self,
        packed_as: BlockType,
        generation: Option<&Generation>,
        raw: &[u8],
        max_bytes: usize,
        take: impl FnOnce(&[u8]),
    ) -> Packed {
        self.lifecycle.offered(raw.len());
        with_scratch(|scratch| {
            scratch.bytes.clear();
            append_varint(raw.len(), &mut scratch.bytes);
            let made = self.append(packed_as, generation, raw, scratch, max_bytes);
            let fits = made.filter(|_| scratch.bytes.len() <= max_bytes);
            let Some(made) = fits.filter(|&made| self.verified(made, generation, raw, scratch)) else {
                self.counters.declined(raw.len());
                return Packed::Declined;
            };
            self.lifecycle.packed(raw.len(), scratch.bytes.len());
            self.counters.packed(made, raw.len(), scratch.bytes.len());
            take(&scratch.bytes);
            Packed::Into(made, scratch.bytes.len())
        })
    }

    /// Appends the packed block behind its length.
    fn append(
        &self,
        packed_as: BlockType,
        generation: Option<&Generation>,
        raw: &[u8],
        scratch: &mut Scratch,
        max_bytes: usize,
    ) -> Option<BlockType> {
        let standard = self.standard.as_ref();
        match packed_as {
            ZLIB => self.append_block(&standard?.deflate, raw, &mut scratch.bytes, max_bytes).then_some(ZLIB),
            LZ4 => self.append_block(&standard?.lz4, raw, &mut scratch.bytes, max_bytes).then_some(LZ4),
            _ => self.append_private(generation, raw, scratch, max_bytes),
        }
    }

    /// Packs by the dictionaries of the generation. If its samples suggest that the block alone is shorter by more than
    /// it is slower, tries that, too.
    fn append_private(
        &self,
        generation: Option<&Generation>,
        raw: &[u8],
        scratch: &mut Scratch,
        max_bytes: usize,
    ) -> Option<BlockType> {
        let (other, alone) = self.alone(generation);
        let start = scratch.bytes.len();
        let shared =
            generation.and_then(|generation| self.append_shared(generation, raw, scratch, max_bytes));
        let Some(shared) = shared else {
            return self.append_block(alone, raw, &mut scratch.bytes, max_bytes).then_some(other);
        };
        let shared_bytes = scratch.bytes.len() - start;
        let has_codes = matches!(shared, ENTROPY | ENTROPY_PARTS);
        let worth = self.lifecycle.way().bytes_worth(shared_bytes, has_codes);
        if !self.lifecycle.suspects(worth, raw.len()) {
            return Some(shared);
        }
        let limit = worth.min(max_bytes - start.min(max_bytes));
        let end = scratch.bytes.len();
        let won = self.append_block(alone, raw, &mut scratch.bytes, end + limit);
        self.lifecycle.tried_alone(won);
        if won {
            scratch.bytes.drain(start..end);
            return Some(other);
        }
        Some(shared)
    }

    /// Appends a block packed by the generation's dictionaries, if it has them.
    fn append_shared(
        &self,
        generation: &Generation,
        raw: &[u8],
        scratch: &mut Scratch,
        max_bytes: usize,
    ) -> Option<BlockType> {
        match self.lifecycle.way() {
            Way::Tokens(effort) => {
                let made = scratch.coder.append(generation.tokens()?, effort, raw, &mut scratch.bytes);
                if made.is_err() {
                    self.counters.failed();
                }
                made.ok()
            }
            Way::Canned => {
                let Some(contexts) = generation.canned()?.of(&self.settings.canned()) else {
                    self.counters.failed();
                    return None;
                };
                self.append_block(&contexts, raw, &mut scratch.bytes, max_bytes).then_some(CANNED)
            }
        }
    }

    /// The contexts and the type for blocks of a private format that are better without tokens or canned codes.
    fn alone<'a>(&'a self, generation: Option<&'a Generation>) -> (BlockType, &'a Contexts) {
        match (self.lifecycle.way(), &self.standard) {
            (Way::Canned, Some(standard)) => (ZLIB, &*standard.deflate),
            _ => (ZSTD, generation.and_then(Generation::zstd).unwrap_or(&self.zstd)),
        }
    }

    /// Appends a block so that `bytes` has at most `max_bytes`, and returns whether it did. Refused memory is a failure
    /// of the engine.
    fn append_block(&self, contexts: &Contexts, raw: &[u8], bytes: &mut Vec<u8>, max_bytes: usize) -> bool {
        let room = max_bytes.saturating_sub(bytes.len());
        let needed = room.saturating_add(SLACK_BYTES).min(contexts.engine().bound(raw.len()));
        if bytes.try_reserve(needed).is_err() {
            self.counters.failed();
            return false;
        }
        match contexts.with(|codec| codec.compress(raw, bytes, room)) {
            Ok(packed) => packed.is_some(),
            Err(_) => {
                self.counters.failed();
                false
            }
        }
    }

    /// With `verify`: whether the block in the scratch comes back.
    fn verified(
        &self,
        made: BlockType,
        generation: Option<&Generation>,
        raw: &[u8],
        scratch: &mut Scratch,
    ) -> bool {
        if !self.settings.verify {
            return true;
        }
        let Some((_, payload_at)) = rows::varint(&scratch.bytes, 0) else { return false };
        let Scratch { bytes, check, .. } = scratch;
        check.clear();
        let unpacked = self.append_unpacked(made, generation, &bytes[payload_at..], raw.len(), check);
        let same = unpacked.is_ok() && check == raw;
        if !same {
            self.counters.failed();
        }
        same
    }

    /// The most bytes to which a packed block can unpack. A block that states more is damaged, so the caller need not
    /// make room.
    pub fn raw_bytes_max(packed_as: BlockType, packed: &[u8]) -> usize {
        let per_byte = match packed_as {
            // A whole number at least for a token.
            TOKENS => TOKEN_BYTES_MAX * 8 / *BITS.start() as usize + 1,
            // A bit at least for a token: each code has an escape beside it.
            ENTROPY | ENTROPY_PARTS => TOKEN_BYTES_MAX * 8,
            // A match of 258 bytes takes at least two bits.
            ZLIB | CANNED => 258 * 4,
            LZ4 => 255,
            // Each inner block says how much it holds.
            ZSTD => return zstd::raw_bytes_max(packed),
            _ => 0,
        };
        packed.len().saturating_mul(per_byte)
    }

    /// Unpacks the bytes behind a block's length, `raw_bytes`, and hands the block to `take`.
    pub fn unpack(
        &self,
        packed_as: BlockType,
        generation: Option<&Generation>,
        packed: &[u8],
        raw_bytes: usize,
        take: impl FnOnce(&[u8]),
    ) -> Result<(), UnpackError> {
        if raw_bytes > Codec::raw_bytes_max(packed_as, packed) {
            let packed_bytes = packed.len();
            return Err(UnpackError::Damaged(format!(
                "{packed_bytes} bytes of type {packed_as:#04x} cannot hold a block of {raw_bytes}"
            )));
        }
        with_scratch(|scratch| {
            scratch.bytes.clear();
            self.append_unpacked(packed_as, generation, packed, raw_bytes, &mut scratch.bytes)?;
            if scratch.bytes.len() != raw_bytes {
                let found = scratch.bytes.len();
                return Err(UnpackError::Damaged(format!("a block of {raw_bytes} bytes unpacks to {found}")));
            }
            take(&scratch.bytes);
            self.counters.unpacked(packed_as, packed.len(), raw_bytes);
            Ok(())
        })
    }

    fn append_unpacked(
        &self,
        packed_as: BlockType,
        generation: Option<&Generation>,
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), UnpackError> {
        let standard = || self.standard.as_ref().ok_or_else(|| no_such(packed_as));
        let canned;
        let mut stream = packed;
        let (contexts, on_cpu) = match packed_as {
            TOKENS | ENTROPY | ENTROPY_PARTS => {
                let tokens = generation.and_then(Generation::tokens);
                return append_tokens(packed_as, tokens, packed, raw_bytes, out);
            }
            ZSTD => (generation.and_then(Generation::zstd).unwrap_or(&self.zstd), None),
            CANNED => {
                let shared = generation.and_then(Generation::canned);
                let shared = shared.ok_or_else(|| without_dictionary("canned codes"))?;
                canned = shared.of(&self.settings.canned());
                match &canned {
                    Some(contexts) => (&***contexts, Some(shared.on_cpu())),
                    None => {
                        self.counters.failed();
                        (shared.on_cpu(), None)
                    }
                }
            }
            ZLIB => {
                let Standard { deflate, deflate_on_cpu, .. } = standard()?;
                if deflate.engine().name() != parts::NAME {
                    stream = parts::stream_of(packed);
                }
                (&**deflate, Some(&**deflate_on_cpu))
            }
            LZ4 => (&*standard()?.lz4, None),
            _ => return Err(no_such(packed_as)),
        };
        make_room(out, raw_bytes)?;
        let unpacked = contexts.with(|codec| codec.decompress(stream, out, raw_bytes));
        let unpacked = match (unpacked, on_cpu) {
            // A device that fails says nothing against the block.
            (Err(BlockError::Engine { .. }), Some(on_cpu)) => {
                self.counters.failed();
                on_cpu.with(|codec| codec.decompress(packed, out, raw_bytes))
            }
            // The word of a device alone does not condemn the block, either. RocksDB's own zlib refers up to 16 KiB
            // back, and a device 4 KiB. The last bytes of a stream may also look like entry points.
            (Err(BlockError::Damaged { .. }), Some(on_cpu)) => {
                on_cpu.with(|codec| codec.decompress(packed, out, raw_bytes))
            }
            (unpacked, _) => unpacked,
        };
        unpacked.map_err(|error| UnpackError::of(&error))
    }
}

/// Unpacks a block of tokens.
fn append_tokens(
    packed_as: BlockType,
    tokens: Option<&Dictionary>,
    packed: &[u8],
    raw_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), UnpackError> {
    let name = if packed_as == TOKENS { "tokens" } else { "entropy-coded tokens" };
    let tokens = tokens.ok_or_else(|| without_dictionary(name))?;
    // With that much room decoders get none themselves.
    let mut room = raw_bytes + TOKEN_BYTES_MAX;
    if packed_as == TOKENS {
        room = room.max(tokens.spare_bytes(packed.len()).min(SPARE_BYTES_MAX));
    }
    make_room(out, room)?;
    let unpacked = match packed_as {
        TOKENS => tokens.decode_append(packed, out, raw_bytes),
        ENTROPY => tokens.decode_recoded(packed, out, raw_bytes),
        _ => tokens.decode_parts(packed, out, raw_bytes),
    };
    unpacked.map(|_| ()).map_err(|error| UnpackError::Damaged(error.to_string()))
}

/// Makes room for the bytes of a block. A refusal does not end the process: the caller may read the block again.
fn make_room(out: &mut Vec<u8>, bytes: usize) -> Result<(), UnpackError> {
    let refused = |_| UnpackError::Engine(format!("{bytes} bytes of memory for a block were refused"));
    out.try_reserve(bytes).map_err(refused)
}

fn without_dictionary(of: &str) -> UnpackError {
    UnpackError::Damaged(format!("a block of {of} in a file without their dictionary"))
}

fn no_such(packed_as: BlockType) -> UnpackError {
    UnpackError::Damaged(format!(
        "a block of type {packed_as:#04x}, which the format of this manager does not have"
    ))
}

impl Standard {
    fn open(settings: &Settings) -> Result<Standard, String> {
        let open = |setting: Setting| {
            settings::engine(&setting).map(Counted::new).map_err(|error| error.to_string())
        };
        let on_cpu = Setting::new(Format::Deflate).with_path(Path::Software);
        Ok(Standard {
            deflate: open(settings.block(Format::Deflate))?,
            deflate_on_cpu: open(on_cpu)?,
            lz4: open(settings.block(Format::Lz4))?,
        })
    }
}

fn append_varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests;
