//! Merging landings over a body: the records that a leaf holds, in key order, the newest record of each key.

use std::cmp::Ordering;
use std::ops::Range;

use crate::body::{Body, Edit, Entry, EntryKey};
use crate::commits::Commits;
use crate::large::REFERENCE_BYTES;
use crate::leaf::LeafState;
use crate::numbers::array;
use crate::pending::{Newest, Pending, newest};
use crate::record::Kind;
use crate::retention::{KeepsAll, Retention};

/// Records of a body whose fingerprints a merge compares for each record of a landing. A body with more is an overlay,
/// which may have 65,535: a binary search looks at fewer of these.
const SCANNED_RECORDS_MAX: usize = 512;

/// The records that a leaf has once its landings are merged over its body: the changes to the body.
///
/// A leaf on SSD keeps a tombstone of each record that ends, because the record that it shadowed lies below.
pub struct Merged<'a> {
    /// The leaf as it is.
    pub state: &'a LeafState,
    /// The changes, in key order.
    pub(crate) edits: Vec<Edit<'a>>,
    /// References to large values in landings that no reader of the merged leaf can reach.
    shadowed: Vec<&'a [u8]>,
    /// Records of the body that a retention drops.
    pub dropped: u64,
}

impl<'a> Merged<'a> {
    /// Records from now on, with tombstones.
    pub(crate) fn len(&self) -> usize {
        let came = self.edits.iter().filter(|edit| edit.entry.is_some()).count();
        self.state.body.len() + came - self.edits.iter().filter(|edit| edit.replaces).count()
    }

    /// The records from now on, in key order, each with its place in the body if its value lies there.
    pub fn records(&self) -> impl Iterator<Item = (Entry<'a>, Option<usize>)> {
        let body = &self.state.body;
        let stay = |places: Range<usize>| places.map(|place| (body.entry(place), Some(place)));
        let mut from = 0;
        let rest = self.edits.last().map_or(0, Edit::end)..body.len();
        let changed = self.edits.iter().flat_map(move |edit| {
            let before = std::mem::replace(&mut from, edit.end())..edit.place;
            stay(before).chain(edit.entry.map(|entry| match entry.kind {
                Kind::Touch => (touched(body, edit.place, &entry), Some(edit.place)),
                _ => (entry, None),
            }))
        });
        changed.chain(stay(rest))
    }

    /// The records that come from landings.
    pub fn fresh(&self) -> impl Iterator<Item = &Entry<'a>> {
        let entries = self.edits.iter().filter_map(|edit| edit.entry.as_ref());
        entries.filter(|entry| !matches!(entry.kind, Kind::Tombstone | Kind::Touch))
    }

    /// The records of the body that are replaced, deleted, expired or dropped, and their places.
    pub fn gone(&self) -> impl Iterator<Item = (usize, Entry<'a>)> {
        let edits = self.edits.iter().filter(|edit| edit.replaces && !edit.touches());
        let records = edits.map(|edit| (edit.place, self.state.body.entry(edit.place)));
        records.filter(|(_, entry)| entry.kind != Kind::Tombstone)
    }

    /// References to large values that no reader of the merged leaf can reach.
    pub fn released(&self) -> impl Iterator<Item = &'a [u8]> {
        let gone = self.gone().filter(|(_, entry)| entry.kind == Kind::Large);
        self.shadowed.iter().copied().chain(gone.map(|(_, entry)| entry.payload))
    }
}

/// The record of `body` at `place` with the expiry of `touch`.
fn touched<'a>(body: &'a Body, place: usize, touch: &Entry<'_>) -> Entry<'a> {
    let mut entry = body.entry(place);
    entry.fields.expires_at_ms = touch.fields.expires_at_ms;
    entry
}

/// Merges all landings of a leaf over its body, without the records that expire by `now_ms`.
pub fn merge_all<'a>(state: &'a LeafState, commits: &Commits, now_ms: u64) -> Merged<'a> {
    merge(state, Newest { expired_by_ms: now_ms, ..newest(state.landings(), commits) }, &mut KeepsAll)
}

