//! The newest record of each key in the landings of a leaf, in key order.
//!
//! Not for what the body says of these keys: `merge` brings the two together.

use crate::body::{Body, Entry, EntryKey, fingerprint};
use crate::commits::Commits;
use crate::landing::Landing;
use crate::large::LargeHandle;
use crate::record::{Fields, Kind, Payload};

/// The newest that the landings say of a key.
#[derive(Clone, Copy)]
pub struct Pending<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The fingerprint of the key.
    pub fingerprint: u8,
    /// The kind of its newest record. [`Kind::Touch`] stands for an expiry whose value lies below the landings.
    pub kind: Kind,
    /// Its expiry and flags.
    pub fields: Fields,
    /// The bytes that the kind asks for: a value, a large value's reference, or nothing.
    pub value: &'a [u8],
}

impl<'a> Pending<'a> {
    /// A record that says that the key does not exist.
    pub fn tombstone(key: &'a [u8], fingerprint: u8) -> Self {
        Self { key, fingerprint, kind: Kind::Tombstone, fields: Fields::default(), value: &[] }
    }

    /// An entry that a merge took from a landing.
    pub fn of(entry: &Entry<'a>) -> Self {
        let Entry { key, fingerprint, kind, fields, payload } = *entry;
        Self { key: key.tail, fingerprint, kind, fields, value: payload }
    }

    /// The record on its way into a body.
    pub fn entry(&self) -> Entry<'a> {
        Entry {
            key: EntryKey::whole(self.key),
            fingerprint: self.fingerprint,
            kind: self.kind,
            fields: self.fields,
            payload: self.value,
        }
    }

    /// The value, where it lies.
    pub fn payload(&self) -> Payload<'a> {
        match self.kind {
            // SAFETY: the record of a readable landing owns its reference.
            Kind::Large => Payload::Large(unsafe { LargeHandle::borrow(self.value) }),
            _ => Payload::Raw(self.value),
        }
    }
}

/// The newest records of landings, in key order, and the large values that their own newer records shadow.
#[derive(Default)]
pub struct Newest<'a> {
    /// One record for each key, in key order.
    pub pending: Vec<Pending<'a>>,
    /// References of records that no reader of the merged leaf can reach.
    pub(crate) shadowed: Vec<&'a [u8]>,
    /// A pack drops records that expire by this time.
    pub expired_by_ms: u64,
}

/// Of records in key order that shadow nothing, one for each key.
impl<'a> From<Vec<Pending<'a>>> for Newest<'a> {
    fn from(pending: Vec<Pending<'a>>) -> Self {
        Self { pending, ..Self::default() }
    }
}

impl Newest<'_> {
    /// Whether any of these, or a record of `body`, expires by `now_ms`.
    pub(crate) fn expires(&self, body: &Body, now_ms: u64) -> bool {
        body.earliest_expiry_ms().is_some_and(|at| at <= now_ms)
            || self.pending.iter().any(|record| record.fields.has_expired(now_ms))
    }
}

/// The newest record per key of `landings`, which are given newest first. Records of batches that do not exist are left
/// out, all of a batch or none.
///
/// A batch holds the writer lock of its leaves until it exists. So all records here that do not exist belong to one
/// batch, and no record is newer.
pub fn newest<'a>(landings: impl Iterator<Item = &'a Landing>, commits: &Commits) -> Newest<'a> {
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
