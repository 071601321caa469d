//! An acknowledged write was once undone by an update that had decided before it. So clients update, batch, rename,
//! copy, expire and delete the same eight keys, while leaves split, join, move between places and are evicted, and a
//! checker looks for an order of all calls that explains every answer. `ZIPTIER_HISTORIES` says how many histories each
//! store records, and `ZIPTIER_SEED` with which seed the first begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ziptier::{
    Batch, Condition, DurableOptions, Error, FarOptions, FarPlace, Meta, Options, PutMeta, SsdOptions, Stats,
    Store, Transferred, Update,
};
use ziptier_histories::{Answer, Call, Client, KEYS, Loss, record};
use ziptier_testing::{HANG, count, seed};

use crate::durable::send_what_fits;

const CLIENTS: usize = 4;
/// With the reads at the end, a history has 200 calls.
const CALLS: usize = 48;
/// Far in the future, in milliseconds since 1970.
const FAR_OFF_MS: u64 = 33_177_117_420_000;
/// Neighbours of the keys in a batch: they lengthen the time between its first append and its commit.
const NEIGHBOURS: usize = 24;
/// How many histories' keys stay: more of them would fill far memory and SSD in a long run.
const KEPT_HISTORIES: u64 = 16;

/// A value that begins with its number. Every eighth is too large for a leaf.
fn value(number: u64) -> Vec<u8> {
    let len = if number / 100 % 8 == 7 { 5_000 } else { 16 + number as usize % 200 };
    format!("{number};")
        .bytes()
        .chain(b"neither here nor there, ".iter().copied().cycle())
        .take(len)
        .collect()
}

fn number(bytes: &[u8]) -> u64 {
    let digits = bytes.iter().position(|&byte| byte == b';').unwrap();
    let number = std::str::from_utf8(&bytes[..digits]).unwrap().parse().unwrap();
    assert_eq!(bytes, value(number), "a value is torn");
    number
}

struct StoreClient<'a> {
    store: &'a Store,
    history: u64,
}