/// Merges what landings of a leaf say over its body, without the records that `retention` drops. A change of the expiry
/// of a record that is not there is skipped.
pub fn merge<'a>(state: &'a LeafState, newest: Newest<'a>, retention: &mut dyn Retention) -> Merged<'a> {
    let body = &state.body;
    let Newest { pending, shadowed, expired_by_ms } = newest;
    let merged = Merged { state, edits: Vec::with_capacity(pending.len()), shadowed, dropped: 0 };
    let expires = body.earliest_expiry_ms().is_some_and(|at| at <= expired_by_ms);
    let mut merging = Merging { merged, expired_by_ms, expires, asks: retention.decides(), retention };
    let scans = body.len() <= SCANNED_RECORDS_MAX;
    let mut from = 0;
    for record in &pending {
        // Most writes replace: the fingerprints find that record without a search through the body.
        let scanned = if scans { body.find_by(record.fingerprint, record.key) } else { None };
        let (place, is_there) = match scanned {
            Some(place) => (place, true),
            None => body.seek_from(from, record.key),
        };
        merging.keep(from..place);
        from = place + usize::from(is_there);
        merging.write(record, place, is_there);
    }
    merging.keep(from..body.len());
    merging.merged
}

/// A merge under way.
struct Merging<'a, 'r> {
    merged: Merged<'a>,
    expired_by_ms: u64,
    /// Whether a record of the body has expired.
    expires: bool,
    /// Whether the retention decides.
    asks: bool,
    retention: &'r mut dyn Retention,
}

impl<'a> Merging<'a, '_> {
    /// The records of the body at `places` stay, unless they have expired or the retention drops them.
    fn keep(&mut self, places: Range<usize>) {
        if !self.expires && !self.asks {
            return;
        }
        let body = &self.merged.state.body;
        for place in places {
            if self.expires && body.record(place).fields.has_expired(self.expired_by_ms) {
                self.end(place, true, body.entry(place));
            } else if self.asks && !self.retention.keeps(body, place) {
                self.merged.dropped += 1;
                self.end(place, true, body.entry(place));
            }
        }
    }

    /// A landing writes `record` in front of the body's record at `place`, or over that one if it `replaces` it.
    fn write(&mut self, record: &Pending<'a>, place: usize, replaces: bool) {
        let entry = record.entry();
        let expires = entry.fields.has_expired(self.expired_by_ms);
        let is_there = || self.merged.state.body.record(place).tag.kind() != Kind::Tombstone;
        if record.kind == Kind::Touch && !(replaces && is_there()) {
            return;
        }
        if expires && record.kind == Kind::Large {
            self.merged.shadowed.push(record.value);
        }
        if expires || record.kind == Kind::Tombstone {
            return self.end(place, replaces, entry);
        }
        if self.asks {
            self.retention.writes(record, replaces.then_some(place));
        }
        self.merged.edits.push(Edit { place, replaces, entry: Some(entry) });
    }

    /// The key of `entry` has no record from now on.
    fn end(&mut self, place: usize, replaces: bool, entry: Entry<'a>) {
        let entry = self.merged.state.below.is_some().then(|| entry.tombstone());
        if replaces || entry.is_some() {
            self.merged.edits.push(Edit { place, replaces, entry });
        }
    }
}

/// Order of a two-part key against a whole one.
pub fn compare(key: EntryKey<'_>, other: &[u8]) -> Ordering {
    let shared = key.head.len().min(other.len());
    key.head[..shared].cmp(&other[..shared]).then_with(|| {
        if key.head.len() > shared { Ordering::Greater } else { key.tail.cmp(&other[shared..]) }
    })
}

