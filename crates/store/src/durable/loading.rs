//! From the images of a checkpoint to leaves, in key order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use crossbeam_epoch::{Guard, pin};
use ziptier_media::segments::{Place, SegmentError, Segments};

use super::image::{LeafImage, Stored, StoredAt, StoredLarge};
use super::manifest::{Entry, Manifest};
use super::operation::Operation;
use crate::Error;
use crate::body::{Body, Builder, Entry as BodyEntry, EntryKey, Referents};
use crate::coding::Coding;
use crate::core::{Copied, Core, copy_found};
use crate::landing::{Landing, RecordBytes};
use crate::large::{Large, LargePieces};
use crate::leaf::{Leaf, LeafState, RightSibling};
use crate::merge::{Pending, compare};
use crate::range::WholeRecord;
use crate::record::{Kind, Payload, array};

/// Images that are read ahead.
const READ_AHEAD: usize = 128;

/// Fills an empty store with the images of a manifest.
pub(crate) struct Loading<'a> {
    pub(crate) core: &'a Core,
    pub(crate) segments: &'a Segments,
    pub(crate) codings: &'a BTreeMap<u32, Coding>,
    /// Those that this store does not pack with.
    pub(crate) foreign: &'a BTreeSet<u32>,
    /// What is damaged is noted and left out.
    pub(crate) salvage: bool,
}

/// What a loading found.
#[derive(Default)]
pub(crate) struct Loaded {
    /// Where images and large values lie, each once.
    pub(crate) places: BTreeSet<Place>,
    pub(crate) images: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: Vec<String>,
}

/// A leaf as its image says.
pub(crate) struct LoadedLeaf {
    pub(crate) state: LeafState,
    pub(crate) logical_bytes: u64,
    pub(crate) at: StoredAt,
}

/// Large values by where they begin, as long as there are any: records of several leaves may share one.
pub(crate) type LoadedLarges = HashMap<Place, Weak<Large>>;

