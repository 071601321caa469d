//! Merging landings over a body: the records that a leaf holds, in key order, the newest record of each key.

use std::cmp::Ordering;

use crate::batch::Commits;
use crate::body::{Body, Entry, EntryKey, fingerprint};
use crate::evict::Weighed;
use crate::landing::Landing;
use crate::large::{LargeHandle, REFERENCE_BYTES};
use crate::leaf::LeafState;
use crate::marks::Mark;
use crate::record::{Fields, Kind, Payload, array};

/// The newest that the landings say of a key.
#[derive(Clone, Copy)]
pub(crate) struct Pending<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) fingerprint: u8,
    pub(crate) kind: Kind,
    pub(crate) fields: Fields,
    pub(crate) value: &'a [u8],
    /// The mark of the record for eviction.
    pub(crate) mark: Mark,
}

impl<'a> Pending<'a> {
    /// A record that says that the key does not exist.
    pub(crate) fn tombstone(key: &'a [u8], fingerprint: u8) -> Self {
        let (kind, fields, mark) = (Kind::Tombstone, Fields::default(), Mark::default());
        Self { key, fingerprint, kind, fields, value: &[], mark }
    }

    /// The record on its way into a body.
    pub(crate) fn entry(&self) -> Entry<'a> {
        Entry {
            key: EntryKey::whole(self.key),
            fingerprint: self.fingerprint,
            kind: self.kind,
            fields: self.fields,
            payload: self.value,
        }
    }

    /// The value, where it lies.
    pub(crate) fn payload(&self) -> Payload<'a> {
        match self.kind {
            // SAFETY: the record of a readable landing owns its reference.
            Kind::Large => Payload::Large(unsafe { LargeHandle::borrow(self.value) }),
            _ => Payload::Raw(self.value),
        }
    }

    /// The same with another expiry.
    pub(crate) fn with_expiry(self, expires_at_ms: Option<u64>) -> Self {
        Self { fields: Fields { expires_at_ms, ..self.fields }, ..self }
    }
}

/// The newest records of landings, in key order, and the large values that their own newer records shadow.
#[derive(Default)]
pub(crate) struct Newest<'a> {
    pub(crate) pending: Vec<Pending<'a>>,
    /// References of records that no reader of the merged leaf can reach.
    pub(crate) shadowed: Vec<&'a [u8]>,
    /// Whether records have marks: eviction was on when the pack began, and it may begin or end meanwhile.
    pub(crate) is_weighed: bool,
    /// The marks of the body's records for eviction.
    pub(crate) marks: Vec<Mark>,
    /// Tombstones among them that are eviction's.
    pub(crate) evicted: u64,
    /// The changes of eviction's memory that come with the marks.
    pub(crate) weighed: Weighed,
    /// A pack drops records that expire by this time.
    pub(crate) expired_by_ms: u64,
}

impl Newest<'_> {
    /// Whether any of these, or a record of `body`, expires by `now_ms`.
    pub(crate) fn expires(&self, body: &Body, now_ms: u64) -> bool {
        body.earliest_expiry_ms().is_some_and(|at| at <= now_ms)
            || self.pending.iter().any(|record| record.fields.has_expired(now_ms))
    }

    /// The mark of the body's record at `place`.
    pub(crate) fn mark(&self, place: usize) -> Mark {
        self.marks.get(place).copied().unwrap_or_default()
    }
}

/// The newest record per key of `landings`, which are given newest first. Records of batches that do not exist are left
/// out, all of a batch or none.
///
/// A batch holds the writer lock of its leaves until it exists. So all records here that do not exist belong to one
/// batch, and no record is newer.
pub(crate) fn newest<'a>(landings: impl Iterator<Item = &'a Landing>, commits: &Commits) -> Newest<'a> {
    let mut absent = None;
    let mut exists = |number| {
        let exists = absent != Some(number) && commits.has(number);
        if !exists {
            absent = Some(number);
        }
        exists
    };
    let mut all: Vec<Pending<'a>> = Vec::new();
    for landing in landings {
        for index in (0..landing.len()).rev() {
            let record = landing.record(index);
            if record.fields.batch.is_none_or(&mut exists) {
                all.push(Pending {
                    key: record.key,
                    fingerprint: fingerprint(landing.hash(index)),
                    kind: record.tag.kind(),
                    fields: Fields { batch: None, ..record.fields },
                    value: record.value,
                    mark: Mark::default(),
                });
            }
        }
    }
    all.sort_by(|a, b| a.key.cmp(b.key)); // stable: newest first within a key
    let mut pending: Vec<Pending<'a>> = Vec::with_capacity(all.len());
    let mut shadowed = Vec::new();
    let mut rest = all.as_slice();
    while let Some(first) = rest.first() {
        let versions = rest.iter().take_while(|record| record.key == first.key).count();
        let (group, behind) = rest.split_at(versions);
        rest = behind;
        // A touch changes the expiry of the newest record that is none.
        let base = group.iter().position(|record| record.kind != Kind::Touch);
        let mut result = base.map_or(group[0], |base| group[base]);
        if base.is_some_and(|base| base > 0) && result.kind != Kind::Tombstone {
            result.fields.expires_at_ms = group[0].fields.expires_at_ms;
        }
        pending.push(result);
        let older = base.map_or(&[][..], |base| &group[base + 1..]);
        shadowed.extend(older.iter().filter(|record| record.kind == Kind::Large).map(|record| record.value));
    }
    Newest { pending, shadowed, ..Newest::default() }
}

