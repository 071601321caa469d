//! Makes leaves of the images of a checkpoint, in key order.
//!
//! 1. A leaf whose records lie in images of bodies alone need not be read: it begins as a leaf on SSD.
//! 2. Leaves that were in memory are read as long as memory has room. The others begin on SSD, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use crossbeam_epoch::Guard;
use ziptier_media::segments::SegmentError;
use ziptier_tree::below::{Below, Part};
use ziptier_tree::body::{Blocks, Body, Builder, Referents};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::form::Form;
use ziptier_tree::landing::{Landing, RecordBytes};
use ziptier_tree::large::{Large, LargePieces};
use ziptier_tree::leaf::{Leaf, LeafState, RightSibling};
use ziptier_tree::numbers::array;
use ziptier_tree::packing::upper_records;
use ziptier_tree::pending::Pending;
use ziptier_tree::record::{Fields, Kind};

use crate::Error;
use crate::core::Core;
use crate::durable::{Entry, EntryReader, Listed, Manifest};
use crate::image_files::{ImageFiles, Owned, found_pieces, place_of};
use crate::leaf_image::{LeafImage, Stored, StoredAt, StoredLarge, with_raw_values};
use crate::places::ssd::{JOINED_BYTES_MAX, Tier, add_coding};

/// Images that are read ahead.
const READ_AHEAD: usize = 128;
/// Bytes that an entry takes in memory, per byte of the manifest, at most.
const INDEX_FACTOR: u64 = 2;

/// Fills an empty store with the images of a manifest.
pub(crate) struct Loading<'a> {
    pub(crate) core: &'a Core,
    pub(crate) files: &'a Arc<ImageFiles>,
    pub(crate) codings: &'a BTreeMap<u32, Coding>,
    /// Codings that this store does not pack with.
    pub(crate) foreign: &'a BTreeSet<u32>,
    /// Damage is noted, and the damaged thing is left out.
    pub(crate) salvage: bool,
}

/// The findings of a loading.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) images: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: Vec<String>,
}

/// A leaf as its image says.
pub(crate) struct LoadedLeaf {
    pub(crate) state: LeafState,
    pub(crate) records: i64,
    pub(crate) logical_bytes: i64,
    /// The place of its image, if that says the same.
    pub(crate) at: Option<StoredAt>,
    /// The faults of its large values that are lost.
    pub(crate) lost: Vec<String>,
}

/// Large values by where they begin, while there are any: records of several leaves may share one, and eviction may
/// have taken it.
pub(crate) type LoadedLarges = HashMap<Extent, Weak<Large>>;