impl Loading<'_> {
    /// Loads every image. Background threads must keep off until this returns; `progress` is told the bytes that were read.
    pub(crate) fn run(&self, manifest: &Manifest, mut progress: impl FnMut(u64)) -> Result<Loaded, Error> {
        let mut loaded = Loaded::default();
        let mut larges = LoadedLarges::new();
        let mut chain = Chain { core: self.core, is_empty: true };
        // Leaves that had other bounds when the walk of the checkpoint came by: their records are put one by one.
        let mut cut: Vec<(LeafState, usize)> = Vec::new();
        let mut reads = ReadAhead::new(self.segments, &manifest.entries);
        for (index, entry) in manifest.entries.iter().enumerate() {
            let read = reads.next().expect("there is a read for every entry");
            let leaf = read.map_err(Error::from).and_then(|bytes| {
                load_leaf(self.core, self.segments, self.codings, entry, &bytes, &mut larges)
            });
            let leaf = match leaf {
                Ok(leaf) => self.adapted(leaf),
                Err(error) if self.salvage => {
                    let low = String::from_utf8_lossy(&entry.low).into_owned();
                    loaded.skipped.push(format!("the leaf from key '{low}' on: {error}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            loaded.images += 1;
            loaded.bytes += u64::from(entry.place.bytes);
            loaded.places.extend(leaf.at.places());
            progress(loaded.bytes);
            let high = manifest.entries.get(index + 1).map(|next| &*next.low);
            if is_within(&leaf.state, &entry.low, high) {
                chain.push(&entry.low, leaf);
            } else {
                cut.push((leaf.state, index));
            }
        }
        for (state, index) in cut {
            let low = &manifest.entries[index].low;
            let high = manifest.entries.get(index + 1).map(|next| &*next.low);
            self.put_all(state, low, high)?;
        }
        Ok(loaded)
    }

    /// The leaf with raw values if it is coded as this store's leaves never are.
    fn adapted(&self, mut leaf: LoadedLeaf) -> LoadedLeaf {
        let state = &mut leaf.state;
        if let Some(coding) = &state.coding
            && self.foreign.contains(&coding.generation())
        {
            state.body = with_raw_values(&state.body, coding);
            state.coding = None;
            state.loose = 0;
        }
        leaf
    }

    /// Puts the records of a state that lie from `low` on and below `high`.
    fn put_all(&self, state: LeafState, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        let to = high.map_or(Bound::Unbounded, |high| Bound::Excluded(high.to_vec()));
        let leaf = Leaf::new(low.into(), state, self.core.gauges.clone());
        let guard = pin();
        let records = self.core.records(leaf.state(&guard), &Bound::Included(low.to_vec()), &to, &guard);
        drop(guard);
        let put = |record: Result<WholeRecord, Error>| {
            let (key, value, meta) = record?;
            self.core.redo(&Operation::Put {
                key: &key,
                value: &value,
                expires_at_ms: meta.expires_at_ms,
                flags: meta.flags,
            })
        };
        let done = records.into_iter().try_for_each(put);
        let guard = pin();
        for reference in crate::merge::large_references(leaf.state(&guard)) {
            self.core.release_large(reference, &guard);
        }
        done
    }
}

/// The same records with raw values; what is damaged is lost, and says so.
fn with_raw_values(body: &Body, coding: &Coding) -> Body {
    let mut raw = Vec::new();
    let mut values: Vec<(Kind, Option<Range<usize>>)> = Vec::with_capacity(body.len());
    for index in 0..body.len() {
        let found = body.found(index, Some(coding));
        let start = raw.len();
        values.push(match found.payload {
            Payload::Coded(..) | Payload::Packed(_) => match copy_found(found, &mut raw) {
                Copied::Inline(_) => (Kind::Raw, Some(start..raw.len())),
                _ => (Kind::Lost, Some(start..start)),
            },
            _ => (body.record(index).tag.kind(), None),
        });
    }
    let entries = values.iter().enumerate().map(|(index, (kind, value))| {
        let record = body.record(index);
        let key = EntryKey { head: body.prefix(), tail: record.suffix };
        let payload = value.clone().map_or(record.payload, |value| &raw[value]);
        BodyEntry { key, fingerprint: body.fingerprint(index), kind: *kind, fields: record.fields, payload }
    });
    Builder::default().build(&entries.collect::<Vec<_>>())
}

/// Whether all that a leaf says is of keys from `low` on and below `high`.
fn is_within(state: &LeafState, low: &[u8], high: Option<&[u8]>) -> bool {
    let within =
        |key: EntryKey<'_>| compare(key, low).is_ge() && high.is_none_or(|high| compare(key, high).is_lt());
    let body = &state.body;
    let ends = [0, body.len().saturating_sub(1)];
    let settled = body.is_empty()
        || ends
            .iter()
            .all(|index| within(EntryKey { head: body.prefix(), tail: body.record(*index).suffix }));
    let landed = |landing: &Landing| {
        (0..landing.len()).all(|index| within(EntryKey::whole(landing.record(index).key)))
    };
    settled && state.landings().all(landed)
}

/// Reads an image, whose bytes may be any, and the large values that it refers to.
pub(crate) fn load_leaf(
    core: &Core,
    segments: &Segments,
    codings: &BTreeMap<u32, Coding>,
    entry: &Entry,
    bytes: &[u8],
    larges: &mut LoadedLarges,
) -> Result<LoadedLeaf, Error> {
    let damaged = |reason: String| {
        let path = segments.path_of(entry.place.segment);
        Error::FileDamaged { path, offset: u64::from(entry.place.offset), reason }
    };
    let image = LeafImage::read(bytes).map_err(damaged)?;
    let coding = |number: u32| {
        let known = codings.get(&number).cloned();
        known.ok_or_else(|| damaged(format!("an image needs generation {number}, which is not there")))
    };
    let own = image.generation.map(coding).transpose()?;
    let landing = image.landing().map_err(|reason| damaged(reason.to_owned()))?;
    let referents = Referents {
        tokens: own.as_ref().is_some_and(|own| own.tokens().is_some()),
        blocks: own.as_ref().is_some_and(|own| own.blocks().is_some()),
        larges: image.larges.len(),
    };
    let body = match image.body {
        [] => Body::empty(),
        bytes => Body::from_untrusted(bytes, referents).map_err(|reason| damaged(reason.to_owned()))?,
    };
    let mut values = Vec::with_capacity(image.larges.len());
    for stored in &image.larges {
        let coding = stored.generation.map(coding).transpose()?;
        values.push(load_large(core, segments, stored, coding, larges)?);
    }
    // Nothing fails from here on: references are owned.
    let reference = |number: usize| Arc::clone(&values[number]).into_reference();
    let mut state = LeafState::new(body.owning(reference), None, RightSibling::none());
    state.coding = own;
    state.loose = image.loose.min(state.body.len() as u16);
    state.heated = image.heated;
    state.open = landing_of(&landing, core.landing_bytes, reference);
    let at = StoredAt::new(entry.place, image.generation, image.larges);
    Ok(LoadedLeaf { state, logical_bytes: image.logical_bytes, at })
}

fn load_large(
    core: &Core,
    segments: &Segments,
    stored: &StoredLarge,
    coding: Option<Coding>,
    larges: &mut LoadedLarges,
) -> Result<Arc<Large>, Error> {
    let first = *stored.pieces.first().expect("a large value has a piece");
    let known = larges.get(&first).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| known.len() == stored.len) {
        return Ok(known);
    }
    let mut pieces = LargePieces::new(stored.len, coding, core.chunk_place(stored.len as usize));
    let damaged = |place: Place, reason: &str| Error::FileDamaged {
        path: segments.path_of(place.segment),
        offset: u64::from(place.offset),
        reason: reason.to_owned(),
    };
    for place in stored.pieces.iter() {
        pieces.push(&segments.read(*place)?).map_err(|reason| damaged(*place, reason))?;
    }
    let large =
        pieces.finish(stored.pieces.clone(), &core.gauges).map_err(|reason| damaged(first, reason))?;
    let large = Arc::new(large);
    larges.insert(first, Arc::downgrade(&large));
    Ok(large)
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
            owned = reference(u64::from_le_bytes(array(record.value)) as usize);
            &owned[..]
        } else {
            record.value
        };
        let mut bytes = RecordBytes::default();
        bytes.lay_out(record.kind, &record.fields, record.key, value);
        laid_out.push((bytes, crate::record::key_hash(record.key)));
    }
    let needed: usize = laid_out.iter().map(|(record, _)| record.landing_bytes()).sum();
    let landing = Landing::new(bytes.max(needed));
    for (record, hash) in &laid_out {
        let fits = landing.append(record, *hash);
        assert!(fits, "the landing was made large enough");
    }
    (!laid_out.is_empty()).then(|| Arc::new(landing))
}

