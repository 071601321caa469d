//! A record that expires may lie in memory or on SSD, in an image of a checkpoint or in the log. Another expiry may
//! come in any of these places. Random operations run against a store with all of them and against a model. The test
//! moves the clock on, also between a stop and a start. Every answer must be the same.
//!
//! `ZIPTIER_SEED=n` begins with the run of that seed, and `ZIPTIER_RUNS=n` makes so many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ziptier::{Clock, CodecChoice, Durability, Options, PutMeta, SsdOptions, Store, Transferred, Update};
use ziptier_media::testing::RecordingDisk;
use ziptier_testing::count;

use crate::durable::options;

const CODECS: [CodecChoice; 4] =
    [CodecChoice::None, CodecChoice::Auto, CodecChoice::Token, CodecChoice::Zstd];
/// Rounds of operations in a run, each with an event behind it, and operations of a round at most.
const ROUNDS: u32 = 60;
const STEPS_MAX: usize = 400;
/// The longest that a record lives, and the clock stands still, in milliseconds.
const LIFE_MS_MAX: u64 = 6_000;
const STOP_MS_MAX: u64 = 5_000;

/// Value and expiry of each key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

struct Run {
    /// `None` between a stop and a start.
    store: Option<Store>,
    model: Model,
    random: fastrand::Rng,
    clock: Clock,
    options: Options,
    keys: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let codec = CODECS[random.usize(..CODECS.len())];
        let clock = Clock::manual(1_000_000);
        let mut options = options(Arc::new(RecordingDisk::new()), codec);
        let durable = options.durable.as_mut().unwrap();
        durable.durability = Durability::No;
        durable.waits = false;
        durable.log.segment_bytes = 1 << 20;
        let options = Options {
            clock: clock.clone(),
            ssd: Some(SsdOptions { path: None, limit_bytes: 64 << 20 }),
            ..options
        };
        let keys = [300, 3_000, 20_000][random.usize(..3)];
        let store = Some(Store::open(options.clone()).unwrap());
        let mut run = Self { store, model: Model::new(), random, clock, options, keys };
        (0..keys).for_each(|n| run.put(format!("key:{n:06}").into_bytes()));
        run
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{:06}", self.random.u32(..self.keys)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.u32(..40) {
            0 => self.random.usize(2_049..9_000),
            1 => self.random.usize(600..2_049),
            _ => self.random.usize(..200),
        };
        let text = format!("{} of some text; ", self.random.u32(..)).into_bytes();
        text.into_iter().cycle().take(len).collect()
    }

    fn expiry(&mut self) -> Option<u64> {
        (self.random.u32(..3) > 0).then(|| self.clock.now_ms() + self.random.u64(1..LIFE_MS_MAX))
    }

    /// The record of a key that has not expired.
    fn live(&self, key: &[u8]) -> Option<&(Vec<u8>, Option<u64>)> {
        let now_ms = self.clock.now_ms();
        self.model.get(key).filter(|(_, expires_at_ms)| expires_at_ms.is_none_or(|at| at > now_ms))
    }

    fn put(&mut self, key: Vec<u8>) {
        let (value, expires_at_ms) = (self.value(), self.expiry());
        self.store().put_with(&key, &value, PutMeta { expires_at_ms, flags: 0 }).unwrap();
        self.model.insert(key, (value, expires_at_ms));
    }

    fn check(&self, key: &[u8]) {
        let mut value = Vec::new();
        let meta = self.store().get_into(key, &mut value).unwrap();
        let found = meta.map(|meta| (value, meta.expires_at_ms));
        assert!(found == self.live(key).cloned(), "{}", String::from_utf8_lossy(key));
    }

    fn check_all(&self) {
        let live = self.model.keys().filter(|key| self.live(key).is_some());
        let live: Vec<_> = live.map(|key| (key.clone(), self.model[key].0.clone())).collect();
        let found: Vec<_> = self.store().range(..).map(|record| record.unwrap()).collect();
        assert!(found == live, "{} records and not {}", found.len(), live.len());
        self.model.keys().step_by(1 + self.model.len() / 300).for_each(|key| self.check(key));
    }

    fn step(&mut self) {
        let key = self.key();
        match self.random.u32(..100) {
            0..35 => self.put(key),
            35..55 => {
                let expires_at_ms = self.expiry();
                let is_there = self.live(&key).is_some();
                assert_eq!(self.store().set_expiry(&key, expires_at_ms).unwrap(), is_there);
                if is_there {
                    self.model.get_mut(&key).unwrap().1 = expires_at_ms;
                }
            }
            55..62 => {
                assert_eq!(self.store().delete(&key).unwrap(), self.live(&key).is_some());
                self.model.remove(&key);
            }
            62..74 => self.check(&key),
            74..84 => self.transfer(&key),
            84..92 => {
                let old = self.live(&key).cloned();
                let expires_at_ms = self.expiry();
                let mut seen = None;
                let updated = self.store().update(&key, |found| {
                    seen = found.map(|(value, meta)| (value.to_vec(), meta.expires_at_ms));
                    let value = found.map_or(&[][..], |(value, _)| value);
                    Update::Put([value, b"+"].concat(), PutMeta { expires_at_ms, flags: 0 })
                });
                assert!(updated.is_ok() && seen == old);
                let value = old.map_or_else(Vec::new, |(value, _)| value);
                self.model.insert(key, ([value, b"+".to_vec()].concat(), expires_at_ms));
            }
            _ => self.clock.advance(Duration::from_millis(self.random.u64(..40))),
        }
    }

    fn transfer(&mut self, source: &[u8]) {
        let target = self.key();
        let (keeps, replaces) = (self.random.bool(), self.random.bool());
        let done = match keeps {
            true => self.store().copy(source, &target, replaces),
            false => self.store().rename(source, &target, replaces),
        };
        let Some(carried) = self.live(source).cloned() else {
            return assert_eq!(done, Ok(Transferred::NoSource));
        };
        if !replaces && self.live(&target).is_some() {
            return assert_eq!(done, Ok(Transferred::TargetExists));
        }
        assert_eq!(done, Ok(Transferred::Done));
        if !keeps {
            self.model.remove(source);
        }
        self.model.insert(target, carried);
    }

    /// Moves records to another place, or all of them through a stop and a start.
    fn event(&mut self) {
        let mut random = self.random.fork();
        match self.random.u32(..100) {
            0..30 => {
                let share = random.u32(1..5);
                self.store().send_to_ssd(|| random.u32(..share) == 0).unwrap();
            }
            30..40 => {
                self.store().bring_from_ssd(|| random.u32(..3) == 0);
            }
            40..55 => self.store().settle().unwrap(),
            55..75 => self.store().checkpoint().unwrap(),
            75..76 => {
                self.store().clear().unwrap();
                self.model.clear();
            }
            76..80 => self.check_all(),
            _ => {
                self.store = None;
                let stop_ms = [0, 100, STOP_MS_MAX][random.usize(..3)];
                self.clock.advance(Duration::from_millis(stop_ms));
                // With little memory, leaves that were there begin on SSD.
                self.options.memory_limit_bytes = [None, Some(1 << 20), Some(2 << 20)][random.usize(..3)];
                self.store = Some(Store::open(self.options.clone()).unwrap());
            }
        }
    }
}

#[test]
fn records_expire_alike_in_every_place() {
    let first = count("ZIPTIER_SEED", 0);
    for seed in first..first + count("ZIPTIER_RUNS", 6) {
        println!("ZIPTIER_SEED={seed}");
        let mut run = Run::new(seed);
        for _ in 0..ROUNDS {
            (0..run.random.usize(1..STEPS_MAX)).for_each(|_| run.step());
            run.event();
        }
        run.check_all();
    }
}