impl Loading<'_> {
    /// Loads every leaf. Background threads must keep off until this returns; `progress` is told the bytes that were
    /// read.
    pub(crate) fn run(&self, manifest: &Manifest, mut progress: impl FnMut(u64)) -> Result<Loaded, Error> {
        let mut loaded = Loaded::default();
        let mut larges = LoadedLarges::new();
        let mut chain = Chain { core: self.core, is_empty: true };
        let mut gathered: Option<Gathered> = None;
        let mut steps = Steps::new(self, manifest);
        while let Some(step) = steps.next() {
            let Step { entry, read, high } = step?;
            let is_read = read.is_some();
            if let (None, None, Some(below)) = (&read, entry.image, &entry.below) {
                let taken = self.gather(&mut gathered, &mut chain, &entry.low, below);
                self.skip_damaged(taken, &entry.low, &mut loaded)?;
                continue;
            }
            self.push_gathered(&mut gathered, &mut chain);
            let leaf = self.leaf(&entry, read, &mut larges).and_then(|leaf| {
                match is_within(&leaf.state, &entry.low, high.as_deref()) {
                    true => Ok(leaf),
                    false => Err(self.outside(&entry)),
                }
            });
            if let Some(mut leaf) = self.skip_damaged(leaf, &entry.low, &mut loaded)? {
                loaded.skipped.append(&mut leaf.lost);
                loaded.images += u64::from(is_read);
                loaded.bytes += if is_read { u64::from(loaded_place(&entry).bytes) } else { 0 };
                progress(loaded.bytes);
                chain.push(&entry.low, leaf);
            }
        }
        self.push_gathered(&mut gathered, &mut chain);
        self.core.tree.pin().flush();
        Ok(loaded)
    }

    /// The loaded value; `None` if it is damaged and that is noted.
    fn skip_damaged<T>(
        &self,
        outcome: Result<T, Error>,
        low: &[u8],
        loaded: &mut Loaded,
    ) -> Result<Option<T>, Error> {
        match outcome {
            Ok(found) => Ok(Some(found)),
            // These bytes are sound: a newer program reads them.
            Err(error @ Error::FileForeign { .. }) => Err(error),
            Err(error) if self.salvage => {
                let low = String::from_utf8_lossy(low).into_owned();
                loaded.skipped.push(format!("the leaf from key '{low}' on: {error}"));
                self.files.keep_all();
                Ok(None)
            }
            Err(error) => Err(error.at_start()),
        }
    }

    fn outside(&self, entry: &Entry) -> Error {
        let place = loaded_place(entry);
        let path = self.files.segments.path_of(place.segment);
        let reason = "the image has keys that are not of its leaf".to_owned();
        Error::FileDamaged { path, offset: u64::from(place.offset), reason }
    }

    /// The leaf of an entry whose image was read, or that has nothing.
    fn leaf(
        &self,
        entry: &Entry,
        read: Option<Result<Vec<u8>, SegmentError>>,
        larges: &mut LoadedLarges,
    ) -> Result<LoadedLeaf, Error> {
        let Some(read) = read else {
            let state = LeafState::new(Body::empty(), None, RightSibling::none());
            return Ok(LoadedLeaf { state, records: 0, logical_bytes: 0, at: None, lost: Vec::new() });
        };
        let below = entry.below.as_ref().filter(|_| entry.image.is_some());
        let source = Source {
            core: self.core,
            files: self.files,
            codings: self.codings,
            place: loaded_place(entry),
            is_upper: below.is_some(),
            salvage: self.salvage,
        };
        let mut leaf = source.load(&read?, larges)?;
        let state = &mut leaf.state;
        if state.form.generation().is_some_and(|generation| self.foreign.contains(&generation)) {
            // Coded as this store's leaves never are.
            state.body = with_raw_values(&state.body, &state.form);
            state.form = Form::Raw;
        }
        if let Some(below) = below {
            let below = self.below(below.parts.clone(), &below.generations, below.logical_bytes)?;
            leaf.records += i64::from(below.records());
            leaf.logical_bytes += below.logical_bytes() as i64;
            state.below = Some(below);
        }
        Ok(leaf)
    }

    /// A list of images that are there, and owned by it.
    fn below(&self, parts: Vec<Part>, generations: &[u32], logical_bytes: u64) -> Result<Arc<Below>, Error> {
        let codings = self.codings_of(generations, &parts)?;
        let places: Box<[Extent]> = parts.iter().map(|part| part.place).collect();
        let owned = Owned::found(self.files, places)?;
        let below = Below::new(self.tier().clone(), &parts, codings, logical_bytes);
        owned.hand_on();
        Ok(below)
    }

    fn codings_of(&self, generations: &[u32], parts: &[Part]) -> Result<Vec<Coding>, Error> {
        let coding = |number: &u32| {
            self.codings.get(number).cloned().ok_or_else(|| Error::FileDamaged {
                path: self.files.segments.path_of(parts[0].place.segment),
                offset: u64::from(parts[0].place.offset),
                reason: format!("an image needs generation {number}, which is not there"),
            })
        };
        generations.iter().map(coding).collect()
    }

    fn tier(&self) -> &Arc<Tier> {
        &self.core.cold.as_ref().expect("a store with leaves on SSD has an SSD").tier
    }

    /// Adds images that are not read to the leaf that is gathered from neighbours, or begins one.
    fn gather(
        &self,
        gathered: &mut Option<Gathered>,
        chain: &mut Chain<'_>,
        low: &[u8],
        below: &Listed,
    ) -> Result<(), Error> {
        let codings = self.codings_of(&below.generations, &below.parts)?;
        let places: Box<[Extent]> = below.parts.iter().map(|part| part.place).collect();
        let ssd_bytes: u64 = places.iter().map(|place| place_of(*place).block_bytes()).sum();
        let owned = Owned::found(self.files, places)?;
        if gathered.as_ref().is_some_and(|before| before.ssd_bytes + ssd_bytes > JOINED_BYTES_MAX) {
            self.push_gathered(gathered, chain);
        }
        let gathered = gathered.get_or_insert_with(|| Gathered { low: low.to_vec(), ..Gathered::default() });
        owned.hand_on();
        gathered.parts.extend(below.parts.iter().cloned());
        codings.iter().for_each(|coding| add_coding(&mut gathered.codings, coding));
        gathered.logical_bytes += below.logical_bytes;
        gathered.ssd_bytes += ssd_bytes;
        Ok(())
    }

    fn push_gathered(&self, gathered: &mut Option<Gathered>, chain: &mut Chain<'_>) {
        let Some(Gathered { low, parts, codings, logical_bytes, .. }) = gathered.take() else { return };
        let below = Below::new(self.tier().clone(), &parts, codings, logical_bytes);
        let (records, logical_bytes) = (i64::from(below.records()), logical_bytes as i64);
        let mut state = LeafState::new(Body::empty(), None, RightSibling::none());
        state.below = Some(below);
        chain.push(&low, LoadedLeaf { state, records, logical_bytes, at: None, lost: Vec::new() });
    }
}