/// Every reference to a large value that a state's records own, shadowed or not.
pub fn large_references(state: &LeafState) -> Vec<[u8; REFERENCE_BYTES]> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crossbeam_epoch::Guard;

    use super::*;
    use crate::body::{Builder, STEPS, fingerprint};
    use crate::leaf::{Leaf, RightSibling};
    use crate::marks::Mark;
    use crate::record::{Fields, key_hash};

    const NOW_MS: u64 = 10;

    /// A model's knowledge of a key: the kind, the expiry and the payload.
    type Known = (Kind, Option<u64>, [u8; REFERENCE_BYTES]);

    /// Records of some of twenty keys; their payloads begin with `origin`.
    fn known(random: &mut fastrand::Rng, kinds: &[Kind], origin: u8) -> BTreeMap<[u8; 2], Known> {
        let count = random.usize(..20);
        let mut record = || {
            let key = [b'k', random.u8(..20)];
            let kind = kinds[random.usize(..kinds.len())];
            let expires_at_ms = [None, Some(NOW_MS), Some(NOW_MS + 1)][random.usize(..3)];
            (
                key,
                (kind, expires_at_ms.filter(|_| kind != Kind::Tombstone), [origin, key[1], 0, 0, 0, 0, 0, 0]),
            )
        };
        (0..count).map(|_| record()).collect()
    }

    fn pending<'a>(key: &'a [u8; 2], (kind, expires_at_ms, payload): &'a Known) -> Pending<'a> {
        let value = if matches!(kind, Kind::Raw | Kind::Large) { payload.as_slice() } else { &[] };
        let fields = Fields { expires_at_ms: *expires_at_ms, ..Fields::default() };
        Pending { key, fingerprint: fingerprint(key_hash(key)), kind: *kind, fields, value }
    }

    fn lives(known: &Known) -> bool {
        known.1.is_none_or(|at| at > NOW_MS)
    }

    /// Drops every fifth key, and notes the keys that stay and come.
    #[derive(Default)]
    struct FifthsGo(Vec<Vec<u8>>);

    impl Retention for FifthsGo {
        fn decides(&self) -> bool {
            true
        }

        fn begin(&mut self) {
            self.0.clear();
        }

        fn begin_leaf(&mut self, _: &Leaf, _: &Body, _: u64, _: &Guard) {}

        fn keeps(&mut self, body: &Body, place: usize) -> bool {
            let entry = body.entry(place);
            assert!(!entry.fields.has_expired(NOW_MS), "nobody decides on what has expired");
            let key = entry.key.to_vec();
            let stays = !key[1].is_multiple_of(5);
            self.0.extend(stays.then_some(key));
            stays
        }

        fn writes(&mut self, record: &Pending<'_>, _: Option<usize>) {
            self.0.push(record.key.to_vec());
        }

        fn commit(&mut self) -> Vec<Mark> {
            Vec::new()
        }
    }

    /// The record of the key after a merge, and the one of the two that goes for it.
    fn merged(
        below: Option<&Known>,
        above: Option<&Known>,
        is_dropped: bool,
    ) -> (Option<Known>, [Option<Known>; 2]) {
        match (below.copied(), above.copied()) {
            (None, None | Some((Kind::Touch, ..))) => (None, [None; 2]),
            (Some(below), None) if lives(&below) && !is_dropped => (Some(below), [None; 2]),
            (Some((kind, _, payload)), Some(touch @ (Kind::Touch, at, _))) if lives(&touch) => {
                (Some((kind, at, payload)), [None; 2])
            }
            (below, Some(above @ (Kind::Raw | Kind::Large, ..))) if lives(&above) => {
                (Some(above), [below, None])
            }
            (below, above) => (None, [below, above]),
        }
    }

    #[test]
    fn a_merge_tells_what_every_key_has_and_what_goes_for_it() {
        let mut random = fastrand::Rng::with_seed(11);
        let kinds = [Kind::Raw, Kind::Large, Kind::Tombstone, Kind::Touch];
        for round in 0..if cfg!(miri) { 20 } else { 5_000 } {
            let mut retention = (round % 2 == 0).then(FifthsGo::default);
            let (below, above) = (known(&mut random, &kinds[..2], b'b'), known(&mut random, &kinds, b'a'));
            let entries: Vec<_> = below.iter().map(|(key, known)| pending(key, known).entry()).collect();
            let body = Builder::default().build(&entries, None);
            let state = LeafState::new(body, None, RightSibling::none());
            let pending = above.iter().map(|(key, known)| pending(key, known)).collect();
            let newest = Newest { pending, expired_by_ms: NOW_MS, ..Newest::default() };
            let retained: &mut dyn Retention = match &mut retention {
                Some(retention) => retention,
                None => &mut KeepsAll,
            };
            let found = merge(&state, newest, retained);

            let (mut has, mut released, mut gone, mut dropped) = (Vec::new(), Vec::new(), 0, 0);
            for key in (0..20).map(|n| [b'k', n]) {
                let (below, above) = (below.get(&key), above.get(&key));
                // A change of the expiry is a write, too.
                let is_dropped = retention.is_some() && key[1].is_multiple_of(5) && above.is_none();
                dropped += u64::from(is_dropped && below.is_some_and(lives));
                let (record, [replaced, ended]) = merged(below, above, is_dropped);
                has.extend(record.map(|record| (key.to_vec(), record)));
                gone += usize::from(replaced.is_some());
                let larges = [replaced, ended].into_iter().flatten().filter(|known| known.0 == Kind::Large);
                released.extend(larges.map(|(.., payload)| payload));
            }
            let told = found.records().map(|(entry, place)| {
                assert_eq!(place.is_some(), entry.payload[0] == b'b');
                let payload = array(entry.payload);
                (entry.key.to_vec(), (entry.kind, entry.fields.expires_at_ms, payload))
            });
            assert_eq!(told.collect::<Vec<_>>(), has);
            assert_eq!((found.len(), found.gone().count(), found.dropped), (has.len(), gone, dropped));
            if let Some(FifthsGo(told)) = retention {
                assert!(
                    told.iter().eq(has.iter().map(|(key, _)| key)),
                    "marks have the order of the records"
                );
            }
            let fresh = has.iter().filter(|(_, (.., payload))| payload[0] == b'a').count();
            assert_eq!(found.fresh().count(), fresh);
            let mut told: Vec<[u8; REFERENCE_BYTES]> = found.released().map(array).collect();
            told.sort_unstable();
            released.sort_unstable();
            assert_eq!(told, released);
        }
    }

    /// Each record of a landing had all fingerprints of an overlay compared, which may be tens of thousands.
    #[test]
    fn a_merge_over_a_long_overlay_takes_few_steps_for_each_record() {
        let records: u32 = if cfg!(miri) { 600 } else { 4_000 };
        let keys: Vec<[u8; 4]> = (0..2 * records).map(u32::to_be_bytes).collect();
        let put = |key| Pending {
            key,
            fingerprint: fingerprint(key_hash(key)),
            kind: Kind::Raw,
            fields: Fields::default(),
            value: b"value",
        };
        let landed: Vec<_> = keys.iter().map(|key| put(key.as_slice())).collect();
        let entries: Vec<_> = landed.iter().step_by(2).map(Pending::entry).collect();
        let body = Builder::default().build(&entries, None);
        let state = LeafState::new(body, None, RightSibling::none());
        let newest = Newest { pending: landed, ..Newest::default() };
        let before = STEPS.get();
        let found = merge(&state, newest, &mut KeepsAll);
        let steps = STEPS.get() - before;
        assert!(steps < 20 * keys.len() as u64, "{steps} steps for {} records", keys.len());
        assert_eq!((found.len(), found.gone().count()), (keys.len(), records as usize));
        assert!(found.records().map(|(entry, _)| entry.key.to_vec()).eq(keys.iter().map(|key| key.to_vec())));
    }
}
