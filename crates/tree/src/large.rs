//! Values too large for a leaf: each lies outside, in chunks, and its record holds a reference.
//!
//! Not for values up to [`INLINE_BYTES_MAX`](crate::sizes::INLINE_BYTES_MAX), which lie in their record.
//!
//! ```text
//! record ──► large value ─┬─ chunks   in memory: each in DRAM or in far memory
//!            never changes └─ pieces   on SSD: several chunks each, once they were written
//! ```
//!
//! 1. The record owns the reference and takes it along from landing to body and from body to body. The merge that drops
//!    the record releases the reference, by way of the epoch.
//! 2. A reader takes a share of the value, lets the epoch go, and then copies.
//! 3. A value lies in memory, on SSD, or in both, because it never changes: pieces that were written say what the
//!    chunks say.
//! 4. A value leaves memory by letting its chunks go, and comes back by reading its pieces. No record, leaf or
//!    checkpoint takes part in that.

mod chunks;
mod files;
mod open;
mod pieces;
mod reads;

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use std::sync::{Arc, Weak};

use ziptier_codec::token::Encoder;

use crate::blocks::Effort;
use crate::coding::Coding;
use crate::far::FarMemory;
use crate::memory::{Gauge, Gauges, Reserved, arc_bytes};
use crate::numbers::array;
use crate::placement::Side;
use crate::sizes::CHUNK_BYTES;
use crate::sync::Mutex;
pub use chunks::ChunkPlace;
use chunks::{Chunk, Chunks};
pub use files::{OwnedPieces, PieceFiles, PieceRead, PieceSource};
pub(crate) use open::OpenLarge;
pub use pieces::LargePieces;
pub(crate) use reads::LastPiece;

/// Bytes of a reference in a record.
pub const REFERENCE_BYTES: usize = 8;

/// Bytes held in DRAM for an `Arc` of a large value.
const LARGE_BYTES: usize = arc_bytes(size_of::<Large>());

/// Reads that a value remembers.
const READS_MAX: u8 = 3;

/// A value in chunks of 64 KiB, each raw or coded, whichever is smaller.
pub struct Large {
    gauges: Arc<Gauges>,
    len: u64,
    coding: Option<Coding>,
    /// Reads of late. Advice: they are counted without synchronisation.
    reads: AtomicU8,
    /// No record refers to it any more: its bytes in DRAM count as retired.
    is_retired: AtomicBool,
    /// Bytes by which it counts as retired and shared; 0 as long as it is not both.
    shared_bytes: AtomicUsize,
    /// It lay on SSD alone once: what is in memory is a copy, for which nothing has to be written.
    is_copied: AtomicBool,
    /// How many [`OpenLarge`]s there are of it. Changed and read under the lock.
    open: AtomicU32,
    held: Mutex<Held>,
}

/// The fields that change together. One lock for both keeps a value that lies on SSD small in memory.
struct Held {
    whereabouts: Whereabouts,
    /// The last value that it was coded anew as, for its other names.
    recoded: Option<Box<Recoded>>,
}

/// A value that was coded anew for a generation.
struct Recoded {
    generation: u32,
    /// Nothing, where the value stays as it is.
    large: Option<Weak<Large>>,
}

/// The places of a large value.
enum Whereabouts {
    Memory {
        chunks: Arc<Chunks>,
        /// The places of its pieces, if they were written.
        pieces: Option<Arc<OwnedPieces>>,
    },
    Ssd(Arc<OwnedPieces>),
}

