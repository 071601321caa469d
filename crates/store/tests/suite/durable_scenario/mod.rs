//! A durable store that several threads write to, and the model that every state of its disk is compared with.
//!
//! Each thread has keys of its own, so what it has done is one sequence. Of that, a recovered store must hold a prefix:
//! all that was acknowledged when the power was cut, and nothing that was not begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use ziptier::{Batch, DiskHandle, Durability, DurableOptions, Error, Options, PutMeta, Store};
use ziptier_media::disk::Disk;
use ziptier_media::log::LogError;
use ziptier_media::testing::{CrashImage, RecordingDisk};

/// Keys that a thread has, beside those that large values and batches go to.
const KEYS: u64 = 12;

/// The smallest segments, so that a few records fill them, and no thread beside those that write.
pub(crate) fn options(disk: Arc<dyn Disk>, durability: Durability) -> Options {
    let mut durable = DurableOptions::new("/data");
    durable.durability = durability;
    durable.log.segment_bytes = 16 << 10;
    durable.disk = DiskHandle(disk);
    Options { background_threads: 0, durable: Some(durable), ..Options::default() }
}

/// Value, expiry, flags.
type Record = (Vec<u8>, Option<u64>, u32);
pub(crate) type Contents = BTreeMap<Vec<u8>, Record>;

/// A write of a thread: everything that a store can do to its keys.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put(Vec<u8>, Record),
    Delete(Vec<u8>),
    Expire(Vec<u8>, Option<u64>),
    Rename(Vec<u8>, Vec<u8>),
    Copy(Vec<u8>, Vec<u8>),
    /// Puts under the first keys and deletes of the others.
    Batch(Vec<(Vec<u8>, Vec<u8>)>, Vec<Vec<u8>>),
}

fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 7
}

impl Write {
    /// The `step`th write of a thread.
    pub(crate) fn of(seed: u64, thread: u64, step: u64) -> Self {
        let random = mix(seed << 40 ^ thread << 32 ^ step);
        let key = |n: u64| format!("{thread}/{}", n % KEYS).into_bytes();
        let value = |len: u64| (0..len).map(|at| (random >> (at % 48)) as u8 ^ at as u8).collect::<Vec<u8>>();
        let expiry = |n: u64| (!n.is_multiple_of(3)).then_some((1 << 44) + step);
        match random % 20 {
            0..8 => Self::Put(key(random >> 8), (value(random >> 16 & 255), expiry(random >> 30), 0)),
            8 => Self::Put(key(random >> 8), (value(20), None, step as u32)),
            9 => Self::Put(key(random >> 8), (value(2500 + (random >> 16 & 8191)), None, 0)),
            10..13 => Self::Delete(key(random >> 8)),
            13..15 => Self::Expire(key(random >> 8), expiry(random >> 20)),
            15 => Self::Rename(key(random >> 8), key(random >> 16)),
            16 => Self::Copy(key(random >> 8), key(random >> 16)),
            _ => {
                let puts = (0..2 + random % 4).map(|n| (key((random >> 8) + n), value(30 + n))).collect();
                Self::Batch(puts, (0..2).map(|n| key((random >> 8) + 6 + n)).collect())
            }
        }
    }

    pub(crate) fn apply(&self, store: &Store) -> Result<(), Error> {
        match self {
            Self::Put(key, (value, expires_at_ms, flags)) => {
                store.put_with(key, value, PutMeta { expires_at_ms: *expires_at_ms, flags: *flags })
            }
            Self::Delete(key) => store.delete(key).map(|_| ()),
            Self::Expire(key, expires_at_ms) => store.set_expiry(key, *expires_at_ms).map(|_| ()),
            Self::Rename(source, target) => store.rename(source, target, true).map(|_| ()),
            Self::Copy(source, target) => store.copy(source, target, true).map(|_| ()),
            Self::Batch(puts, deletes) => {
                let batch = puts.iter().fold(Batch::new(), |batch, (key, value)| batch.put(key, value));
                store.write(&deletes.iter().fold(batch, |batch, key| batch.delete(key))).map(|_| ())
            }
        }
    }

    /// The same to the model.
    fn model(&self, contents: &mut Contents) {
        match self {
            Self::Put(key, record) => drop(contents.insert(key.clone(), record.clone())),
            Self::Delete(key) => drop(contents.remove(key)),
            Self::Expire(key, expires_at_ms) => {
                if let Some(record) = contents.get_mut(key) {
                    record.1 = *expires_at_ms;
                }
            }
            Self::Rename(source, target) | Self::Copy(source, target) => {
                if let Some(record) = contents.get(source).cloned().filter(|_| source != target) {
                    contents.insert(target.clone(), record);
                    if matches!(self, Self::Rename(..)) {
                        contents.remove(source);
                    }
                }
            }
            Self::Batch(puts, deletes) => {
                contents.extend(puts.iter().map(|(key, value)| (key.clone(), (value.clone(), None, 0))));
                deletes.iter().for_each(|key| drop(contents.remove(key)));
            }
        }
    }
}

