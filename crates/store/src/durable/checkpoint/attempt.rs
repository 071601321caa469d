//! One walk over all leaves, and what it writes: nothing of it counts before its manifest is in force.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crossbeam_epoch::pin;
use ziptier_media::segments::{Place, Purpose, Segments};

use crate::Error;
use crate::coding::Coding;
use crate::core::Core;
use crate::durable::generation::GenerationFiles;
use crate::durable::image::{Capture, Stored, StoredAt, StoredLarge};
use crate::durable::manifest::{Entry, Manifest};
use crate::large::Large;
use crate::leaf::LeafState;
use crate::merge::newest;
use crate::packing::generation;
use crate::sync::back_off;

/// Leaves between two steps of the epoch, which free what the walk retired.
const LEAVES_PER_STEP: usize = 64;

/// A checkpoint that is being made.
pub(super) struct Attempt<'a> {
    core: &'a Core,
    segments: &'a Segments,
    /// Where the images and large values of the checkpoint in force lie, sorted.
    in_force: Arc<Vec<Place>>,
    /// Segments that are being cleaned.
    victims: BTreeSet<u64>,
    entries: Vec<Entry>,
    /// Where all that the manifest needs lies.
    places: Vec<Place>,
    /// What was appended.
    fresh: Vec<Place>,
    /// What leaves remember once this is in force.
    taken: Vec<(Arc<Stored>, StoredAt)>,
    /// Large values that were written, by their address, which nobody else has while they are here.
    larges: HashMap<usize, (Weak<Large>, Arc<[Place]>)>,
    generations: BTreeSet<u32>,
    codings: BTreeMap<u32, Coding>,
    images_kept: u64,
    bytes: Vec<u8>,
}

/// What a checkpoint in force has.
pub(super) struct Written {
    /// Sorted, each once.
    pub(super) places: Vec<Place>,
    pub(super) generations: BTreeSet<u32>,
    pub(super) images: u64,
    pub(super) images_kept: u64,
}

/// What the walk finds of a leaf, and the key behind it.
struct Visit {
    found: Found,
    high: Option<Arc<[u8]>>,
}