impl StoreClient<'_> {
    fn key(&self, key: usize) -> Vec<u8> {
        format!("{key}:{:08}", self.history).into_bytes()
    }

    fn neighbours(name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        (0..NEIGHBOURS).map(move |neighbour| [name, format!(".{neighbour}").as_bytes()].concat())
    }

    /// Deletes all that the history wrote.
    fn forget(&self) {
        for name in (0..KEYS).map(|key| self.key(key)) {
            for name in std::iter::once(name.clone()).chain(Self::neighbours(&name)) {
                done_or_refused(self.store.delete(&name).map(drop));
            }
        }
    }

    /// Decides by the value that a key has, and gives what `answer` makes of the last decision.
    fn update(
        &self,
        key: usize,
        mut decide: impl FnMut(Option<(u64, Meta)>) -> (Answer, Update),
    ) -> Result<Answer, Error> {
        let mut answer = None;
        self.store.update(&self.key(key), |found| {
            let (told, update) = decide(found.map(|(bytes, meta)| (number(bytes), meta)));
            answer = Some(told);
            update
        })?;
        Ok(answer.unwrap())
    }

    fn batch(&self, puts: &[(usize, u64)], absent: bool) -> Result<Answer, Error> {
        let mut batch = Batch::new();
        for &(key, put) in puts {
            let name = self.key(key);
            if absent {
                batch = batch.require(&name, Condition::Absent);
            }
            batch = batch.put(&name, &value(put));
            for neighbour in Self::neighbours(&name) {
                batch = batch.put(&neighbour, &value(put));
            }
        }
        Ok(Answer::Done(self.store.write(&batch)?))
    }

    fn try_call(&self, call: &Call) -> Result<Answer, Error> {
        let put = |number| Update::Put(value(number), PutMeta::default());
        Ok(match call {
            Call::Get(key) => Answer::Value(self.store.get(&self.key(*key))?.map(|bytes| number(&bytes))),
            Call::HasExpiry(key) => {
                let meta = self.store.meta(&self.key(*key))?;
                Answer::Value(meta.map(|meta| u64::from(meta.expires_at_ms.is_some())))
            }
            Call::Put(key, number) => {
                self.store.put(&self.key(*key), &value(*number))?;
                Answer::Done(true)
            }
            Call::PutNew(key, number) => self.update(*key, |found| match found {
                Some(_) => (Answer::Done(false), Update::Keep),
                None => (Answer::Done(true), put(*number)),
            })?,
            Call::Swap(key, number) => {
                self.update(*key, |found| (Answer::Value(found.map(|(old, _)| old)), put(*number)))?
            }
            Call::Take(key) => self.update(*key, |found| match found {
                Some((old, _)) => (Answer::Value(Some(old)), Update::Delete),
                None => (Answer::Value(None), Update::Keep),
            })?,
            Call::Add(key, added) => self.update(*key, |found| {
                let (old, expires_at_ms) = found.map_or((0, None), |(old, meta)| (old, meta.expires_at_ms));
                let meta = PutMeta { expires_at_ms, ..PutMeta::default() };
                (Answer::Value(Some(old + added)), Update::Put(value(old + added), meta))
            })?,
            Call::Delete(key) => Answer::Done(self.store.delete(&self.key(*key))?),
            Call::Expire(key) => Answer::Done(self.store.set_expiry(&self.key(*key), Some(FAR_OFF_MS))?),
            Call::ExpireNow(key) => Answer::Done(self.store.set_expiry(&self.key(*key), Some(1))?),
            Call::Persist(key) => {
                let done = self.store.update_meta(&self.key(*key), |found| match found {
                    Some(meta) if meta.expires_at_ms.is_some() => Update::Expire(None),
                    _ => Update::Keep,
                })?;
                Answer::Done(done != Update::Keep)
            }
            Call::PutAll(puts) => self.batch(puts, false)?,
            Call::PutAllNew(puts) => self.batch(puts, true)?,
            Call::Rename { source, target, replace } => Answer::Done(
                self.store.rename(&self.key(*source), &self.key(*target), *replace)? == Transferred::Done,
            ),
            Call::Copy { source, target, replace } => Answer::Done(
                self.store.copy(&self.key(*source), &self.key(*target), *replace)? == Transferred::Done,
            ),
        })
    }
}

impl Client for StoreClient<'_> {
    fn call(&mut self, call: &Call) -> Answer {
        match self.try_call(call) {
            Ok(answer) => answer,
            Err(Error::MemoryLimit { .. }) => Answer::Refused,
            Err(error) => panic!("{call:?}: {error}"),
        }
    }
}

/// Batches that are under way may hold all the memory that there is.
#[track_caller]
fn done_or_refused(done: Result<(), Error>) {
    assert!(matches!(done, Ok(()) | Err(Error::MemoryLimit { .. })), "{done:?}");
}

/// Neighbours of all keys come and go, so that leaves split and are joined.
fn churn(store: &Store, random: &mut fastrand::Rng) {
    for _ in 0..64 {
        let name = format!("{}:{:08}/{}", random.usize(..KEYS), random.u32(..400), random.u8(..8));
        done_or_refused(match random.u8(..3) {
            0 => store.delete(name.as_bytes()).map(drop),
            _ => store.put(name.as_bytes(), &value(random.u64(..1000))),
        });
    }
}

