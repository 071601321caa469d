//! Replays the log, a window of records at a time.
//!
//! 1. Of all records of a key in a window, only the last one counts.
//! 2. The records are sorted by key, so that those of one leaf are appended under one lock and merged by one pack.
//! 3. They are cut into parts, one for each thread. No key is in two parts, so each key's records are done in the log's
//!    order.
//! 4. The next window is read and sorted meanwhile.
//! 5. A record that deletes a range of keys is done alone, between two windows.

use std::iter::Peekable;
use std::ops::Range;
use std::thread;

use parking_lot::Mutex;
use ziptier_media::log::Replay;
use ziptier_tree::clock::is_simulated;
use ziptier_tree::host::Host;
use ziptier_tree::landing::RecordBytes;
use ziptier_tree::leaf::Place;
use ziptier_tree::operation::Operation;
use ziptier_tree::record::{Fields, Kind, PutMeta, key_hash};
use ziptier_tree::sizes::INLINE_BYTES_MAX;
use ziptier_tree::write::NewValue;

use super::redo::Redo;
use crate::Error;
use crate::core::Core;
use crate::durable::{Operations, Recovered, Recovery};

/// Bytes of records that are read before they are done; two windows are in memory at a time.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
const WINDOW_BYTES_SIMULATED: u64 = 4 << 10;
const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// A window has this share of the memory limit at most.
const WINDOW_SHARE: u64 = 16;
/// Bytes of records that a leaf takes before it is packed.
const RUN_BYTES: usize = 256 << 10;
/// They are this share of the memory limit at most, if that is in force.
const RUN_SHARE: u64 = 256;
/// More threads than this wait for the one that reads.
const THREADS_MAX: usize = 8;
/// Changes that are worth a thread.
const CHANGES_MIN: usize = 1024;
/// Records between two calls for progress.
const RECORDS_PER_REPORT: u64 = 4096;

/// Does everything that the log says; `limit_bytes` is what the store may hold.
pub(super) fn replay(
    core: &Core,
    replay: &mut Replay,
    salvage: bool,
    limit_bytes: Option<u64>,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    let window_bytes = limit_bytes.map_or(WINDOW_BYTES_MAX, |bytes| bytes / WINDOW_SHARE);
    // A simulated log is so small that one window would have it.
    let min_bytes = if is_simulated() { WINDOW_BYTES_SIMULATED } else { WINDOW_BYTES_MIN };
    let window_bytes = window_bytes.clamp(min_bytes, WINDOW_BYTES_MAX) as usize;
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get().min(THREADS_MAX));
    let mut reader = Reader { replay, salvage, window_bytes, progress, recovered: Recovered::default() };
    let (mut window, mut next) = (Window::default(), Window::default());
    let redo = &Redo { core };
    reader.read(&mut window)?;
    loop {
        let threads = if is_simulated() { 0 } else { threads.min(window.changes.len() / CHANGES_MIN) };
        let damages = Damages { salvage, noted: Mutex::default() };
        #[cfg(test)]
        if ziptier_tree::faults::has(ziptier_tree::faults::InjectedFault::WindowSkipped) && !window.is_last {
            std::mem::take(&mut window.changes);
        }
        if threads == 0 {
            redo.all(window.last_words(&window.changes), &damages)?;
        }
        thread::scope(|scope| {
            let (window, damages) = (&window, &damages);
            let part = |part| scope.spawn(move || redo.all(window.last_words(part), damages));
            let parts: Vec<_> = window.parts(threads).map(part).collect();
            let read = if window.is_last { Ok(()) } else { reader.read(&mut next) };
            let done = parts.into_iter().map(|part| part.join().expect("a part of a replay panicked"));
            // All of them end before this does.
            done.collect::<Vec<_>>().into_iter().collect::<Result<(), Error>>().and(read)
        })?;
        if let Some(record) = &window.alone {
            let operations = Operations::of(record).expect("it was read before");
            operations.flatten().try_for_each(|operation| damages.pass_over(redo.one(&operation)))?;
        }
        reader.recovered.skipped.extend(damages.noted.into_inner());
        if window.is_last {
            return Ok(reader.end());
        }
        std::mem::swap(&mut window, &mut next);
    }
}

/// Values that lie on SSD and that the log says something of, but that are damaged there.
struct Damages {
    /// They are noted, and what is logged of them is left out.
    salvage: bool,
    noted: Mutex<Vec<String>>,
}

impl Damages {
    fn pass_over(&self, redone: Result<(), Error>) -> Result<(), Error> {
        let Err(Error::Unread { reason, .. } | Error::Damaged { reason, .. }) = redone else { return redone };
        if !self.salvage {
            return Err(Error::NotRedone { reason });
        }
        let mut noted = self.noted.lock();
        let note = format!("what the log says of a value that cannot be read: {reason}");
        if !noted.contains(&note) {
            noted.push(note);
        }
        Ok(())
    }
}

