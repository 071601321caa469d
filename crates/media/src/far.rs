//! Far memory: byte-addressable, larger and slower than DRAM, and read where it lies.
//!
//! A medium is a file on a DAX file system, a memory-only NUMA node, or an ordinary file for machines without either.
//! Every report names the true kind ([`FarKind`]). A medium holds *blocks*: runs of bytes that are put once, read in
//! place and freed.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ziptier_media::far::{Far, FarOptions, FarPlace};
//!
//! let folder = tempfile::tempdir()?;
//! let place = FarPlace::File(folder.path().join("far"));
//! let options = FarOptions { place, capacity_bytes: 8 << 20, require_dax: false };
//! let (far, _) = Far::open(&options)?;
//! let block = far.put(b"colder than most")?;
//! assert_eq!(far.get(&block), b"colder than most");
//! far.sync()?;
//! drop(far);
//!
//! let (far, mut reopened) = Far::open(&options)?;
//! let block = reopened.blocks.remove(0);
//! assert_eq!(far.get(&block), b"colder than most");
//! far.free(block);
//! # Ok(()) }
//! ```
//!
//! All space is allocated before it is mapped, so that no access fails for lack of space. A get is a bounds-free slice
//! of the mapping. Do not put bytes here that change in place: a block is immutable.

mod error;
mod file;
mod layout;
mod node;
mod reopen;
mod space;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::mapping::Mapping;
pub use error::FarError;
use file::OpenFile;
use layout::{BLOCK_HEAD_BYTES, CHUNK_BYTES, CHUNK_HEAD_BYTES, ChunkUse, Head};
pub use space::Fit;
use space::{Room, Space};

use crate::persist::Persistence;
use crate::size::ByteSize;

/// The smallest medium. Each size class in use holds at least a quarter of a MiB. A medium below 16 MiB is therefore
/// full early when sizes vary.
pub const MIN_BYTES: u64 = 4 << 20;

/// The place of far memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FarPlace {
    /// A file; made if there is none.
    File(PathBuf),
    /// A NUMA node. Nothing on it survives the process.
    Node(u32),
}

/// Options for opening a medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarOptions {
    /// Where.
    pub place: FarPlace,
    /// Bytes of the medium, rounded down to a multiple of 256 KiB. The first 256 KiB hold no blocks. An existing file
    /// may grow, never shrink.
    pub capacity_bytes: u64,
    /// Whether to refuse everything but a file on DAX.
    pub require_dax: bool,
}

/// A size and a place, such as `1GiB:/mnt/pmem/far` or `1GiB:node=1`.
impl FromStr for FarOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "write a size and a place, such as 1GiB:/mnt/pmem/far or 1GiB:node=1";
        let (size, place) = text.split_once(':').filter(|(_, place)| !place.is_empty()).ok_or(USAGE)?;
        let ByteSize(capacity_bytes) = size.parse()?;
        let place = match place.strip_prefix("node=") {
            Some(node) => FarPlace::Node(node.parse().map_err(|_| USAGE)?),
            None => FarPlace::File(place.into()),
        };
        Ok(Self { place, capacity_bytes, require_dax: false })
    }
}

/// The kind of a medium, as found on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarKind {
    /// A file mapped with `MAP_SYNC`: persistent memory.
    Dax,
    /// A file on tmpfs: ordinary memory.
    Tmpfs,
    /// Any other file: the page cache over a disk.
    File,
    /// Anonymous memory on a NUMA node.
    Node {
        /// The node.
        node: u32,
        /// Whether it has no processors, as far memory has.
        memory_only: bool,
    },
}

impl fmt::Display for FarKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FarKind::Dax => f.write_str("persistent memory (a DAX file)"),
            FarKind::Tmpfs => f.write_str("a file on tmpfs (ordinary memory, no DAX)"),
            FarKind::File => f.write_str("an ordinary file (page cache, no DAX)"),
            FarKind::Node { node, memory_only: true } => write!(f, "memory-only NUMA node {node}"),
            FarKind::Node { node, memory_only: false } => {
                write!(f, "NUMA node {node} (ordinary memory, it has processors)")
            }
        }
    }
}

/// A run of bytes on a medium. Only [`Far::free`] frees a block: a dropped block keeps its space until the medium is
/// opened again.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a dropped block keeps its space"]
pub struct Block {
    offset: usize,
    len: u32,
    medium: u32,
}

