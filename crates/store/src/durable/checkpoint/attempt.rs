//! One walk of a checkpoint over all leaves, and the images that it writes. None of them counts before its manifest is
//! in force.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use ziptier_media::segments::{Purpose, SegmentError};
use ziptier_tree::below::{Below, Part};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::large::{Large, LargeHandle, OwnedPieces};
use ziptier_tree::leaf::LeafState;
use ziptier_tree::pending::newest;
use ziptier_tree::sync::back_off;

use crate::Error;
use crate::durable::generation::GenerationFiles;
use crate::durable::manifest::{Entries, Entry, Listed};
use crate::image_files::{ImageFiles, Owned, extent_of, place_of};
use crate::leaf_image::{Capture, Plain, Stored, StoredAt, StoredLarge};
use crate::places::Moves;

/// Leaves between two steps of the epoch, which free what the walk retired.
const LEAVES_PER_STEP: u64 = 64;

/// A checkpoint that is being made.
pub(super) struct Attempt<'a> {
    moves: Moves<'a>,
    files: &'a Arc<ImageFiles>,
    /// Segments that are being cleaned.
    victims: BTreeSet<u64>,
    entries: Entries,
    /// Segments that the manifest needs.
    named: BTreeSet<u64>,
    /// The images that leaves remember once this checkpoint is in force.
    taken: Vec<(Arc<Stored>, StoredAt)>,
    /// Large values that were written, by their address, which nobody else has while they are here.
    larges: HashMap<usize, (Weak<Large>, Arc<OwnedPieces>)>,
    generations: BTreeSet<u32>,
    codings: BTreeMap<u32, Coding>,
    images_kept: u64,
    bytes: Vec<u8>,
}

/// The contents of a checkpoint in force.
pub(super) struct Written {
    /// Segments that it needs.
    pub(super) named: BTreeSet<u64>,
    pub(super) generations: BTreeSet<u32>,
    pub(super) images: u64,
    pub(super) images_kept: u64,
}

/// A leaf as the walk finds it.
struct Visit {
    found: Found,
    below: Option<Arc<Below>>,
    high: Option<Arc<[u8]>>,
}

enum Found {
    /// It holds nothing, or nothing above what lies below.
    Nothing,
    /// Its image is current.
    Current(Arc<Stored>),
    /// It was copied. Its image goes to a place of its own, as new or as what is moved by cleaning.
    Changed(Box<Capture>, Arc<Stored>, Purpose),
    /// Its body is no longer what was put into far memory.
    Damaged,
}