/// Leaves on their way into the index, from left to right. Nobody else changes the store meanwhile.
struct Chain<'a> {
    core: &'a Core,
    /// There is only the leaf of an empty store, which owns every key.
    is_empty: bool,
}

impl Chain<'_> {
    fn push(&mut self, low: &[u8], leaf: LoadedLeaf) {
        let guard = pin();
        let core = self.core;
        core.gauges.records.change(leaf.state.body.len() as i64);
        core.gauges.logical.change(leaf.logical_bytes as i64);
        let next = if self.is_empty {
            let (first, empty) = core.locate(&[], &guard);
            publish(first, empty, leaf.state, &guard);
            first.share(&guard)
        } else {
            let next = Leaf::new(low.into(), leaf.state, core.gauges.clone());
            let (last, state) = self.last(&guard);
            let high = Some(next.low());
            publish(last, state, LeafState { high, right: RightSibling::to(&next), ..state.clone() }, &guard);
            core.index.change(None, vec![next.clone()], &guard);
            next
        };
        self.is_empty = false;
        let state = next.state(&guard);
        let stored = Stored::pending(next.appends());
        stored.set(leaf.at);
        publish(&next, state, LeafState { stored: Some(stored), ..state.clone() }, &guard);
        core.take_up(&next, &guard);
        guard.flush();
        drop(guard);
        core.evict_all();
    }

    /// The last leaf, which has no upper fence yet.
    fn last<'g>(&self, guard: &'g Guard) -> (&'g Leaf, &'g LeafState) {
        let mut leaf = self.core.index.last(guard);
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

/// Reads the images of entries in their order, many at once.
struct ReadAhead<'a> {
    segments: &'a Segments,
    left: &'a [Entry],
    under_way: VecDeque<Receiver<Result<Vec<u8>, SegmentError>>>,
}

impl<'a> ReadAhead<'a> {
    fn new(segments: &'a Segments, entries: &'a [Entry]) -> Self {
        Self { segments, left: entries, under_way: VecDeque::with_capacity(READ_AHEAD) }
    }

    fn next(&mut self) -> Option<Result<Vec<u8>, SegmentError>> {
        while self.under_way.len() < READ_AHEAD
            && let Some((entry, left)) = self.left.split_first()
        {
            self.left = left;
            let (sender, receiver) = sync_channel(1);
            self.segments.read_later(entry.place, move |read| drop(sender.send(read)));
            self.under_way.push_back(receiver);
        }
        Some(self.under_way.pop_front()?.recv().expect("every read is answered"))
    }
}