/// Images of neighbours that become one leaf. Their places are owned by nobody else.
#[derive(Default)]
struct Gathered {
    low: Vec<u8>,
    parts: Vec<Part>,
    codings: Vec<Coding>,
    logical_bytes: u64,
    ssd_bytes: u64,
}

/// The image that is read of an entry.
pub(crate) fn loaded_place(entry: &Entry) -> Extent {
    let part = || entry.below.as_ref().map(|below| below.parts[0].place);
    entry.image.or_else(part).expect("an entry without images is not read")
}

/// Says which values of an image were not read, and why, and counts the bytes of those in the body. A key that has not
/// settled must not get an older value again, so its record in the landing becomes a tombstone.
fn lose_values(
    image: &LeafImage<'_>,
    body: &Body,
    landing: &mut [Pending<'_>],
    failed: &BTreeMap<usize, Error>,
) -> (Vec<String>, i64) {
    let (mut lost, mut lost_bytes) = (Vec::new(), 0);
    let mut lose = |key: &[u8], payload: &[u8]| {
        let number = number_of(payload);
        lost.push(format!("the value of key '{}': {}", String::from_utf8_lossy(key), failed[&number]));
        image.larges[number].len as i64
    };
    let records = (0..body.len()).map(|index| body.entry(index));
    for record in records.filter(|record| is_lost(record.kind, record.payload, failed)) {
        lost_bytes += lose(&record.key.to_vec(), record.payload);
    }
    for record in landing.iter_mut().filter(|record| is_lost(record.kind, record.value, failed)) {
        lose(record.key, record.value);
        (record.kind, record.fields, record.value) = (Kind::Tombstone, Fields::default(), &[]);
    }
    (lost, lost_bytes)
}

/// The same without large values of these numbers; those of records are lost, and say so.
fn without_values(body: &Body, lost: &BTreeMap<usize, Error>) -> Body {
    let mut entries: Vec<_> = (0..body.len()).map(|index| body.entry(index)).collect();
    for entry in entries.iter_mut().filter(|entry| is_lost(entry.kind, entry.payload, lost)) {
        (entry.kind, entry.payload) = (Kind::Lost, &[]);
    }
    let mut blocks = Blocks::default();
    body.each_block().for_each(|block| blocks.copy(block));
    Builder::default().build(&entries, body.is_packed().then(|| blocks.all()))
}

fn is_lost(kind: Kind, payload: &[u8], lost: &BTreeMap<usize, Error>) -> bool {
    kind == Kind::Large && lost.contains_key(&number_of(payload))
}

/// The number of a large value of an image.
fn number_of(payload: &[u8]) -> usize {
    u64::from_le_bytes(array(payload)) as usize
}

/// Whether all that a leaf says is of keys from `low` on and below `high`.
pub(crate) fn is_within(state: &LeafState, low: &[u8], high: Option<&[u8]>) -> bool {
    let within = |key: &[u8]| key >= low && high.is_none_or(|high| key < high);
    let landed = |landing: &Landing| (0..landing.len()).all(|index| within(landing.record(index).key));
    state.body.lies_within(low, high) && state.landings().all(landed)
}

/// The source of an image, and everything that the image needs.
pub(crate) struct Source<'a> {
    pub(crate) core: &'a Core,
    pub(crate) files: &'a Arc<ImageFiles>,
    pub(crate) codings: &'a BTreeMap<u32, Coding>,
    pub(crate) place: Extent,
    /// It lies above other images: tombstones shadow what these have.
    pub(crate) is_upper: bool,
    /// Large values that cannot be read are lost, and their leaf is not.
    pub(crate) salvage: bool,
}