impl Large {
    /// Cuts and codes `value`, whose chunks are counted instead of what is reserved for them. The scratch, a few times
    /// a chunk, is not worth keeping.
    pub fn new(
        value: &[u8],
        coding: Option<&Coding>,
        place: ChunkPlace<'_>,
        reserved: Reserved<'_>,
        gauges: &Arc<Gauges>,
    ) -> Self {
        let mut encoder = Encoder::new();
        let mut coded = Vec::new();
        let mut any_coded = false;
        let chunks = value
            .chunks(CHUNK_BYTES)
            .map(|raw| {
                if let Some(coding) = coding {
                    coded.clear();
                    match coding {
                        Coding::Tokens(tokens) => {
                            tokens.encode_group(&mut encoder, &[raw], &mut coded, &mut Vec::with_capacity(1))
                        }
                        Coding::Blocks(blocks) => blocks.pack(Effort::Fast, raw, &mut coded),
                    }
                    if coded.len() < raw.len() - raw.len() / 8 {
                        any_coded = true;
                        return Chunk::new(true, &coded, place);
                    }
                }
                Chunk::new(false, raw, place)
            })
            .collect::<Vec<_>>();
        let coding = coding.filter(|_| any_coded).cloned();
        let chunks = Chunks::new(chunks, place, reserved, gauges);
        Self::of(gauges, value.len() as u64, coding, Whereabouts::Memory { chunks, pieces: None })
    }

    fn of(gauges: &Arc<Gauges>, len: u64, coding: Option<Coding>, whereabouts: Whereabouts) -> Self {
        let large = Self {
            gauges: gauges.clone(),
            len,
            coding,
            reads: AtomicU8::new(0),
            is_retired: AtomicBool::new(false),
            shared_bytes: AtomicUsize::new(0),
            is_copied: AtomicBool::new(matches!(whereabouts, Whereabouts::Ssd(_))),
            open: AtomicU32::new(0),
            held: Mutex::new(Held { whereabouts, recoded: None }),
        };
        large.count(&large.held.lock().whereabouts, true);
        large
    }

    /// One that lies on SSD alone, in `pieces`.
    pub fn on_ssd(len: u64, coding: Option<Coding>, pieces: Arc<OwnedPieces>, gauges: &Arc<Gauges>) -> Self {
        Self::of(gauges, len, coding, Whereabouts::Ssd(pieces))
    }

    /// Raw bytes.
    #[expect(clippy::len_without_is_empty, reason = "it has a chunk at least")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The coding of its chunks, if any is coded.
    pub fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// The generation its chunks are coded with.
    pub fn generation(&self) -> Option<u32> {
        self.coding.as_ref().map(Coding::generation)
    }

    /// Whether it lies on SSD alone: who reads it then waits for that.
    pub fn is_on_ssd(&self) -> bool {
        matches!(self.held.lock().whereabouts, Whereabouts::Ssd(_))
    }

    /// Whether what is in memory is a copy of what lies on SSD, for which nothing has to be written.
    pub fn is_copied(&self) -> bool {
        self.is_copied.load(Relaxed)
    }

    /// Its chunks, unless it lies on SSD alone.
    fn in_memory(&self) -> Option<Arc<Chunks>> {
        match &self.held.lock().whereabouts {
            Whereabouts::Memory { chunks, .. } => Some(chunks.clone()),
            Whereabouts::Ssd(_) => None,
        }
    }

    /// The places of its pieces, if they were written.
    pub fn places(&self) -> Option<Arc<OwnedPieces>> {
        self.held.lock().whereabouts.pieces().cloned()
    }

    /// Bytes of its chunks, wherever they lie.
    pub fn stored_bytes(&self) -> usize {
        match self.in_memory() {
            Some(chunks) => chunks.iter().map(|chunk| chunk.bytes().len()).sum(),
            None => self.places().map_or(0, |pieces| pieces.bytes()),
        }
    }

    /// Bytes of its chunks on a side of memory.
    pub fn bytes_on(&self, side: Side) -> usize {
        self.in_memory().map_or(0, |chunks| chunks.bytes_on(side))
    }

    /// Bytes on a side of memory that may leave it: none of what lies at a set ratio, and stays there.
    pub fn movable_bytes(&self, side: Side) -> usize {
        let movable = self.in_memory().filter(|chunks| chunks.placement().is_none());
        movable.map_or(0, |chunks| chunks.bytes_on(side))
    }