/// Reads the log, window by window.
struct Reader<'a> {
    replay: &'a mut Replay,
    salvage: bool,
    window_bytes: usize,
    progress: &'a mut dyn FnMut(Recovery),
    recovered: Recovered,
}

impl Reader<'_> {
    /// Replaces what is in `window` by what the log says next.
    fn read(&mut self, window: &mut Window) -> Result<(), Error> {
        window.clear();
        while window.bytes.len() < self.window_bytes && window.alone.is_none() {
            if self.recovered.records.is_multiple_of(RECORDS_PER_REPORT) {
                let (done_bytes, all_bytes) = self.replay.progress();
                (self.progress)(Recovery { done_bytes, all_bytes });
            }
            let Some(record) = self.replay.next_record()? else {
                window.is_last = true;
                break;
            };
            self.recovered.records += 1;
            self.recovered.log_bytes += record.payload.len() as u64;
            match window.add(record.payload) {
                Ok(()) => {}
                Err(reason) if self.salvage => {
                    self.recovered.skipped.push(format!("record {} of the log: {reason}", record.lsn));
                }
                Err(reason) => return Err(Error::LogRecord { lsn: record.lsn, reason }),
            }
        }
        window.sort();
        Ok(())
    }

    /// Totals of what was read.
    fn end(self) -> Recovered {
        let mut recovered = self.recovered;
        recovered.is_sealed = self.replay.is_sealed();
        recovered.torn_tail = self.replay.torn_tail().cloned();
        let skipped = self.replay.skipped().iter().map(|skipped| {
            let (path, offset, bytes) = (skipped.path.display(), skipped.offset, skipped.bytes);
            format!("{bytes} bytes of {path} from byte {offset} on: {}", skipped.reason)
        });
        recovered.skipped.extend(skipped);
        recovered
    }
}

/// Some consecutive records of the log.
#[derive(Default)]
struct Window {
    /// The records, one behind the other.
    bytes: Vec<u8>,
    /// The changes of the records, in key order once they are sorted, and in the log's order for each key.
    changes: Vec<Change>,
    /// A record that deletes ranges of keys, behind all others.
    alone: Option<Vec<u8>>,
    is_last: bool,
}

/// One operation in a window.
struct Change {
    /// The eight bytes of the key behind those that all keys of the window share, as a number of the same order.
    head: u64,
    kind: ChangeKind,
    key: Range<usize>,
    value: Range<usize>,
    expires_at_ms: Option<u64>,
    flags: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeKind {
    Put,
    Delete,
    Expire,
}

impl Window {
    fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
        self.alone = None;
        self.is_last = false;
    }

    /// Adds all operations of a record, or none: one of which a part cannot be read does nothing.
    fn add(&mut self, record: &[u8]) -> Result<(), String> {
        let start = self.bytes.len();
        let known = self.changes.len();
        for operation in Operations::of(record)? {
            let operation = operation.inspect_err(|_| {
                self.changes.truncate(known);
                self.alone = None;
            })?;
            let at = |part: &[u8]| {
                let at = start + part.as_ptr().addr() - record.as_ptr().addr();
                at..at + part.len()
            };
            let (kind, key, value, expires_at_ms, flags) = match operation {
                Operation::Put { key, value, expires_at_ms, flags } => {
                    (ChangeKind::Put, key, value, expires_at_ms, flags)
                }
                Operation::Delete { key } => (ChangeKind::Delete, key, &[][..], None, 0),
                Operation::Expire { key, expires_at_ms } => {
                    (ChangeKind::Expire, key, &[][..], expires_at_ms, 0)
                }
                Operation::DeleteRange { .. } => {
                    self.alone = Some(record.to_vec());
                    continue;
                }
            };
            let value = if value.is_empty() { 0..0 } else { at(value) };
            self.changes.push(Change { head: 0, kind, key: at(key), value, expires_at_ms, flags });
        }
        if self.alone.is_some() {
            self.changes.truncate(known);
        } else {
            self.bytes.extend_from_slice(record);
        }
        Ok(())
    }

    fn key(&self, change: &Change) -> &[u8] {
        &self.bytes[change.key.clone()]
    }

    fn sort(&mut self) {
        let Some(first) = self.changes.first() else { return };
        let shared = self.changes.iter().fold(self.key(first), |shared, change| {
            let same = shared.iter().zip(self.key(change)).take_while(|(a, b)| a == b).count();
            &shared[..same]
        });
        let skipped = shared.len();
        let bytes = &self.bytes;
        for change in &mut self.changes {
            let tail = &bytes[change.key.clone()][skipped..];
            let mut head = [0; 8];
            let len = tail.len().min(8);
            head[..len].copy_from_slice(&tail[..len]);
            change.head = u64::from_be_bytes(head);
        }
        self.changes.sort_unstable_by(|a, b| {
            let keys = || bytes[a.key.clone()].cmp(&bytes[b.key.clone()]);
            a.head.cmp(&b.head).then_with(keys).then(a.key.start.cmp(&b.key.start))
        });
    }