impl Source<'_> {
    /// Reads an image, whose bytes may be any, and the large values that it refers to.
    pub(crate) fn load(&self, bytes: &[u8], larges: &mut LoadedLarges) -> Result<LoadedLeaf, Error> {
        let damaged = |reason: String| self.damaged(self.place, &reason);
        let path = || self.files.segments.path_of(self.place.segment);
        let image = LeafImage::read(bytes)
            .map_err(|fault| Error::of_bytes(fault, path(), u64::from(self.place.offset)))?;
        let (own, missing) = match image.generation.map(|number| self.coding(number)).transpose() {
            // A body of which nothing is coded does not need it.
            Err(missing) if self.salvage => (None, Some(missing)),
            own => (own?, None),
        };
        let mut landing = image.landing().map_err(|reason| damaged(reason.to_owned()))?;
        let referents = Referents {
            tokens: own.as_ref().is_some_and(|own| own.tokens().is_some()),
            codes: own.as_ref().is_some_and(Coding::has_codes),
            // A pack builds an overlay without blocks.
            blocks: !self.is_upper && own.as_ref().is_some_and(|own| own.blocks().is_some()),
            larges: image.larges.len(),
            below: self.is_upper,
        };
        let mut body = match image.body {
            [] => Body::empty(),
            bytes => Body::from_untrusted(bytes, referents)
                .map_err(|reason| missing.unwrap_or_else(|| damaged(reason.to_owned())))?,
        };
        let mut values = BTreeMap::new();
        let mut failed = BTreeMap::new();
        for (number, stored) in image.larges.iter().enumerate() {
            match self.load_large(stored, larges) {
                Ok(large) => drop(values.insert(number, large)),
                Err(error) if self.salvage => drop(failed.insert(number, error)),
                Err(error) => return Err(error),
            }
        }
        let owned = Owned::found(self.files, [self.place])?;
        let (mut lost, mut lost_bytes) = (Vec::new(), 0);
        if !failed.is_empty() {
            self.files.keep_all();
            (lost, lost_bytes) = lose_values(&image, &body, &mut landing, &failed);
            body = without_values(&body, &failed);
        }
        // Nothing fails from here on: references are owned.
        let reference = |number: usize| Arc::clone(&values[&number]).into_reference();
        let mut state = LeafState::new(body.owning(reference), None, RightSibling::none());
        state.form = match own {
            None if image.heated => Form::Hot,
            own => {
                Form::of(own).with_counts(image.loose.min(state.body.len() as u16), state.body.plain() as u16)
            }
        };
        state.open = landing_of(&landing, self.core.tree.landing_bytes, reference);
        let records = if self.is_upper { upper_records(&state).0 } else { state.body.len() as i64 };
        let plain = image.plain(state.body.len());
        let at = StoredAt::new(owned, image.generation, &image.larges, plain);
        let at = lost.is_empty().then_some(at);
        Ok(LoadedLeaf { state, records, logical_bytes: image.logical_bytes as i64 - lost_bytes, at, lost })
    }

    fn load_large(&self, stored: &StoredLarge, larges: &mut LoadedLarges) -> Result<Arc<Large>, Error> {
        let coding = stored.generation.map(|number| self.coding(number)).transpose()?;
        let first = *stored.pieces.first().expect("a large value has a piece");
        let known = larges.get(&first).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.len() == stored.len) {
            return Ok(known);
        }
        if self.core.cold.is_some() && !self.core.room().has_memory_for(stored.len) {
            let owned = found_pieces(self.files, &stored.pieces)?;
            let large = Arc::new(Large::on_ssd(stored.len, coding, Arc::new(owned), &self.core.tree.gauges));
            larges.insert(first, Arc::downgrade(&large));
            return Ok(large);
        }
        self.core.reclaimer().evict_for_all(stored.len);
        let mut pieces =
            LargePieces::new(stored.len, coding, self.core.room().chunk_place(stored.len as usize));
        for place in stored.pieces.iter() {
            let piece = self.files.segments.read(place_of(*place))?;
            pieces.push(&piece).map_err(|reason| self.damaged(*place, reason))?;
        }
        let owned = found_pieces(self.files, &stored.pieces)?;
        let large = pieces.finish(Arc::new(owned), &self.core.tree.gauges);
        let large = Arc::new(large.map_err(|reason| self.damaged(first, reason))?);
        larges.insert(first, Arc::downgrade(&large));
        Ok(large)
    }

    fn coding(&self, number: u32) -> Result<Coding, Error> {
        let known = self.codings.get(&number).cloned();
        let unknown = || format!("an image needs generation {number}, which is not there");
        known.ok_or_else(|| self.damaged(self.place, &unknown()))
    }

    fn damaged(&self, place: Extent, reason: &str) -> Error {
        let path = self.files.segments.path_of(place.segment);
        Error::FileDamaged { path, offset: u64::from(place.offset), reason: reason.to_owned() }
    }
}