    /// Whether any chunk is in DRAM.
    pub(crate) fn is_in_dram(&self) -> bool {
        self.bytes_on(Side::Dram) > 0
    }

    /// Whether its chunks are what was put, as far as the places where they lie can tell.
    pub fn is_whole(&self) -> bool {
        self.in_memory().is_none_or(|chunks| chunks.is_whole())
    }
}

/// How often it is read.
impl Large {
    /// Notes a read.
    #[inline]
    pub(crate) fn note_read(&self) {
        let reads = self.reads.load(Relaxed);
        if reads < READS_MAX {
            self.reads.store(reads + 1, Relaxed);
        }
    }

    /// Reads that it remembers.
    pub fn reads(&self) -> u8 {
        self.reads.load(Relaxed)
    }

    /// Whether it is read all the time.
    pub fn is_hot(&self) -> bool {
        self.reads() == READS_MAX
    }

    /// Forgets one of its reads.
    pub fn forget_read(&self) {
        self.reads.store(self.reads().saturating_sub(1), Relaxed);
    }
}

/// Moving. Readers have shares of the chunks or the pieces that they found, which last as long as they read.
impl Large {
    /// Takes `pieces`, unless another thread wrote the value first: a manifest may name that copy, and the value needs
    /// no second one.
    pub fn set_first_places(&self, pieces: Arc<OwnedPieces>) {
        let mut held = self.held.lock();
        if held.whereabouts.pieces().is_some() {
            drop(held);
            drop(pieces);
            return;
        }
        self.count(&held.whereabouts, false);
        if let Whereabouts::Memory { pieces: known, .. } = &mut held.whereabouts {
            *known = Some(pieces);
        }
        self.count(&held.whereabouts, true);
    }

    /// Its pieces lie in `pieces` now.
    pub fn set_places(&self, pieces: Arc<OwnedPieces>) {
        let mut held = self.held.lock();
        self.count(&held.whereabouts, false);
        let before = match &mut held.whereabouts {
            Whereabouts::Memory { pieces: known, .. } => known.replace(pieces),
            Whereabouts::Ssd(known) => Some(std::mem::replace(known, pieces)),
        };
        self.count(&held.whereabouts, true);
        drop(held);
        drop(before);
    }

    /// Lets go of its chunks, if its pieces were written. Returns the bytes on a side of memory that are free after
    /// their last reader.
    pub fn leave_memory(&self, side: Side) -> usize {
        let mut held = self.held.lock();
        let Whereabouts::Memory { chunks, pieces: Some(pieces) } = &held.whereabouts else { return 0 };
        let (chunks, pieces) = (chunks.clone(), pieces.clone());
        let before = std::mem::replace(&mut held.whereabouts, Whereabouts::Ssd(pieces));
        self.is_copied.store(true, Relaxed);
        drop(held);
        drop(before);
        let freed_bytes = chunks.bytes_on(side);
        retire(chunks);
        freed_bytes
    }

    /// Has `chunks`, read from its pieces, in memory, too; `false` if it came there already, or is gone.
    fn come_to_memory(&self, chunks: Arc<Chunks>) -> bool {
        let mut held = self.held.lock();
        let Whereabouts::Ssd(pieces) = &held.whereabouts else { return false };
        if self.is_retired.load(Relaxed) {
            return false;
        }
        let pieces = Some(pieces.clone());
        held.whereabouts = Whereabouts::Memory { chunks, pieces };
        true
    }

    /// Copies its chunks to far memory, unless some there are no longer what was put. Returns the bytes of DRAM that
    /// this frees.
    ///
    /// # Errors
    /// There is no room. So many blocks were taken and are free again.
    pub fn to_far(&self, far: &Arc<FarMemory>) -> Result<usize, u64> {
        let Some(chunks) = self.in_memory().filter(|chunks| chunks.is_whole()) else { return Ok(0) };
        let copy = chunks.to_far(far)?;
        Ok(if self.replace(&chunks, copy) { chunks.bytes_on(Side::Dram) } else { 0 })
    }

