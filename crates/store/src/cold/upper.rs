//! Packing a landing into the overlay (the *upper* body) of a cold leaf.
//!
//! 1. The pack merges landing and overlay as in any leaf, but reads no image.
//! 2. A record that ends, deleted or expired, leaves a tombstone, because the record that it shadowed lies below.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use ziptier_codec::token::Effort;

use super::Below;
use crate::body::{Body, Entry, EntryKey};
use crate::coding::Coding;
use crate::core::Core;
use crate::leaf::{Leaf, LeafState};
use crate::merge::{Newest, Pending, newest};
use crate::packing::{Pieces, Scratch, raw_len};
use crate::record::{Fields, Kind, array};

/// While memory is short, the overlay is merged with its images when it is larger than one part in so many of them. A
/// merge then writes about so many times the bytes that it frees.
const PAYING_SHARE: u64 = 4;
/// It may have so many bytes in any case.
const GROWN_BYTES_MIN: u64 = 4096;

/// References to large values that leaves have together when they are joined. They are never merged: a leaf that has
/// twice as many is cut.
const LARGES_MAX: usize = 256;

/// Whether the overlay is large enough for a merge; a `factor` asks for so many times less.
pub(crate) fn pays(state: &LeafState, factor: u64) -> bool {
    let upper = merging_bytes(state);
    state.below.as_ref().is_some_and(|below| upper > below.ssd_bytes() / (PAYING_SHARE * factor))
}

/// Whether the overlay has outgrown the images.
pub(super) fn has_grown(state: &LeafState) -> bool {
    let upper = merging_bytes(state);
    let outgrows = |below: &Arc<Below>| upper > below.ssd_bytes().max(GROWN_BYTES_MIN);
    state.below.as_ref().is_some_and(outgrows) || is_crowded(state)
}

/// Whether a cold leaf has so many references to large values that it is to be cut, which takes its images.
pub(super) fn is_crowded(state: &LeafState) -> bool {
    state.below.is_some() && state.body.larges().count() > 2 * LARGES_MAX
}

/// Whether two leaves together have few references to large values.
pub(super) fn are_sparse(states: [&LeafState; 2]) -> bool {
    states.iter().map(|state| state.body.larges().count()).sum::<usize>() <= LARGES_MAX
}

/// About the bytes of the overlay that a merge takes down: references to large values stay.
fn merging_bytes(state: &LeafState) -> u64 {
    let (records, larges) = (state.body.len(), state.body.larges().count());
    (state.body.asked_bytes() * (records - larges) / records.max(1)) as u64
}

/// The overlay merged with landings: no key twice, in key order.
struct Merging<'a> {
    entries: Vec<Entry<'a>>,
    /// Indices of entries whose value is not coded yet.
    fresh: Vec<usize>,
    pieces: Pieces,
}

impl Core {
    /// Packs the sealed landing of a cold leaf, which the caller owns.
    pub(crate) fn pack_upper(&self, leaf: &Leaf, guard: &Guard, scratch: &mut Scratch) {
        let state = leaf.state(guard);
        let mut newest = newest(state.sealed.as_deref().into_iter(), &self.commits);
        newest.expired_by_ms = self.expired_by_ms(leaf, state, &newest, guard);
        let mut pieces = self.plan_upper(state, &newest, scratch);
        self.keep_place(&[state], &mut pieces);
        self.publish_one(leaf, state, pieces, guard);
        let cold = self.cold.as_ref().expect("a cold leaf has an SSD");
        if has_grown(leaf.state(guard)) {
            cold.note_grown(leaf, guard);
        }
    }

    /// Packs the sealed landing of a cold leaf, which the caller owns, if there is one.
    pub(super) fn pack_sealed(&self, leaf: &Leaf, guard: &Guard) {
        if leaf.state(guard).sealed.is_some() {
            Self::with_scratch(|scratch| self.pack_upper(leaf, guard, scratch));
        }
    }