enum Found {
    /// Its image is current.
    Current(Arc<Stored>),
    /// It was copied. Its image goes to a place of its own, as new or as what is moved by cleaning.
    Changed(Box<Capture>, Arc<Stored>, Purpose),
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        core: &'a Core,
        segments: &'a Segments,
        in_force: Arc<Vec<Place>>,
        victims: BTreeSet<u64>,
    ) -> Self {
        Self {
            core,
            segments,
            in_force,
            victims,
            entries: Vec::new(),
            places: Vec::new(),
            fresh: Vec::new(),
            taken: Vec::new(),
            larges: HashMap::new(),
            generations: BTreeSet::new(),
            codings: BTreeMap::new(),
            images_kept: 0,
            bytes: Vec::new(),
        }
    }

    /// Visits every leaf and writes what has no current image; gives up at the deadline.
    pub(super) fn walk(&mut self, known: &GenerationFiles, deadline: Option<Instant>) -> Result<(), Error> {
        let mut cursor: Vec<u8> = Vec::new();
        loop {
            let Visit { found, high } = self.visit(&cursor);
            let low = cursor.as_slice().into();
            let place = match found {
                Found::Current(stored) => self.keep(stored.at().expect("a current image is in a checkpoint")),
                Found::Changed(capture, stored, purpose) => self.write(&capture, stored, purpose, known)?,
            };
            self.entries.push(Entry { low, place });
            if self.entries.len().is_multiple_of(LEAVES_PER_STEP) {
                pin().flush();
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(Error::CheckpointTooLong);
                }
            }
            match high {
                Some(high) => cursor = high.to_vec(),
                None => return Ok(()),
            }
        }
    }

    /// Looks at the leaf that owns `cursor`, and copies it if its image is not current.
    fn visit(&self, cursor: &[u8]) -> Visit {
        let mut round = 0;
        loop {
            let guard = pin();
            let (leaf, _) = self.core.locate(cursor, &guard);
            let writer = leaf.lock_writer();
            let state = leaf.state(&guard);
            if state.closed || !state.covers(cursor) {
                drop(writer);
                drop(guard);
                back_off(round);
                round += 1;
                continue;
            }
            let (appends, high) = (leaf.appends(), state.high.clone());
            let current = state.stored.as_ref().and_then(|stored| stored.current(appends, generation(state)));
            let purpose = match current {
                Some(at) if self.is_victim(at) => Purpose::Cleaning,
                Some(_) => {
                    let stored = state.stored.clone().expect("it is current");
                    return Visit { found: Found::Current(stored), high };
                }
                None => Purpose::New,
            };
            // The leaf's owner may replace the state meanwhile, but nobody else.
            let (state, mut capture, stored) = loop {
                let state = leaf.state(&guard);
                let capture = Capture::landings(&newest(state.landings(), &self.core.committed));
                let stored = Stored::pending(appends);
                let new = LeafState { stored: Some(stored.clone()), ..state.clone() };
                if leaf.publish(state, new, &guard) {
                    break (state, capture, stored);
                }
            };
            drop(writer);
            capture.settled(&leaf.low(), state);
            return Visit { found: Found::Changed(Box::new(capture), stored, purpose), high };
        }
    }

    fn is_victim(&self, at: &StoredAt) -> bool {
        !self.victims.is_empty() && at.places().any(|place| self.victims.contains(&place.segment))
    }

    fn keep(&mut self, at: &StoredAt) -> Place {
        self.places.extend(at.places());
        self.generations.extend(at.generations());
        self.images_kept += 1;
        at.place
    }

    fn write(
        &mut self,
        capture: &Capture,
        stored: Arc<Stored>,
        purpose: Purpose,
        known: &GenerationFiles,
    ) -> Result<Place, Error> {
        let mut larges = Vec::with_capacity(capture.larges.len());
        for large in &capture.larges {
            let pieces = self.write_large(large)?;
            larges.push(StoredLarge { len: large.len(), generation: large.generation(), pieces });
        }
        let own = capture.coding.iter();
        for coding in own.chain(capture.larges.iter().filter_map(|large| large.coding())) {
            let number = coding.generation();
            self.generations.insert(number);
            if !known.has(number) {
                self.codings.entry(number).or_insert_with(|| coding.clone());
            }
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        capture.write(&larges, &mut bytes);
        let place = self.append(&bytes, purpose);
        self.bytes = bytes;
        let place = place?;
        let at = StoredAt::new(place, capture.generation(), larges);
        self.places.extend(at.places());
        self.taken.push((stored, at));
        Ok(place)
    }

    /// Where the pieces of a large value lie, which are written if need be.
    fn write_large(&mut self, large: &Arc<Large>) -> Result<Arc<[Place]>, Error> {
        let address = Arc::as_ptr(large).addr();
        if let Some((_, places)) = self.larges.get(&address) {
            return Ok(places.clone());
        }
        // One that moved from leaf to leaf past the last walk is not in its checkpoint: the log had it.
        let is_in_force =
            |places: &Arc<[Place]>| places.iter().all(|place| self.in_force.binary_search(place).is_ok());
        let purpose = match large.places().filter(is_in_force) {
            Some(places) if !places.iter().any(|place| self.victims.contains(&place.segment)) => {
                return Ok(places);
            }
            Some(_) => Purpose::Cleaning,
            None => Purpose::New,
        };
        let mut piece = std::mem::take(&mut self.bytes);
        let places: Result<Vec<Place>, Error> = (0..large.pieces())
            .map(|index| {
                large.write_piece(index, &mut piece);
                self.append(&piece, purpose)
            })
            .collect();
        self.bytes = piece;
        let places: Arc<[Place]> = places?.into();
        self.larges.insert(address, (Arc::downgrade(large), places.clone()));
        Ok(places)
    }

    fn append(&mut self, bytes: &[u8], purpose: Purpose) -> Result<Place, Error> {
        let place = self.segments.append(bytes, purpose)?;
        self.fresh.push(place);
        Ok(place)
    }

    /// Codings that images need and that are not known to be durable.
    pub(super) fn new_codings(&self) -> impl Iterator<Item = &Coding> {
        self.codings.values()
    }

    pub(super) fn manifest(&mut self, number: u64, start_lsn: u64, durable_lsn: u64) -> Manifest {
        let generations = self.generations.iter().copied().collect();
        Manifest { number, start_lsn, durable_lsn, generations, entries: std::mem::take(&mut self.entries) }
    }

    /// The manifest is in force: leaves and large values remember where they lie.
    pub(super) fn succeed(self) -> Written {
        let images = self.taken.len() as u64;
        for (stored, at) in self.taken {
            stored.set(at);
        }
        for (large, places) in self.larges.into_values() {
            if let Some(large) = large.upgrade() {
                large.set_places(places);
            }
        }
        let mut places = self.places;
        places.sort_unstable();
        places.dedup();
        Written { places, generations: self.generations, images, images_kept: self.images_kept }
    }

    /// Nothing of this will ever be in force.
    pub(super) fn give_up(&self) {
        self.fresh.iter().for_each(|place| self.segments.release(*place));
    }
}