impl Block {
    /// The offset of its bytes on the medium. The offset identifies the block after reopening.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// The contents of a medium at opening. Opening changes none of them.
#[derive(Debug, Default)]
pub struct Reopened {
    /// Every whole block, in the order of the medium. A block that was freed shortly before a crash may be among them.
    pub blocks: Vec<Block>,
    /// Offsets of heads whose checksum does not match: a put or free that a crash tore, a chunk from before
    /// [`Far::open_empty`], or damage. Their space is reused.
    pub unreadable: Vec<u64>,
    /// Whether the medium was sealed, so that no put or free was torn.
    pub sealed: bool,
}

/// How full a medium is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarUsage {
    /// Bytes of the medium.
    pub capacity_bytes: u64,
    /// Bytes that blocks take, rounding included.
    pub used_bytes: u64,
}

/// An open medium, for use by many threads.
#[derive(Debug)]
pub struct Far {
    mapping: Mapping,
    persistence: Persistence,
    kind: FarKind,
    id: u64,
    /// The number of this medium in the process, so that no block is taken for one of another medium.
    medium: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    space: Space,
    head: Head,
    hollow: Vec<(usize, usize)>,
}

impl Far {
    /// Opens or makes a medium and finds its blocks. It reads every block, so the time is that of reading them.
    ///
    /// # Errors
    ///
    /// One sentence that names the obstacle. An existing file is unchanged then.
    pub fn open(options: &FarOptions) -> Result<(Far, Reopened), FarError> {
        let OpenFile { mapping, persistence, kind, head } = find(options, Path::new("/sys"))?;
        Ok(Far::over(mapping, persistence, kind, head))
    }

    /// Opens a medium, or makes it, and forgets the blocks on it without reading them: the medium gets a new id, which
    /// no head of a chunk or block matches.
    ///
    /// # Errors
    ///
    /// As for [`Far::open`], and [`FarError::Sync`] where the new id could not be made durable.
    pub fn open_empty(options: &FarOptions) -> Result<Far, FarError> {
        let OpenFile { mapping, persistence, kind, head } = find(options, Path::new("/sys"))?;
        let head = Head { id: file::random(), sealed: false, ..head };
        if persistence.survives() {
            file::write_head(&mapping, &persistence, &head)?;
        }
        let space = Space::new(mapping.bytes() / CHUNK_BYTES);
        Ok(Far::with(mapping, persistence, kind, State { space, head, hollow: Vec::new() }))
    }

    fn over(mapping: Mapping, persistence: Persistence, kind: FarKind, head: Head) -> (Far, Reopened) {
        let mut reopened = Reopened { sealed: head.sealed, ..Reopened::default() };
        let (mut found_blocks, mut hollow) = (Vec::new(), Vec::new());
        let space = if persistence.survives() {
            let found = reopen::walk(&mapping, head.id);
            (found_blocks, hollow, reopened.unreadable) = (found.blocks, found.hollow, found.unreadable);
            found.space
        } else {
            Space::new(mapping.bytes() / CHUNK_BYTES)
        };
        let far = Far::with(mapping, persistence, kind, State { space, head, hollow });
        let block = |(offset, len)| Block { offset, len: len as u32, medium: far.medium };
        reopened.blocks = found_blocks.into_iter().map(block).collect();
        (far, reopened)
    }

    fn with(mapping: Mapping, persistence: Persistence, kind: FarKind, state: State) -> Far {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let medium = OPENED.fetch_add(1, Ordering::Relaxed);
        Far { mapping, persistence, kind, id: state.head.id, medium, state: Mutex::new(state) }
    }

    /// The kind of the medium.
    pub fn kind(&self) -> FarKind {
        self.kind
    }

    /// The means that makes its bytes durable.
    pub fn persistence(&self) -> &Persistence {
        &self.persistence
    }

    /// How full it is.
    pub fn usage(&self) -> FarUsage {
        let state = self.lock();
        FarUsage { capacity_bytes: state.head.capacity_bytes, used_bytes: state.space.used_bytes() }
    }

    /// Whether `blocks` blocks of `len` bytes each, at most 127 KiB, have room now, whatever sizes the freed blocks
    /// had.
    pub fn has_room(&self, len: usize, blocks: usize, fit: Fit) -> bool {
        self.lock().space.has_room(len, blocks, fit)
    }

    /// Copies `bytes` to the medium. On DAX they are durable on return; on other files after [`Far::sync`]; on a node
    /// never.
    ///
    /// # Errors
    ///
    /// [`FarError::Full`] if no free stretch holds them; [`FarError::Sync`] if the medium could not be marked as in
    /// use.
    pub fn put(&self, bytes: &[u8]) -> Result<Block, FarError> {
        self.put_fitting(bytes, Fit::Any)
    }

