//! Merging landings over a body: the records that a leaf holds, in key order, the newest record of each key.

use std::cmp::Ordering;

use crate::batch::Commits;
use crate::body::{Body, Entry, EntryKey, fingerprint};
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

impl Pending<'_> {
    /// Bytes of key and value as the user sees them.
    pub(crate) fn logical_bytes(&self) -> u64 {
        let value_bytes = match self.kind {
            // SAFETY: the record of a readable landing owns its reference.
            Kind::Large => unsafe { LargeHandle::borrow(self.value) }.len(),
            _ => self.value.len() as u64,
        };
        self.key.len() as u64 + value_bytes
    }
}

impl<'a> Pending<'a> {
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
    /// A pack drops records that expire by this time.
    pub(crate) expired_by_ms: u64,
}

impl Newest<'_> {
    /// Whether any of these, or a record of `body`, expires by `now_ms`.
    pub(crate) fn expires(&self, body: &Body, now_ms: u64) -> bool {
        let mut expiries = self.pending.iter().map(|record| record.fields.expires_at_ms);
        let is_over = |at: Option<u64>| at.is_some_and(|at| at <= now_ms);
        is_over(body.earliest_expiry_ms()) || expiries.any(is_over)
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

/// One record of the merged leaf, or one that the merge drops.
pub(crate) enum Merged<'a> {
    /// Taken from the body, its expiry perhaps changed.
    Kept(usize, Entry<'a>),
    /// Taken from a landing.
    Fresh(Entry<'a>, Mark),
    /// A record of the body that a landing replaces or deletes, or that has expired.
    Dropped(usize),
    /// A record of a landing that has expired.
    Expired(&'a Pending<'a>),
}

/// Walks `body` and `pending` together in key order.
pub(crate) fn merge<'a>(
    body: &'a Body,
    pending: &'a [Pending<'a>],
    now_ms: u64,
    mut visit: impl FnMut(Merged<'a>),
) {
    let expired = |fields: &Fields| fields.expires_at_ms.is_some_and(|at| at <= now_ms);
    let prefix = body.prefix();
    let keep = |index: usize, visit: &mut dyn FnMut(Merged<'a>), expires_at_ms: Option<Option<u64>>| {
        let record = body.record(index);
        let mut fields = record.fields;
        if let Some(changed) = expires_at_ms {
            fields.expires_at_ms = changed;
        }
        visit(if expired(&fields) {
            Merged::Dropped(index)
        } else {
            Merged::Kept(
                index,
                Entry {
                    key: EntryKey { head: prefix, tail: record.suffix },
                    fingerprint: body.fingerprint(index),
                    kind: record.tag.kind(),
                    fields,
                    payload: record.payload,
                },
            )
        });
    };
    let mut at = 0;
    for newest in pending {
        let (place, present) = body.seek_from(at, newest.key);
        (at..place).for_each(|index| keep(index, &mut visit, None));
        at = place + usize::from(present);
        match (newest.kind, present) {
            (Kind::Touch, true) => keep(place, &mut visit, Some(newest.fields.expires_at_ms)),
            (Kind::Touch, false) | (Kind::Tombstone, false) => {}
            (Kind::Tombstone, true) => visit(Merged::Dropped(place)),
            _ => {
                if present {
                    visit(Merged::Dropped(place));
                }
                if expired(&newest.fields) {
                    visit(Merged::Expired(newest));
                } else {
                    visit(Merged::Fresh(
                        Entry {
                            key: EntryKey::whole(newest.key),
                            fingerprint: newest.fingerprint,
                            kind: newest.kind,
                            fields: newest.fields,
                            payload: newest.value,
                        },
                        newest.mark,
                    ));
                }
            }
        }
    }
    (at..body.len()).for_each(|index| keep(index, &mut visit, None));
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