    /// Copies its chunks to DRAM; `false` if they moved meanwhile, or are no longer what was put.
    pub fn to_dram(&self) -> bool {
        let copied = self.in_memory().and_then(|chunks| Some((chunks.to_dram()?, chunks)));
        copied.is_some_and(|(copy, chunks)| self.replace(&chunks, copy))
    }

    /// Has `new` in place of `old`; `false` if it moved meanwhile.
    fn replace(&self, old: &Arc<Chunks>, new: Arc<Chunks>) -> bool {
        let mut held = self.held.lock();
        let before = match &mut held.whereabouts {
            Whereabouts::Memory { chunks, .. } if Arc::ptr_eq(chunks, old) => std::mem::replace(chunks, new),
            _ => return false,
        };
        drop(held);
        retire(before);
        true
    }

    /// A record that referred to it is gone. With the last one it is retired: it waits for its last reader, and counts
    /// for no ratio.
    pub(crate) fn retire(self: &Arc<Self>) {
        if Arc::strong_count(self) > 1 {
            return;
        }
        let held = self.held.lock();
        // Another name may have found it by `recoded` meanwhile.
        if self.is_retired.load(Relaxed) || Arc::strong_count(self) > 1 {
            return;
        }
        self.count(&held.whereabouts, false);
        self.is_retired.store(true, Relaxed);
        self.count(&held.whereabouts, true);
        if let Whereabouts::Memory { chunks, .. } = &held.whereabouts {
            chunks.retire();
        }
        // With the fence in `share`, between its steps in the other order: one of the two threads sees the other.
        fence(SeqCst);
        if Arc::strong_count(self) > 1 {
            self.note_shared(&held.whereabouts);
        }
    }

    /// Somebody may read it for long, though no record refers to it: writers do not wait for that.
    fn note_shared(&self, whereabouts: &Whereabouts) {
        if !self.is_retired.load(Relaxed) || self.shared_bytes.load(Relaxed) > 0 {
            return;
        }
        let chunks_bytes = match whereabouts {
            Whereabouts::Memory { chunks, .. } => chunks.dram_bytes(),
            Whereabouts::Ssd(_) => 0,
        };
        self.shared_bytes.store(LARGE_BYTES + chunks_bytes, Relaxed);
        self.gauges.retired_shared.add_held(LARGE_BYTES + chunks_bytes);
    }

    /// Adds (or takes) what this holds besides its chunks to (or from) the gauges.
    fn count(&self, whereabouts: &Whereabouts, add: bool) {
        let pieces = whereabouts.pieces();
        let held_bytes = LARGE_BYTES + pieces.map_or(0, |pieces| pieces.held_bytes());
        let gauge = if self.is_retired.load(Relaxed) { &self.gauges.retired } else { &self.gauges.index };
        let change = if add { Gauge::add_held } else { Gauge::take_held };
        change(gauge, held_bytes);
        if let Some(pieces) = pieces {
            pieces.count(held_bytes, add);
        }
    }
}

/// A value has these no more: who reads them may do so.
fn retire(chunks: Arc<Chunks>) {
    if Arc::strong_count(&chunks) > 1 {
        chunks.retire();
    }
}

impl Whereabouts {
    fn pieces(&self) -> Option<&Arc<OwnedPieces>> {
        match self {
            Self::Memory { pieces, .. } => pieces.as_ref(),
            Self::Ssd(pieces) => Some(pieces),
        }
    }
}

/// Coding anew.
impl Large {
    /// The value that it was coded anew as for `generation`: `Some(None)` if it stays as it is, `None` if that is not
    /// known.
    #[expect(clippy::option_option, reason = "whether it is known, and whether there is one")]
    pub(crate) fn recoded(&self, generation: u32) -> Option<Option<Arc<Self>>> {
        let large = match &self.held.lock().recoded {
            Some(recoded) if recoded.generation == generation => recoded.large.clone(),
            _ => return None,
        };
        let Some(large) = large else { return Some(None) };
        let large = large.upgrade()?;
        (!large.is_retired()).then_some(Some(large))
    }