/// A landing with these records, `None` if there are none.
fn landing_of(
    records: &[Pending<'_>],
    bytes: usize,
    reference: impl Fn(usize) -> [u8; 8],
) -> Option<Arc<Landing>> {
    let mut laid_out = Vec::with_capacity(records.len());
    for record in records {
        let owned;
        let value = if record.kind == Kind::Large {
            owned = reference(number_of(record.value));
            &owned[..]
        } else {
            record.value
        };
        let mut bytes = RecordBytes::default();
        bytes.lay_out(record.kind, &record.fields, record.key, value);
        laid_out.push((bytes, ziptier_tree::record::key_hash(record.key)));
    }
    let needed: usize = laid_out.iter().map(|(record, _)| record.landing_bytes()).sum();
    let landing = Landing::new(bytes.max(needed));
    for (record, hash) in &laid_out {
        let fits = landing.append(record, *hash);
        assert!(fits, "the landing was made large enough");
    }
    (!laid_out.is_empty()).then(|| Arc::new(landing))
}

/// Leaves on their way into the index, from left to right. No other thread changes the store meanwhile. Between two
/// leaves, when none is held, records without room in DRAM are demoted to far memory or evicted.
struct Chain<'a> {
    core: &'a Core,
    /// There is only the leaf of an empty store, which owns every key.
    is_empty: bool,
}