    /// As [`Far::put`], but refuses if the block would leave more of its slot idle than `fit` allows.
    ///
    /// # Errors
    ///
    /// As for [`Far::put`].
    pub fn put_fitting(&self, bytes: &[u8], fit: Fit) -> Result<Block, FarError> {
        let offset = self.allocate(bytes.len(), fit)?;
        let start = offset + BLOCK_HEAD_BYTES;
        // SAFETY: the slot was free and now belongs to this call alone. The slot has room for the head and for all
        // bytes.
        unsafe {
            self.persistence.copy(self.mapping.at(offset).wrapping_add(BLOCK_HEAD_BYTES), bytes);
            if self.persistence.survives() {
                // The checksum covers the bytes, so no fence is needed between the bytes and their head.
                self.persistence.copy(self.mapping.at(offset), &layout::block_head(self.id, start, bytes));
            }
        }
        self.persistence.drain();
        Ok(Block { offset: start, len: bytes.len() as u32, medium: self.medium })
    }

    /// The bytes of a block, where they lie.
    ///
    /// # Panics
    ///
    /// If the block is one of another medium.
    pub fn get<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        assert_eq!(block.medium, self.medium, "the block belongs to another medium");
        // SAFETY: a block of this medium has these bytes; nobody writes them before `free` consumes it, when this
        // borrow has ended.
        unsafe { self.mapping.slice(block.offset, block.len()) }
    }

    /// The block whose bytes are `bytes`, for callers that keep the address of a block in place of the block.
    ///
    /// # Safety
    ///
    /// [`Far::get`] gave `bytes`, for a block of this medium that was not freed. Of all blocks with these bytes one is
    /// freed, once.
    pub unsafe fn block_at(&self, bytes: NonNull<[u8]>) -> Block {
        let offset = bytes.cast::<u8>().addr().get() - self.mapping.at(0).addr();
        Block { offset, len: bytes.len() as u32, medium: self.medium }
    }

    /// Compares a block with its stored checksum. Blocks on a node have no checksum.
    ///
    /// # Errors
    ///
    /// [`FarError::Damaged`] if they differ.
    pub fn verify(&self, block: &Block) -> Result<(), FarError> {
        let bytes = self.get(block);
        if !self.persistence.survives() {
            return Ok(());
        }
        // SAFETY: the head of a block is written by `put` and `free` alone.
        let head = unsafe { self.mapping.slice(block.offset - BLOCK_HEAD_BYTES, BLOCK_HEAD_BYTES) };
        if head == layout::block_head(self.id, block.offset, bytes) {
            return Ok(());
        }
        Err(FarError::Damaged { offset: block.offset(), len: bytes.len() as u64 })
    }

    /// Gives back the space of a block. On DAX the next put makes the free durable; on any medium the next
    /// [`Far::sync`] does.
    ///
    /// # Panics
    ///
    /// If the block is one of another medium.
    pub fn free(&self, block: Block) {
        assert_eq!(block.medium, self.medium, "the block belongs to another medium");
        let offset = block.offset - BLOCK_HEAD_BYTES;
        let mut state = self.lock();
        // A medium that cannot be marked as changed keeps the block; `sync` tells why.
        if self.begin_change(&mut state).is_err() {
            return;
        }
        self.clear_head(offset);
        if let Some((chunk, chunks)) = state.space.free(offset) {
            self.clear_chunks(chunk, chunks);
        }
    }

    /// Makes every put and free so far durable: a fence on DAX, `fdatasync` on other files.
    ///
    /// # Errors
    ///
    /// [`FarError::Sync`]: what is durable is then unknown, and the medium should take nothing more.
    pub fn sync(&self) -> Result<(), FarError> {
        self.persistence.sync().map_err(FarError::Sync)
    }

    /// Makes everything durable and marks the medium as closed in order, until the next put or free.
    ///
    /// # Errors
    ///
    /// As for [`Far::sync`].
    pub fn seal(&self) -> Result<(), FarError> {
        let mut state = self.lock();
        if !self.persistence.survives() || state.head.sealed {
            return Ok(());
        }
        self.sync()?;
        let head = Head { sealed: true, ..state.head };
        file::write_head(&self.mapping, &self.persistence, &head)?;
        state.head = head;
        Ok(())
    }

    /// Room for a block of `len` bytes: where its head begins.
    fn allocate(&self, len: usize, fit: Fit) -> Result<usize, FarError> {
        let mut state = self.lock();
        self.begin_change(&mut state)?;
        let room = u32::try_from(len).ok().and_then(|_| self.find_room(&mut state.space, len, fit));
        let full = FarError::Full { needed_bytes: len as u64, capacity_bytes: state.head.capacity_bytes };
        let room = room.ok_or(full)?;
        if let Some((chunk, used)) = room.opened {
            self.open_chunk(chunk, used);
        }
        Ok(room.offset)
    }

    fn find_room(&self, space: &mut Space, len: usize, fit: Fit) -> Option<Room> {
        if let Some(room) = space.allocate(len) {
            return Some(room);
        }
        let closed = space.close_empty();
        for &chunk in &closed {
            self.clear_chunks(chunk, 1);
        }
        space.allocate(len).or_else(|| space.allocate_larger(len, fit))
    }

    /// Runs before the first change after opening or sealing: removes the seal, and clears the half-done changes of a
    /// crash.
    fn begin_change(&self, state: &mut State) -> Result<(), FarError> {
        if state.head.sealed {
            let head = Head { sealed: false, ..state.head };
            file::write_head(&self.mapping, &self.persistence, &head)?;
            state.head = head;
        }
        for (chunk, chunks) in state.hollow.drain(..) {
            self.clear_chunks(chunk, chunks);
        }
        Ok(())
    }

    /// Writes the head of a chunk that now has a use. Before that, it marks the heads of all slots *empty*, whatever
    /// lay there.
    fn open_chunk(&self, chunk: usize, used: ChunkUse) {
        if !self.persistence.survives() {
            return;
        }
        let start = chunk * CHUNK_BYTES;
        match used {
            ChunkUse::Slots(bytes) => {
                let slots = (CHUNK_BYTES - CHUNK_HEAD_BYTES) / bytes as usize;
                (0..slots).for_each(|slot| self.clear_head(start + CHUNK_HEAD_BYTES + slot * bytes as usize));
            }
            ChunkUse::Extent(_) => self.clear_head(start + CHUNK_HEAD_BYTES),
            ChunkUse::Free => {}
        }
        self.persistence.drain();
        // SAFETY: the head of a chunk is written under the lock of the space, and when the medium is opened.
        unsafe { self.persistence.copy(self.mapping.at(start), &used.encode(self.id, chunk)) };
        self.persistence.drain();
    }

    /// Clears the heads of neighbouring chunks that have become free, the first chunk last. Until then the first head
    /// claims the other chunks, whose heads may hold bytes of a block.
    fn clear_chunks(&self, first: usize, chunks: usize) {
        for chunk in (first..first + chunks).rev() {
            if chunk == first {
                self.persistence.drain();
            }
            self.clear_head(chunk * CHUNK_BYTES);
        }
        self.persistence.drain();
    }

    /// Clears the head of a chunk or block, each of its two words at once. It clears the checksum, too. Otherwise a
    /// next block of the same length would revive the old block before the new block is whole.
    fn clear_head(&self, offset: usize) {
        if !self.persistence.survives() {
            return;
        }
        for word in [offset, offset + 8].map(|offset| self.mapping.at(offset)) {
            // SAFETY: heads are aligned to 16 bytes and lie inside the mapping. This head belongs to no block, or to a
            // block that is being freed.
            unsafe { AtomicU64::from_ptr(word.cast()).store(0, Ordering::Relaxed) };
        }
        // SAFETY: as above.
        unsafe { self.persistence.flush(self.mapping.at(offset), BLOCK_HEAD_BYTES) };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the space")
    }
}

/// Finds or makes the medium that `options` name, with sysfs mounted at `sysfs`.
fn find(options: &FarOptions, sysfs: &Path) -> Result<OpenFile, FarError> {
    let capacity_bytes = options.capacity_bytes / CHUNK_BYTES as u64 * CHUNK_BYTES as u64;
    if capacity_bytes < MIN_BYTES {
        return Err(FarError::TooSmall { bytes: options.capacity_bytes, min_bytes: MIN_BYTES });
    }
    match &options.place {
        FarPlace::File(path) => file::open(path, capacity_bytes, options.require_dax, sysfs),
        FarPlace::Node(node) if options.require_dax => Err(FarError::NotDax {
            place: format!("node {node}"),
            found: "memory of a NUMA node".to_string(),
        }),
        &FarPlace::Node(node) => {
            let (mapping, memory_only) = node::open(node, capacity_bytes as usize, sysfs)?;
            let head = Head { id: 0, capacity_bytes, sealed: false };
            let (persistence, kind) = (Persistence::of_anonymous(), FarKind::Node { node, memory_only });
            Ok(OpenFile { mapping, persistence, kind, head })
        }
    }
}