/// Records histories while `disturb` works beside the clients, and has each checked; further ones until the store has
/// done what it is there for.
fn check(
    options: Options,
    loss: Loss,
    mut disturb: impl FnMut(&Store, &mut fastrand::Rng) + Send,
    has_done: impl Fn(&Store, &Stats) -> bool,
) {
    let store = Store::open(options).unwrap();
    let (histories, first) = (count("ZIPTIER_HISTORIES", 40), seed());
    let done = AtomicBool::new(false);
    let mut overlapping = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(first);
            while !done.load(Ordering::Relaxed) {
                churn(&store, &mut random);
                disturb(&store, &mut random);
            }
        });
        // Ends the disturber even if a history is refused.
        let _ends = EndsWhenDropped(&done);
        // The threads beside the clients may have no processor while the clients have one.
        let mut further_since = None;
        for history in first.. {
            if history - first >= histories {
                if has_done(&store, &store.stats()) {
                    println!("{} histories: {:?}", history - first, store.stats());
                    break;
                }
                let since = *further_since.get_or_insert_with(Instant::now);
                let told = "the store does not do what it is there for";
                assert!(since.elapsed() < HANG, "{told}: {:?}", store.stats());
            }
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| StoreClient { store: &store, history }).collect();
            let recorded = record(history, &mut clients, CALLS);
            recorded.check(loss).unwrap_or_else(|error| panic!("{error}"));
            if let Some(history) = history.checked_sub(KEPT_HISTORIES).filter(|&old| old >= first) {
                StoreClient { store: &store, history }.forget();
            }
            overlapping += recorded.overlapping();
        }
    });
    assert!(overlapping > 0, "no call of any history met another one");
}

struct EndsWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn small_leaves() -> Options {
    Options { landing_bytes: 256, ..Options::default() }
}

#[test]
fn in_dram_while_writers_pack_and_split() {
    check(
        small_leaves(),
        Loss::Never,
        |_, _| {},
        |_, stats| stats.packs_foreground > 0 && stats.splits > 0 && stats.merges > 0,
    );
}

#[test]
fn in_dram_while_a_background_thread_packs_and_settles() {
    let options = Options { background_packing: true, landing_watermark_pct: 50, ..small_leaves() };
    let settle = |store: &Store, _: &mut _| store.settle().unwrap();
    check(options, Loss::Never, settle, |_, stats| stats.packs_background > 0 && stats.splits > 0);
}

#[test]
fn while_leaves_go_to_ssd_and_come_back_and_checkpoints_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut durable = DurableOptions::new(folder.path());
    durable.log.segment_bytes = 1 << 20;
    let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
    let move_leaves = |store: &Store, random: &mut fastrand::Rng| {
        send_what_fits(store, || random.bool());
        store.bring_from_ssd(|| random.bool());
        store.begin_checkpoint();
    };
    check(
        Options { durable: Some(durable), ssd, ..small_leaves() },
        Loss::Never,
        move_leaves,
        |store, stats| {
            let checkpoints = store.checkpoint_stats().map_or(0, |checkpoints| checkpoints.checkpoints);
            let pieces_read = store.ssd().map_or(0, |ssd| ssd.pieces_read);
            stats.sent_to_ssd > 0 && stats.raised_from_ssd > 0 && pieces_read > 0 && checkpoints > 0
        },
    );
}

#[test]
fn while_leaves_go_to_far_memory() {
    let folder = tempfile::tempdir().unwrap();
    let place = FarPlace::File(folder.path().join("far"));
    let far = Some(FarOptions { place, capacity_bytes: 64 << 20, require_dax: false });
    let options = Options { far, memory_limit_bytes: Some(2 << 20), ..small_leaves() };
    let bring_some = |store: &Store, random: &mut fastrand::Rng| {
        store.bring_from_far(|| random.u8(..4) == 0);
    };
    check(options, Loss::Never, bring_some, |_, stats| stats.sent_to_far > 0 && stats.raised_from_far > 0);
}

#[test]
fn while_records_are_evicted() {
    let options = Options { eviction: true, memory_limit_bytes: Some(1 << 20), ..small_leaves() };
    let fill = |store: &Store, random: &mut fastrand::Rng| {
        for _ in 0..64 {
            let name = format!("filler {}", random.u32(..));
            done_or_refused(store.put(name.as_bytes(), &value(random.u64(..600))));
        }
    };
    check(options, Loss::Evicted, fill, |_, stats| stats.evicted > 0);
}