    /// The changes in up to `count` parts of about the same length, with all of a key in the same one.
    fn parts(&self, count: usize) -> impl Iterator<Item = &[Change]> {
        let mut rest = self.changes.as_slice();
        (1..=count).rev().filter_map(move |left| {
            let mut end = rest.len() / left;
            while end > 0 && end < rest.len() && self.key(&rest[end - 1]) == self.key(&rest[end]) {
                end += 1;
            }
            let (part, behind) = rest.split_at(end);
            rest = behind;
            (!part.is_empty()).then_some(part)
        })
    }

    /// The last word on each key of `changes`, in key order.
    fn last_words<'w>(&'w self, changes: &'w [Change]) -> impl Iterator<Item = Operation<'w>> {
        let of_one_key = changes.chunk_by(|a, b| a.head == b.head && self.key(a) == self.key(b));
        of_one_key.filter_map(|changes| {
            let newest = changes.last()?;
            let base = changes.iter().rfind(|change| change.kind != ChangeKind::Expire).unwrap_or(newest);
            let key = self.key(newest);
            let expires_at_ms = newest.expires_at_ms;
            Some(match base.kind {
                ChangeKind::Put => {
                    let value = &self.bytes[base.value.clone()];
                    Operation::Put { key, value, expires_at_ms, flags: base.flags }
                }
                // There is nothing that could expire behind it.
                ChangeKind::Delete => Operation::Delete { key },
                ChangeKind::Expire => Operation::Expire { key, expires_at_ms },
            })
        })
    }
}

/// The put of a value that lies in its leaf, or a delete: what a landing takes as it is.
fn is_plain(word: &Operation<'_>) -> bool {
    match word {
        Operation::Put { value, .. } => value.len() <= INLINE_BYTES_MAX,
        Operation::Delete { .. } => true,
        _ => false,
    }
}