impl Chain<'_> {
    fn push(&mut self, low: &[u8], leaf: LoadedLeaf) {
        let guard = self.core.tree.pin();
        let core = self.core;
        core.tree.gauges.records.change(leaf.records);
        core.tree.gauges.logical.change(leaf.logical_bytes);
        let next = if self.is_empty {
            let (first, empty) = core.tree.locate(&[], &guard);
            publish(first, empty, leaf.state, &guard);
            first.share(&guard)
        } else {
            let next = Leaf::new(low.into(), leaf.state, core.tree.gauges.clone());
            let (last, state) = self.last(&guard);
            let (high, right) = (Some(next.low()), RightSibling::to(&next));
            publish(last, state, LeafState { high, right, ..state.clone() }, &guard);
            core.tree.index.change(None, vec![next.clone()], &guard);
            next
        };
        self.is_empty = false;
        if let Some(at) = leaf.at {
            let stored = Stored::pending(next.appends());
            stored.set(at);
            let state = next.state(&guard);
            publish(&next, state, LeafState { stored: Some(stored), ..state.clone() }, &guard);
        }
        core.eviction.take_up(&core.tree, &next, &guard);
        drop(guard);
        // A leaf that eviction joins with its neighbour is free once nobody has a share of it.
        drop(next);
        // In a store with an SSD, leaves that memory has no room for were not read.
        if core.cold.is_none() {
            core.reclaimer().keep_to_limit();
        }
    }

    /// The last leaf, which has no upper fence yet.
    fn last<'g>(&self, guard: &'g Guard) -> (&'g Leaf, &'g LeafState) {
        let mut leaf = self.core.tree.index.last(guard);
        loop {
            let state = leaf.state(guard);
            match state.right(guard) {
                Some(right) => leaf = right,
                None => return (leaf, state),
            }
        }
    }
}

/// Gives a leaf another state while nobody else changes it.
fn publish(leaf: &Leaf, state: &LeafState, new: LeafState, guard: &Guard) {
    let published = leaf.publish(state, new, guard);
    assert!(published, "nobody else changes the store");
}

/// The work for an entry: its image is read if there is a read under way.
struct Step {
    entry: Entry,
    read: Option<Result<Vec<u8>, SegmentError>>,
    /// The key behind the leaf.
    high: Option<Box<[u8]>>,
}

/// The entries of a manifest in their order; images are read ahead.
struct Steps<'a> {
    loading: &'a Loading<'a>,
    manifest: &'a Manifest,
    entries: EntryReader,
    ahead: VecDeque<Ahead>,
    /// Bytes of the images that are read ahead.
    ahead_bytes: u64,
}

enum Ahead {
    Entry(Entry, Option<Receiver<Result<Vec<u8>, SegmentError>>>),
    Failed(Error),
}

impl<'a> Steps<'a> {
    fn new(loading: &'a Loading<'a>, manifest: &'a Manifest) -> Self {
        let ahead = VecDeque::with_capacity(READ_AHEAD);
        Self { loading, manifest, entries: manifest.entries(), ahead, ahead_bytes: 0 }
    }

    fn next(&mut self) -> Option<Result<Step, Error>> {
        while self.ahead.len() < READ_AHEAD
            && let Some(entry) = self.entries.next()
        {
            let ahead = entry.map_or_else(Ahead::Failed, |entry| self.begin(entry));
            self.ahead.push_back(ahead);
        }
        let (entry, read) = match self.ahead.pop_front()? {
            Ahead::Entry(entry, read) => (entry, read),
            Ahead::Failed(error) => return Some(Err(error)),
        };
        let high = match self.ahead.front() {
            Some(Ahead::Entry(next, _)) => Some(next.low.clone()),
            _ => None,
        };
        if read.is_some() {
            self.ahead_bytes -= u64::from(loaded_place(&entry).bytes);
        }
        let read = read.map(|read| read.recv().expect("every read is answered"));
        Some(Ok(Step { entry, read, high }))
    }

    fn begin(&mut self, entry: Entry) -> Ahead {
        let is_read = match &entry.below {
            _ if entry.image.is_some() => true,
            Some(below) => below.in_memory && self.has_room(below.parts[0].place),
            None => false,
        };
        if !is_read {
            return Ahead::Entry(entry, None);
        }
        let place = loaded_place(&entry);
        self.ahead_bytes += u64::from(place.bytes);
        let (sender, receiver) = sync_channel(1);
        self.loading.files.segments.read_later(place_of(place), move |read| drop(sender.send(read)));
        Ahead::Entry(entry, Some(receiver))
    }

    /// Whether memory has room for an image, beside what is to come.
    fn has_room(&self, place: Extent) -> bool {
        let core = self.loading.core;
        let index_bytes = INDEX_FACTOR * self.manifest.bytes_behind(&self.entries);
        core.cold.is_none()
            || core.room().has_memory_for(2 * self.ahead_bytes + u64::from(place.bytes) + index_bytes)
    }
}
