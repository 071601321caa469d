//! The places of a large value's pieces, and the files that hold them.

use std::sync::Arc;

use crate::extent::Extent;
use crate::few::Few;
use crate::memory::arc_bytes;

/// Takes the piece, or the reason why it could not be read.
pub type PieceRead = Box<dyn FnOnce(Result<Vec<u8>, String>) + Send>;

/// The files of all pieces.
pub trait PieceFiles: Send + Sync {
    /// Reads a piece.
    ///
    /// # Errors
    /// Why there is none: the file cannot be read, or the piece is damaged.
    fn read(&self, place: Extent) -> Result<Vec<u8>, String>;

    /// Reads a piece for `done`, and may return before.
    fn read_later(&self, place: Extent, done: PieceRead);

    /// Releases an extent that no owner names any more.
    fn release(&self, place: Extent);

    /// Notes that a reader reads a piece.
    fn note_read(&self);

    /// Counts a value that got or lost its pieces: the bytes that memory holds for it besides its chunks.
    fn count(&self, held_bytes: usize, add: bool);
}

/// The files of all pieces, behind one pointer: each large value on SSD has it.
pub struct PieceSource(Arc<dyn PieceFiles>);

impl PieceSource {
    /// Over these files.
    pub fn new(files: Arc<dyn PieceFiles>) -> Arc<Self> {
        Arc::new(Self(files))
    }
}

/// The places of the pieces of a large value, which are released with this.
pub struct OwnedPieces {
    files: Arc<PieceSource>,
    places: Few<Extent>,
}

impl OwnedPieces {
    /// Of places that nobody else releases.
    pub fn new(files: Arc<PieceSource>, places: Vec<Extent>) -> Self {
        Self { files, places: places.into() }
    }

    /// Where the pieces lie, in the order of the value.
    pub fn places(&self) -> &[Extent] {
        &self.places
    }

    /// Reads piece `index`.
    pub(super) fn read(&self, index: usize) -> Result<Vec<u8>, String> {
        self.files.0.read(self.places[index])
    }

    /// Reads piece `index` for `done`, as [`PieceFiles::read_later`] does.
    pub(super) fn read_later(&self, index: usize, done: PieceRead) {
        self.files.0.read_later(self.places[index], done);
    }

    /// Notes that a reader reads a piece.
    pub(super) fn note_read(&self) {
        self.files.0.note_read();
    }

    /// Bytes of all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.places.iter().map(|place| place.bytes as usize).sum()
    }

    /// Whether a piece lies in a segment for which `is_one` is true.
    pub fn lies_in(&self, is_one: impl Fn(u64) -> bool) -> bool {
        self.places.iter().any(|place| is_one(place.segment))
    }

    /// Bytes held for an `Arc` of this.
    pub(super) fn held_bytes(&self) -> usize {
        arc_bytes(size_of::<Self>()) + self.places.boxed_bytes()
    }

    /// Counts what memory holds for the value besides its chunks in or out.
    pub(super) fn count(&self, held_bytes: usize, add: bool) {
        self.files.0.count(held_bytes, add);
    }
}

impl Drop for OwnedPieces {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| self.files.0.release(*place));
    }
}