/// A write that may be found, from when on, and from when on it must be.
#[derive(Debug)]
struct Made {
    write: Write,
    begun: usize,
    acknowledged: Option<usize>,
}

/// What one thread has done, in its order.
#[derive(Debug, Default)]
pub(crate) struct History {
    made: Vec<Made>,
}

impl History {
    /// Makes a write and notes it. A disk that has no file for the log, or no room in one, refuses it, which is no
    /// error here: it changes nothing, or it has its place in the log and is not acknowledged.
    pub(crate) fn make(
        &mut self,
        store: &Store,
        write: Write,
        position: &impl Fn() -> usize,
    ) -> Result<(), Error> {
        let begun = position();
        let last_lsn = || store.durable_stats().unwrap().last_lsn;
        let before = last_lsn();
        let outcome = write.apply(store);
        let is_refused = matches!(&outcome, Err(Error::Log(LogError::Disk(_))));
        if is_refused && last_lsn() == before {
            return Ok(());
        }
        self.made.push(Made { write, begun, acknowledged: outcome.is_ok().then(position) });
        if is_refused { Ok(()) } else { outcome }
    }

    /// The states that this thread's keys may be in after a power cut at `position`, if acknowledged writes last.
    fn states(&self, position: usize, last: bool) -> Vec<Contents> {
        let is_due = |made: &Made| last && made.acknowledged.is_some_and(|at| at <= position);
        let must = self.made.iter().rposition(is_due).map_or(0, |last| last + 1);
        let may = self.made.iter().rposition(|made| made.begun <= position).map_or(0, |last| last + 1);
        let mut contents = Contents::new();
        let mut states = Vec::new();
        for (count, made) in self.made.iter().enumerate() {
            if (must..=may).contains(&count) {
                states.push(contents.clone());
            }
            made.write.model(&mut contents);
        }
        if (must..=may).contains(&self.made.len()) {
            states.push(contents);
        }
        states
    }

    /// What the keys hold after all writes.
    pub(crate) fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        self.made.iter().for_each(|made| made.write.model(&mut contents));
        contents
    }
}

/// What the keys of a thread hold.
pub(crate) fn contents(store: &Store, thread: u64) -> Contents {
    let record = |outcome: Result<(Vec<u8>, Vec<u8>), Error>| {
        let (key, value) = outcome.unwrap();
        let meta = store.meta(&key).unwrap().unwrap();
        assert_eq!(meta.len, value.len() as u64);
        (key, (value, meta.expires_at_ms, meta.flags))
    };
    store.prefix(format!("{thread}/").as_bytes()).map(record).collect()
}

/// `threads` threads make `steps` writes each to a store on a disk that remembers everything.
pub(crate) fn recorded(
    durability: Durability,
    seed: u64,
    threads: u64,
    steps: u64,
) -> (RecordingDisk, Vec<History>) {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()), durability)).unwrap();
    let histories = std::thread::scope(|scope| {
        let (store, disk) = (&store, &disk);
        let work = move |thread| {
            let mut history = History::default();
            for step in 0..steps {
                history.make(store, Write::of(seed, thread, step), &|| disk.position()).unwrap();
            }
            history
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    store.close().unwrap();
    (disk, histories)
}

/// Recovers a disk as a power cut at `position` left it, and compares it with what was done.
pub(crate) fn check(
    disk: &RecordingDisk,
    position: usize,
    histories: &[History],
    durability: Durability,
    what: &str,
) -> Store {
    check_with(options(Arc::new(disk.clone()), durability), position, histories, what)
}

/// The same for a store with options of its own.
pub(crate) fn check_with(options: Options, position: usize, histories: &[History], what: &str) -> Store {
    let durability = options.durable.as_ref().unwrap().durability;
    let store = Store::open(options).unwrap_or_else(|error| panic!("{error}: {what}"));
    for (thread, history) in histories.iter().enumerate() {
        let found = contents(&store, thread as u64);
        // In the modes that do not wait for the disk, a power cut may take everything that was not synced.
        let states = history.states(position, durability == Durability::Always);
        assert!(
            states.contains(&found),
            "thread {thread}: {found:?} is none of {} states: {what}",
            states.len()
        );
    }
    store
}

/// One image: recovered, compared, written to, cut off again and recovered again.
pub(crate) fn recover(image: &CrashImage, histories: &[History], durability: Durability, number: u64) {
    let what = &image.what;
    let store = check(&image.disk, image.position, histories, durability, what);
    let before: Vec<Contents> = (0..histories.len()).map(|thread| contents(&store, thread as u64)).collect();
    store.put(b"another", b"write").unwrap();
    drop(store);
    // What was replayed stays, wherever the recovery itself is cut off.
    for again in image.disk.images().sample(number, 2) {
        let store = Store::open(options(Arc::new(again.disk.clone()), durability))
            .unwrap_or_else(|error| panic!("{error}: {what}, then {}", again.what));
        for (thread, before) in before.iter().enumerate() {
            assert_eq!(&contents(&store, thread as u64), before, "{what}, then {}", again.what);
        }
    }
}