    fn plan_upper(&self, state: &LeafState, newest: &Newest<'_>, scratch: &mut Scratch) -> Pieces {
        let coding = match &state.coding {
            Some(own) => Some(own.clone()),
            None => self.dictionaries.current().filter(|current| current.tokens().is_some()),
        };
        let mut merging = Merging { entries: Vec::new(), fresh: Vec::new(), pieces: Pieces::default() };
        merging.walk(&state.body, state.coding.as_ref(), newest);
        let Merging { mut entries, fresh, mut pieces } = merging;
        if let Some(Coding::Tokens(dictionary)) = &coding {
            let values: Vec<&[u8]> = fresh.iter().map(|index| entries[*index].payload).collect();
            scratch.coded.encode(dictionary, &mut scratch.encoder, Effort::Fast, &values);
            for (index, coded) in fresh.iter().zip(scratch.coded.values()) {
                self.code_entry(&mut entries[*index], coded, &mut pieces);
            }
        }
        let body = if entries.is_empty() { Body::empty() } else { scratch.builder.build(&entries) };
        pieces.coding = coding.filter(|_| !body.is_empty());
        pieces.bodies = vec![(Vec::new(), body)];
        pieces
    }
}

impl<'a> Merging<'a> {
    fn walk(&mut self, body: &'a Body, coding: Option<&'a Coding>, newest: &'a Newest<'a>) {
        let now_ms = newest.expired_by_ms;
        let mut at = 0;
        for record in &newest.pending {
            let (place, is_there) = body.seek_from(at, record.key);
            (at..place).for_each(|index| self.keep(body, coding, index, None, now_ms));
            at = place + usize::from(is_there);
            match record.kind {
                Kind::Touch if is_there => {
                    self.keep(body, coding, place, Some(record.fields.expires_at_ms), now_ms);
                }
                // Only a large value is touched in a cold leaf, and that is above.
                Kind::Touch => debug_assert!(false, "a touch lies above what it touches"),
                _ => {
                    if is_there {
                        self.drop_record(body, coding, place);
                    }
                    self.add(record, now_ms);
                }
            }
        }
        (at..body.len()).for_each(|index| self.keep(body, coding, index, None, now_ms));
        self.pieces.released.extend(newest.shadowed.iter().map(|reference| array(reference)));
    }

    /// A record of the body stays, with another expiry if one is given.
    fn keep(
        &mut self,
        body: &'a Body,
        coding: Option<&'a Coding>,
        index: usize,
        expires_at_ms: Option<Option<u64>>,
        now_ms: u64,
    ) {
        let record = body.record(index);
        let mut fields = record.fields;
        if let Some(changed) = expires_at_ms.filter(|_| record.tag.kind() != Kind::Tombstone) {
            fields.expires_at_ms = changed;
        }
        let mut entry = Entry {
            key: EntryKey { head: body.prefix(), tail: record.suffix },
            fingerprint: body.fingerprint(index),
            kind: record.tag.kind(),
            fields,
            payload: record.payload,
        };
        if is_expired(&fields, now_ms) {
            self.drop_record(body, coding, index);
            entry = tombstone(entry.key, entry.fingerprint);
        }
        self.entries.push(entry);
    }

    /// A record of the body goes.
    fn drop_record(&mut self, body: &'a Body, coding: Option<&'a Coding>, index: usize) {
        let record = body.record(index);
        let kind = record.tag.kind();
        if kind == Kind::Tombstone {
            return;
        }
        let dictionary = coding.and_then(Coding::tokens).map(|tokens| &**tokens);
        let key_bytes = body.prefix().len() + record.suffix.len();
        self.pieces.records -= 1;
        self.pieces.logical_bytes -= (key_bytes as u64 + raw_len(kind, record.payload, dictionary)) as i64;
        if kind == Kind::Large {
            self.pieces.released.push(array(record.payload));
        }
    }

    /// A record of a landing comes.
    fn add(&mut self, record: &'a Pending<'a>, now_ms: u64) {
        let key = EntryKey::whole(record.key);
        let expired = is_expired(&record.fields, now_ms);
        if record.kind == Kind::Tombstone || expired {
            if record.kind == Kind::Large {
                self.pieces.released.push(array(record.value));
            }
            self.entries.push(tombstone(key, record.fingerprint));
            return;
        }
        self.pieces.records += 1;
        self.pieces.logical_bytes +=
            (record.key.len() as u64 + raw_len(record.kind, record.value, None)) as i64;
        if record.kind == Kind::Raw {
            self.fresh.push(self.entries.len());
        }
        let Pending { fingerprint, kind, fields, value: payload, .. } = *record;
        self.entries.push(Entry { key, fingerprint, kind, fields, payload });
    }
}

fn is_expired(fields: &Fields, now_ms: u64) -> bool {
    fields.expires_at_ms.is_some_and(|at| at <= now_ms)
}

fn tombstone<'a>(key: EntryKey<'a>, fingerprint: u8) -> Entry<'a> {
    Entry { key, fingerprint, kind: Kind::Tombstone, fields: Fields::default(), payload: &[] }
}