    /// Notes that coding it anew for `generation` gave `large`, or left it as it is. Another thread may have noted one
    /// before: what all names of the value get.
    pub fn note_recoded(&self, generation: u32, large: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let weak = large.as_ref().map(Arc::downgrade);
        let mut retired = None;
        // One lock for the look and the note: two threads may code the value for two of its names.
        let mut held = self.held.lock();
        if let Some(known) = held.recoded.as_deref().filter(|known| known.generation == generation) {
            let Some(known) = &known.large else { return None };
            match known.upgrade() {
                Some(known) if !known.is_retired() => return Some(known),
                known => retired = known,
            }
        }
        held.recoded = Some(Box::new(Recoded { generation, large: weak }));
        drop(held);
        // Its last share may be this one, and its end takes locks.
        drop(retired);
        large
    }

    /// Whether no record refers to it, and none may again. A share that was taken before this call keeps it from being
    /// retired later.
    pub(crate) fn is_retired(&self) -> bool {
        let _held = self.held.lock();
        self.is_retired.load(Relaxed)
    }
}

/// References.
impl Large {
    /// Turns a share into a reference that a record owns.
    pub fn into_reference(self: Arc<Self>) -> [u8; REFERENCE_BYTES] {
        (Arc::into_raw(self) as usize as u64).to_le_bytes()
    }

    /// Takes back what [`Large::into_reference`] gave.
    ///
    /// # Safety
    /// `reference` came from `into_reference`, and its record is gone for every reader.
    pub(crate) unsafe fn from_reference(reference: &[u8]) -> Arc<Self> {
        // SAFETY: by the contract this is the one owner of the share.
        unsafe { Arc::from_raw(pointer(reference)) }
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.count(&self.held.lock().whereabouts, false);
        self.gauges.retired_shared.take_held(*self.shared_bytes.get_mut());
    }
}

fn pointer(reference: &[u8]) -> *const Large {
    u64::from_le_bytes(array(reference)) as usize as *const Large
}

/// A large value as long as its record can be read.
#[derive(Clone, Copy)]
pub struct LargeHandle<'a> {
    pointer: *const Large,
    record: PhantomData<&'a Large>,
}

impl<'a> LargeHandle<'a> {
    /// The value that `reference` refers to.
    ///
    /// # Safety
    /// `reference` came from [`Large::into_reference`] and stays owned by its record for `'a`.
    pub unsafe fn borrow(reference: &'a [u8]) -> Self {
        Self { pointer: pointer(reference), record: PhantomData }
    }

    /// The handle of a value that the caller holds.
    pub(crate) fn to(large: &'a Arc<Large>) -> Self {
        Self { pointer: Arc::as_ptr(large), record: PhantomData }
    }

    /// A share that outlives the record.
    pub fn share(self) -> Arc<Large> {
        // SAFETY: a record or the maker of this handle holds a share for its life, so the count is at least one.
        let large = unsafe {
            Arc::increment_strong_count(self.pointer);
            Arc::from_raw(self.pointer)
        };
        // With the fence in `retire`: the raised count comes before the look at the flag, on every processor.
        fence(SeqCst);
        // A reader of an old state: no record refers to the value any more.
        if large.is_retired.load(Relaxed) {
            large.note_shared(&large.held.lock().whereabouts);
        }
        large
    }

    /// Whether anything but this record has a share: other names of the value, or readers.
    pub(crate) fn is_shared(self) -> bool {
        Arc::strong_count(&self.share()) > 2
    }

    /// The reference's bytes, for a record that will own it.
    pub(crate) fn reference(self) -> [u8; REFERENCE_BYTES] {
        (self.pointer as usize as u64).to_le_bytes()
    }
}

impl Deref for LargeHandle<'_> {
    type Target = Large;

    fn deref(&self) -> &Large {
        // SAFETY: as in `share`.
        unsafe { &*self.pointer }
    }
}