/// An image of what is damaged would be taken for sound, and the log that has it would go.
fn damaged_in_far() -> Error {
    let reason = "a checkpoint was given up: bytes in far memory are no longer what was put there; the \
                  checkpoint before and the log still have them, so stop the store and open it anew";
    Error::Far { reason: reason.to_owned() }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(moves: Moves<'a>, files: &'a Arc<ImageFiles>, victims: BTreeSet<u64>) -> Self {
        Self {
            moves,
            files,
            victims,
            entries: Entries::default(),
            named: BTreeSet::new(),
            taken: Vec::new(),
            larges: HashMap::new(),
            generations: BTreeSet::new(),
            codings: BTreeMap::new(),
            images_kept: 0,
            bytes: Vec::new(),
        }
    }

    /// Visits every leaf and writes what has no current image; gives up when it should not go on.
    pub(super) fn walk(
        &mut self,
        known: &GenerationFiles,
        may_go_on: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut cursor: Vec<u8> = Vec::new();
        loop {
            may_go_on()?;
            self.check_far()?;
            self.moves.clean_leaf(&cursor, &self.victims)?;
            let Visit { found, below, high } = match self.visit(&cursor) {
                Ok(visit) => visit,
                Err(low) => {
                    // A join moved what was visited into this leaf: all that it has is written from its beginning on.
                    cursor = self.entries.back_to(&low);
                    continue;
                }
            };
            let entry = Entry { low: cursor.as_slice().into(), ..Entry::default() };
            let entry = match (found, below) {
                (Found::Damaged, _) => return Err(damaged_in_far()),
                (Found::Nothing, None) => entry,
                (Found::Nothing, Some(below)) => {
                    Entry { below: Some(self.list(&below, &cursor, known)), ..entry }
                }
                (Found::Current(stored), below) => {
                    let at = stored.at().expect("a current image is in a checkpoint");
                    self.images_kept += 1;
                    self.entry(entry, at, below, known)
                }
                (Found::Changed(capture, stored, purpose), below) => {
                    let at = self.write(&capture, purpose, known)?;
                    let entry = self.entry(entry, &at, below, known);
                    self.taken.push((stored, at));
                    entry
                }
            };
            self.entries.push(&entry);
            if self.entries.len().is_multiple_of(LEAVES_PER_STEP) {
                self.moves.tree.pin().flush();
            }
            match high {
                Some(high) => cursor = high.to_vec(),
                None => return self.check_far(),
            }
        }
    }

    /// An error once any leaf may hold what was made from damaged bytes in far memory.
    fn check_far(&self) -> Result<(), Error> {
        match &self.moves.tree.far {
            Some(far) if far.is_damaged() => Err(damaged_in_far()),
            _ => Ok(()),
        }
    }

    /// Looks at the leaf that owns `cursor`, and copies it if its image is not current. The error is its lowest key, if
    /// that is another one.
    fn visit(&self, cursor: &[u8]) -> Result<Visit, Vec<u8>> {
        let mut round = 0;
        loop {
            let guard = self.moves.tree.pin();
            let (leaf, _) = self.moves.tree.locate(cursor, &guard);
            let writer = leaf.lock_writer();
            let state = leaf.state(&guard);
            if state.closed || !state.covers(cursor) {
                drop(writer);
                drop(guard);
                back_off(round);
                round += 1;
                continue;
            }
            if *leaf.low() != *cursor {
                return Err(leaf.low().to_vec());
            }
            let (appends, high, below) = (leaf.appends(), state.high.clone(), state.below.clone());
            if state.body.is_empty() && !state.is_unsettled() {
                return Ok(Visit { found: Found::Nothing, below, high });
            }
            let current =
                Stored::of(state).and_then(|stored| stored.current(appends, state.form.generation()));
            let purpose = match current {
                Some(at) if self.is_victim(at) || self.has_victims(state) => Purpose::Cleaning,
                Some(_) => {
                    let found = Found::Current(Stored::shared(state).expect("it is current"));
                    return Ok(Visit { found, below, high });
                }
                None => Purpose::New,
            };
            if !state.body.is_whole() {
                return Ok(Visit { found: Found::Damaged, below, high });
            }
            // The leaf's owner may replace the state meanwhile, but nobody else.
            let (state, mut capture, stored) = loop {
                let state = leaf.state(&guard);
                let capture = Capture::landings(&newest(state.landings(), &self.moves.tree.commits));
                let stored = Stored::pending(appends);
                let new = LeafState { stored: Some(stored.clone()), ..state.clone() };
                if leaf.publish(state, new, &guard) {
                    break (state, capture, stored);
                }
            };
            drop(writer);
            capture.settled(&leaf.low(), state);
            let below = state.below.clone();
            return Ok(Visit { found: Found::Changed(Box::new(capture), stored, purpose), below, high });
        }
    }

    fn is_victim(&self, at: &StoredAt) -> bool {
        !self.victims.is_empty() && at.segments().any(|segment| self.victims.contains(&segment))
    }

    /// Whether large values of a leaf are to be moved. They may lie elsewhere than its image says, if they went to SSD
    /// while the image was made.
    fn has_victims(&self, state: &LeafState) -> bool {
        let lies_there =
            |large: LargeHandle<'_>| large.places().is_some_and(|pieces| self.lies_there(&pieces));
        !self.victims.is_empty() && state.body.larges().any(lies_there)
    }

    fn lies_there(&self, pieces: &OwnedPieces) -> bool {
        pieces.lies_in(|segment| self.victims.contains(&segment))
    }

    /// The entry of a leaf whose image is `at`.
    fn entry(
        &mut self,
        entry: Entry,
        at: &StoredAt,
        below: Option<Arc<Below>>,
        known: &GenerationFiles,
    ) -> Entry {
        self.named.extend(at.segments());
        self.generations.extend(at.generations());
        match (at.plain(), below) {
            (Some(Plain { records, logical_bytes }), None) => {
                let part = Part { low: entry.low.to_vec(), place: at.place(), records };
                let generations = at.generation().into_iter().collect();
                let listed = Listed { in_memory: true, logical_bytes, generations, parts: vec![part] };
                Entry { below: Some(listed), ..entry }
            }
            (_, below) => {
                let below = below.map(|below| self.list(&below, &entry.low, known));
                Entry { image: Some(at.place()), below, ..entry }
            }
        }
    }

    /// The manifest's list of the images below a leaf.
    fn list(&mut self, below: &Below, low: &[u8], known: &GenerationFiles) -> Listed {
        let parts = below.parts(low);
        self.named.extend(parts.iter().map(|part| part.place.segment));
        below.codings().iter().for_each(|coding| self.need(coding, known));
        let generations = below.codings().iter().map(Coding::generation).collect();
        Listed { in_memory: false, logical_bytes: below.logical_bytes(), generations, parts }
    }

    /// Notes that a coding is needed.
    fn need(&mut self, coding: &Coding, known: &GenerationFiles) {
        let number = coding.generation();
        self.generations.insert(number);
        if !known.has(number) {
            self.codings.entry(number).or_insert_with(|| coding.clone());
        }
    }

    fn write(
        &mut self,
        capture: &Capture,
        purpose: Purpose,
        known: &GenerationFiles,
    ) -> Result<StoredAt, Error> {
        let mut larges = Vec::with_capacity(capture.larges.len());
        for large in &capture.larges {
            let pieces = self.write_large(large)?;
            larges.push(StoredLarge {
                len: large.len(),
                generation: large.generation(),
                pieces: pieces.places().into(),
            });
        }
        let own = capture.form.coding();
        for coding in own.iter().chain(capture.larges.iter().filter_map(|large| large.coding())) {
            self.need(coding, known);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        capture.write(&larges, &mut bytes);
        let place = self.append(&bytes, purpose);
        self.bytes = bytes;
        let image = Owned::new(self.files, [place?]);
        Ok(StoredAt::new(image, capture.generation(), &larges, capture.plain()))
    }

    /// The places of the pieces of a large value, which are written if need be.
    fn write_large(&mut self, large: &Arc<Large>) -> Result<Arc<OwnedPieces>, Error> {
        let address = Arc::as_ptr(large).addr();
        if let Some((_, pieces)) = self.larges.get(&address) {
            return Ok(pieces.clone());
        }
        let known = large.places();
        let purpose = match &known {
            Some(pieces) if !self.lies_there(pieces) => return Ok(pieces.clone()),
            Some(_) => Purpose::Cleaning,
            None => Purpose::New,
        };
        if !large.is_whole() {
            // The image that it replaces is sound.
            return known.ok_or_else(damaged_in_far);
        }
        let mut places = Vec::with_capacity(large.pieces());
        let read = |place| Ok(self.files.segments.read(place_of(place))?);
        let written = large.write_pieces(read, |piece| {
            places.push(self.append(piece, purpose)?);
            Ok::<(), Error>(())
        });
        let pieces = Arc::new(OwnedPieces::new(self.files.source(), places));
        match (written, known) {
            (Ok(()), _) => {}
            // A damaged piece stays where it is, and its segment with it.
            (Err(Error::Segments(SegmentError::Damaged { .. })), Some(known)) => return Ok(known),
            (Err(error), _) => return Err(error),
        }
        self.larges.insert(address, (Arc::downgrade(large), pieces.clone()));
        Ok(pieces)
    }

    fn append(&self, bytes: &[u8], purpose: Purpose) -> Result<Extent, Error> {
        let appended = match self.files.segments.append(bytes, purpose) {
            // Without this checkpoint nothing becomes free.
            Err(SegmentError::Full { .. }) if purpose == Purpose::New => {
                self.files.segments.append(bytes, Purpose::Cleaning)
            }
            appended => appended,
        };
        Ok(extent_of(appended?))
    }

    /// Codings that images need and that are not known to be durable.
    pub(super) fn new_codings(&self) -> impl Iterator<Item = &Coding> {
        self.codings.values()
    }

    /// Generations that images need.
    pub(super) fn generations(&self) -> &BTreeSet<u32> {
        &self.generations
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The manifest is in force: leaves and large values remember where they lie.
    pub(super) fn succeed(self) -> Written {
        let images = self.taken.len() as u64;
        for (stored, at) in self.taken {
            stored.set(at);
        }
        for (large, pieces) in self.larges.into_values() {
            if let Some(large) = large.upgrade() {
                large.set_places(pieces);
            }
        }
        let (named, generations, images_kept) = (self.named, self.generations, self.images_kept);
        Written { named, generations, images, images_kept }
    }
}