/// Where the record of a merged leaf comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The body has the record at this place. A landing may have changed its expiry.
    Body(usize),
    /// A landing has the record, which has this mark for eviction.
    Landing(Mark),
}

/// What a merge makes of one key: the record that the key has from now on, and what goes for it.
pub(crate) struct Merged<'a> {
    /// The record; a tombstone if the key was deleted or has expired.
    pub(crate) entry: Entry<'a>,
    pub(crate) source: Source,
    /// The place of the body's record that goes, because it is replaced, deleted or expired.
    pub(crate) replaced: Option<usize>,
    /// The reference of a large value in a landing whose record has expired.
    pub(crate) released: Option<&'a [u8]>,
}

impl<'a> Merged<'a> {
    /// The record of `body` at `place` stays, unless it has expired.
    fn kept(body: &'a Body, place: usize, expiry: Option<&Pending<'_>>, now_ms: u64) -> Self {
        let mut entry = body.entry(place);
        if let Some(touch) = expiry.filter(|_| entry.kind != Kind::Tombstone) {
            entry.fields.expires_at_ms = touch.fields.expires_at_ms;
        }
        let expires = entry.fields.has_expired(now_ms);
        Self {
            entry: if expires { entry.tombstone() } else { entry },
            source: Source::Body(place),
            replaced: expires.then_some(place),
            released: None,
        }
    }

    /// A record of a landing comes, unless it has expired.
    fn fresh(pending: &Pending<'a>, replaced: Option<usize>, now_ms: u64) -> Self {
        let entry = pending.entry();
        let expires = entry.fields.has_expired(now_ms);
        let ends = expires || entry.kind == Kind::Tombstone;
        Self {
            entry: if ends { entry.tombstone() } else { entry },
            source: Source::Landing(pending.mark),
            replaced,
            released: (expires && entry.kind == Kind::Large).then_some(entry.payload),
        }
    }

    /// Whether the key has a record.
    pub(crate) fn exists(&self) -> bool {
        self.entry.kind != Kind::Tombstone
    }
}

/// Walks `body` and `pending` together in key order. A change of the expiry of a record that is not there is skipped.
pub(crate) fn merge<'a>(
    body: &'a Body,
    pending: &'a [Pending<'a>],
    now_ms: u64,
    mut visit: impl FnMut(Merged<'a>),
) {
    let mut at = 0;
    for newest in pending {
        let (place, is_there) = body.seek_from(at, newest.key);
        (at..place).for_each(|place| visit(Merged::kept(body, place, None, now_ms)));
        at = place + usize::from(is_there);
        match (newest.kind, is_there) {
            (Kind::Touch, true) => visit(Merged::kept(body, place, Some(newest), now_ms)),
            (Kind::Touch, false) => {}
            _ => visit(Merged::fresh(newest, is_there.then_some(place), now_ms)),
        }
    }
    (at..body.len()).for_each(|place| visit(Merged::kept(body, place, None, now_ms)));
}

/// Order of a two-part key against a whole one.
pub(crate) fn compare(key: EntryKey<'_>, other: &[u8]) -> Ordering {
    let shared = key.head.len().min(other.len());
    key.head[..shared].cmp(&other[..shared]).then_with(|| {
        if key.head.len() > shared { Ordering::Greater } else { key.tail.cmp(&other[shared..]) }
    })
}

/// Every reference to a large value that a state's records own, shadowed or not.
pub(crate) fn large_references(state: &LeafState) -> Vec<[u8; REFERENCE_BYTES]> {
    let body = (0..state.body.len()).filter_map(|index| {
        let record = state.body.record(index);
        (record.tag.kind() == Kind::Large).then(|| array(record.payload))
    });
    let landings = state.landings().flat_map(|landing| {
        (0..landing.len()).filter_map(move |index| {
            let record = landing.record(index);
            (record.tag.kind() == Kind::Large).then(|| array(record.value))
        })
    });
    body.chain(landings).collect()
}