impl Redo<'_> {
    /// Does what the log said last of some keys, which are given in order, each once.
    fn all<'w>(&self, words: impl Iterator<Item = Operation<'w>>, damages: &Damages) -> Result<(), Error> {
        let mut record = RecordBytes::default();
        let mut words = words.peekable();
        while let Some(word) = words.peek().copied() {
            if is_plain(&word) {
                self.run(word.key(), &mut words, &mut record);
            } else {
                damages.pass_over(self.one(&word))?;
                self.core.reclaimer().keep_to_limit();
                words.next();
            }
        }
        Ok(())
    }

    /// Appends the words that fall to the leaf of `key`, the first one's, and has it packed if these are many. A leaf
    /// on SSD is promoted before its overlay has no room for more. If an image cannot be read, the words stay in
    /// memory above it, and nothing is lost.
    fn run<'w>(
        &self,
        key: &[u8],
        words: &mut Peekable<impl Iterator<Item = Operation<'w>>>,
        record: &mut RecordBytes,
    ) {
        let bytes_max = RUN_BYTES.min((self.core.tree.gauges.limit() / RUN_SHARE) as usize);
        let guard = self.core.tree.pin();
        let locked = self.core.tree.lock_leaf(key, &guard);
        let leaf = locked.leaf;
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some(word) = words.next_if(|word| is_plain(word) && leaf.state(&guard).covers(word.key()))
        {
            let (kind, value, meta) = match word {
                Operation::Put { value, expires_at_ms, flags, .. } => {
                    (Kind::Raw, NewValue::Inline(value), PutMeta { expires_at_ms, flags })
                }
                _ => (Kind::Tombstone, NewValue::None, PutMeta::default()),
            };
            value.lay_out(record, Fields::of(meta), word.key(), kind);
            bytes += record.landing_bytes();
            self.core.writes().append_growing(leaf, record, key_hash(word.key()), &guard);
        }
        let has_grown = self.core.tree.seal_grown(leaf, &guard);
        drop(locked);
        if has_grown {
            self.core.sealed(leaf, &guard);
        }
        let crowded = leaf.state(&guard).is_crowded().then(|| leaf.share(&guard));
        drop(guard);
        if let Some(leaf) = crowded {
            self.core.moves().promote(&leaf, Place::Ssd);
        }
        self.core.tend();
        self.core.reclaimer().keep_to_limit();
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::durable::Heads;

    fn record(operations: &[Operation<'_>]) -> Vec<u8> {
        Heads::default().lay_out(operations.iter().copied(), |parts| parts.concat())
    }

    fn window(records: &[&[Operation<'_>]]) -> Window {
        let mut window = Window::default();
        records.iter().for_each(|operations| window.add(&record(operations)).unwrap());
        window.sort();
        window
    }

    const fn put(key: &'static [u8], value: &'static [u8]) -> Operation<'static> {
        Operation::Put { key, value, expires_at_ms: None, flags: 7 }
    }

    #[test]
    fn the_last_word_on_a_key_says_all_that_the_log_says() {
        let expire = |key, at| Operation::Expire { key, expires_at_ms: at };
        let window = window(&[
            &[put(b"k/b", b"old"), put(b"k/a", b"kept"), expire(b"k/c", Some(1))],
            &[Operation::Delete { key: b"k/d" }, put(b"k/b", b"new"), put(b"k/e", b"gone")],
            &[expire(b"k/b", Some(3)), expire(b"k/c", None), Operation::Delete { key: b"k/e" }],
            &[expire(b"k/b", Some(4)), put(b"k/", b"")],
        ]);
        let words: Vec<_> = window.last_words(&window.changes).collect();
        assert_eq!(
            words,
            [
                put(b"k/", b""),
                put(b"k/a", b"kept"),
                Operation::Put { key: b"k/b", value: b"new", expires_at_ms: Some(4), flags: 7 },
                expire(b"k/c", None),
                Operation::Delete { key: b"k/d" },
                Operation::Delete { key: b"k/e" },
            ]
        );
    }

    /// An overlay has no room for more records in the end, and then the landing above it grows with each record.
    #[test]
    #[cfg(not(shuttle))]
    fn a_leaf_on_ssd_with_many_records_in_the_log_is_promoted_as_they_are_replayed() {
        let core = crate::places::ssd::tests::core_over(ziptier_media::testing::RecordingDisk::new());
        core.put(b"key", b"below", PutMeta::default()).expect("no limit is set");
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        core.tree.recovering.store(true, std::sync::atomic::Ordering::Relaxed);
        let keys: Vec<[u8; 4]> = (0..u32::from(u16::MAX)).map(u32::to_be_bytes).collect();
        let puts =
            keys.iter().map(|key| Operation::Put { key, value: b"above", expires_at_ms: None, flags: 0 });
        let damages = Damages { salvage: false, noted: Mutex::default() };
        assert_eq!(Redo { core: &core }.all(puts, &damages), Ok(()));
        assert!(core.tree.locate(b"key", &core.tree.pin()).1.below.is_none(), "the leaf lies on SSD");
        assert_eq!(core.tree.ranges().count_keys(), keys.len() as u64 + 1);
    }

    #[test]
    fn parts_have_every_key_once_and_in_order() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (mut all, mut last) = (Window::default(), BTreeMap::new());
            let keys = 1 + random.usize(..40);
            for n in 0..random.u32(..100) {
                let zeros = vec![0; random.usize(..3)];
                let key =
                    [b"shared".as_slice(), random.usize(..keys).to_string().as_bytes(), &zeros].concat();
                let value = n.to_le_bytes();
                let put = Operation::Put { key: &key, value: &value, expires_at_ms: None, flags: 0 };
                all.add(&record(&[put])).unwrap();
                last.insert(key, value.to_vec());
            }
            all.sort();
            let count = 1 + random.usize(..5);
            let parts: Vec<_> = all.parts(count).collect();
            assert!(parts.len() <= count);
            let words = parts.into_iter().flat_map(|part| all.last_words(part)).map(|word| match word {
                Operation::Put { key, value, .. } => (key.to_vec(), value.to_vec()),
                other => panic!("{other:?}"),
            });
            assert_eq!(words.collect::<Vec<_>>(), last.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_adds_nothing_and_one_that_deletes_a_range_is_alone() {
        let mut window = window(&[&[put(b"a", b"1")]]);
        let whole = record(&[put(b"b", b"2"), put(b"c", b"3")]);
        window.add(&whole[..whole.len() - 1]).unwrap_err();
        assert_eq!((window.changes.len(), window.bytes.len()), (1, record(&[put(b"a", b"1")]).len()));
        let range = record(&[put(b"b", b"2"), Operation::DeleteRange { low: b"a", high: None }]);
        window.add(&range[..range.len() - 1]).unwrap_err();
        assert_eq!((window.changes.len(), &window.alone), (1, &None));
        let put_behind = record(&[Operation::DeleteRange { low: b"a", high: None }, put(b"b", b"2")]);
        window.add(&put_behind[..put_behind.len() - 1]).unwrap_err();
        assert_eq!((window.changes.len(), &window.alone), (1, &None));
        window.add(&range).unwrap();
        assert_eq!((window.changes.len(), window.alone), (1, Some(range)));
    }
}
