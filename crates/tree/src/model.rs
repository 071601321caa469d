//! A tree beside a map: both are given the same calls, and must say the same.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use ziptier_codec::token::Dictionary;

use crate::alone::Alone;
use crate::batch::{Batch, Condition, Transferred};
use crate::clock::Clock;
use crate::codec_options::CodecChoice;
use crate::coding::Coding;
use crate::multi_get::Values;
use crate::record::PutMeta;
use crate::seen::Wanted;
use crate::update::Update;

/// Steps of a run. Miri takes a thousand times as long.
const STEPS: u32 = if cfg!(miri) { 60 } else { 6_000 };
/// Different keys of a run.
const KEYS: u32 = if cfg!(miri) { 20 } else { 900 };
const BEGUN_MS: u64 = 1_000;

const WORDS: [&str; 6] = ["one leaf ", "of a tree ", "beside ", "another; ", "a body and ", "its landing, "];

/// The value, expiry and flags of each key that exists, and the time by which keys expire.
struct Model {
    records: BTreeMap<Vec<u8>, (Vec<u8>, PutMeta)>,
    now_ms: u64,
}

impl Model {
    fn get(&self, key: &[u8]) -> Option<&(Vec<u8>, PutMeta)> {
        self.records.get(key).filter(|(_, meta)| meta.expires_at_ms.is_none_or(|at| at > self.now_ms))
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, meta: PutMeta) {
        self.records.insert(key.to_vec(), (value, meta));
    }

    /// Keys and values that exist, from `from` on.
    fn from<'m>(&'m self, from: &[u8]) -> impl DoubleEndedIterator<Item = (Vec<u8>, Vec<u8>)> + 'm {
        let records = self.records.range(from.to_vec()..);
        records
            .filter(|(_, (_, meta))| meta.expires_at_ms.is_none_or(|at| at > self.now_ms))
            .map(|(key, (value, _))| (key.clone(), value.clone()))
    }
}

/// A tree, a map, and the draws that decide what both are told.
struct Run {
    alone: Alone,
    clock: Clock,
    model: Model,
    random: fastrand::Rng,
}

impl Run {
    fn new(codec: CodecChoice, seed: u64) -> Self {
        let clock = Clock::manual(BEGUN_MS);
        let alone = Alone::with_clock(codec, clock.clone());
        if matches!(codec, CodecChoice::Auto | CodecChoice::Token) {
            let sample = WORDS.concat().repeat(20);
            let tokens = Dictionary::train(&[sample.as_bytes()], 10, 1).expect("the sample is sound");
            alone.tree.dictionaries.adopt(Coding::Tokens(Arc::new(tokens)));
        }
        let model = Model { records: BTreeMap::new(), now_ms: BEGUN_MS };
        Self { alone, clock, model, random: fastrand::Rng::with_seed(seed) }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{:06}", self.random.u32(..KEYS)).into_bytes()
    }

    /// Text or noise; most values are short, and few lie outside their leaf.
    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.u8(..) {
            0..2 => self.random.usize(3_000..if cfg!(miri) { 4_000 } else { 150_000 }),
            2..40 => self.random.usize(200..1_500),
            _ => self.random.usize(..120),
        };
        if self.random.u8(..) < 64 {
            return (0..bytes).map(|_| self.random.u8(..)).collect();
        }
        let mut text = String::new();
        while text.len() < bytes {
            text += WORDS[self.random.usize(..WORDS.len())];
        }
        text.into_bytes()
    }

    fn meta(&mut self) -> PutMeta {
        let expires_at_ms = (self.random.u8(..) < 25).then(|| self.model.now_ms + self.random.u64(1..2_000));
        PutMeta { expires_at_ms, flags: self.random.u32(..3) }
    }

    fn step(&mut self) {
        match self.random.u8(..) {
            0..110 => self.put(),
            110..150 => self.delete(),
            150..165 => self.expire(),
            165..180 => self.batch(),
            180..190 => self.rename_or_copy(),
            190..235 => self.get(),
            235..244 => self.multi_get(),
            244..250 => self.walk(),
            250..253 => {
                let by_ms = self.random.u64(..300);
                self.clock.advance(Duration::from_millis(by_ms));
                self.model.now_ms += by_ms;
            }
            253..255 => self.join(),
            255.. => self.alone.settle(),
        }
    }

    fn put(&mut self) {
        let (key, value, meta) = (self.key(), self.value(), self.meta());
        self.alone.put(&key, &value, meta).expect("no limit is set");
        self.model.put(&key, value, meta);
    }

    fn delete(&mut self) {
        let key = self.key();
        let existed = self.model.get(&key).is_some();
        let update = self.alone.writes().modify(&key, Wanted::Presence, |found| {
            assert_eq!(found.is_some(), existed);
            Update::Delete
        });
        assert_eq!(update, Ok(Update::Delete));
        self.model.records.remove(&key);
    }

    fn expire(&mut self) {
        let key = self.key();
        let at_ms = (self.random.bool()).then(|| self.model.now_ms + self.random.u64(..1_000));
        let exists = self.model.get(&key).is_some();
        let wanted = if exists { Update::Expire(at_ms) } else { Update::Keep };
        let update = self.alone.writes().modify(&key, Wanted::Meta, |_| wanted.clone());
        assert_eq!(update, Ok(wanted));
        if exists && let Some((_, meta)) = self.model.records.get_mut(&key) {
            meta.expires_at_ms = at_ms;
        }
    }

    fn batch(&mut self) {
        let asked = self.key();
        let holds = self.model.get(&asked).is_some();
        let mut batch = Batch::new().require(&asked, Condition::Exists);
        let mut made = Vec::new();
        for _ in 0..self.random.usize(1..30) {
            let key = self.key();
            if self.random.u8(..) < 64 {
                batch = batch.delete(&key);
                made.push((key, None));
            } else {
                let (value, meta) = (self.value(), self.meta());
                batch = batch.put_with(&key, &value, meta);
                made.push((key, Some((value, meta))));
            }
        }
        assert_eq!(self.alone.write(&batch), Ok(holds));
        for (key, record) in made.into_iter().filter(|_| holds) {
            match record {
                Some((value, meta)) => self.model.put(&key, value, meta),
                None => drop(self.model.records.remove(&key)),
            }
        }
    }

    fn rename_or_copy(&mut self) {
        let (source, target) = (self.key(), self.key());
        let (keep_source, replace) = (self.random.bool(), self.random.bool());
        let record = self.model.get(&source).cloned();
        let expected = match &record {
            None => Transferred::NoSource,
            Some(_) if !replace && self.model.get(&target).is_some() => Transferred::TargetExists,
            Some(_) => Transferred::Done,
        };
        let transferred = self.alone.writes().transfer(&source, &target, keep_source, replace);
        assert_eq!(transferred, Ok(expected));
        if let Some((value, meta)) = record.filter(|_| expected == Transferred::Done) {
            if !keep_source {
                self.model.records.remove(&source);
            }
            self.model.put(&target, value, meta);
        }
    }

    fn get(&mut self) {
        let key = self.key();
        let mut value = Vec::new();
        let found = self.alone.read(&key, &mut value).expect("nothing is damaged");
        let found = found.map(|meta| {
            assert_eq!(meta.len, value.len() as u64);
            (value, PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags })
        });
        assert_eq!(found.as_ref(), self.model.get(&key));
    }

    fn multi_get(&mut self) {
        let keys: Vec<_> = (0..self.random.usize(1..40)).map(|_| self.key()).collect();
        let mut values = Values::default();
        self.alone.reads().multi_get(&keys, u64::MAX, &mut values).expect("nothing is damaged");
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(values.get(index), self.model.get(key).map(|(value, _)| value.as_slice()));
        }
    }

    fn walk(&mut self) {
        let from = self.key();
        let range = || self.alone.reads().range(Bound::Included(from.clone()), Bound::Unbounded);
        let count = self.random.usize(..60);
        let ascending: Vec<_> = range().take(count).map(|record| record.expect("it is whole")).collect();
        assert_eq!(ascending, self.model.from(&from).take(count).collect::<Vec<_>>());
        let descending: Vec<_> =
            range().rev().take(count).map(|record| record.expect("it is whole")).collect();
        assert_eq!(descending, self.model.from(&from).rev().take(count).collect::<Vec<_>>());
    }

    /// Joins the leaf of a key with its right neighbour.
    fn join(&mut self) {
        let (key, alone) = (self.key(), &self.alone);
        alone.tree.with_leaf_of(&key, |leaf, guard| alone.join(leaf, guard));
    }

    fn check(&self) {
        let all = self.alone.reads().range(Bound::Unbounded, Bound::Unbounded);
        let all: Vec<_> = all.map(|record| record.expect("it is whole")).collect();
        assert_eq!(all, self.model.from(b"").collect::<Vec<_>>());
    }
}

#[test]
fn a_tree_says_what_a_map_says() {
    let codecs: &[CodecChoice] = if cfg!(miri) { &[CodecChoice::None] } else { &CodecChoice::ALL };
    for (seed, codec) in (1..).zip(codecs) {
        let mut run = Run::new(*codec, seed);
        (0..STEPS).for_each(|_| run.step());
        run.check();
        run.alone.settle();
        run.check();
        let splits = run.alone.tree.stats.splits.get();
        assert!(cfg!(miri) || splits > 5, "{codec}: leaves were split {splits} times");
    }
}

/// Each thread has keys of its own, which share leaves with those of the others.
#[test]
fn threads_that_write_beside_each_other_lose_nothing() {
    let alone = Alone::new(CodecChoice::None);
    let threads = 3u32;
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let alone = &alone;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread.into());
                    let mut own = BTreeMap::new();
                    for _ in 0..STEPS {
                        let key = format!("key:{:06}:{thread}", random.u32(..KEYS)).into_bytes();
                        let mut value = Vec::new();
                        let found = alone.read(&key, &mut value).expect("nothing is damaged");
                        assert_eq!(found.map(|_| value).as_ref(), own.get(&key));
                        let value = random.u32(..).to_le_bytes().repeat(random.usize(1..30));
                        alone.put(&key, &value, PutMeta::default()).expect("no limit is set");
                        own.insert(key, value);
                    }
                    own
                })
            })
            .collect();
        let own = writers.into_iter().map(|writer| writer.join().expect("it did not panic"));
        own.flatten().collect::<BTreeMap<_, _>>()
    });
    let all = alone.reads().range(Bound::Unbounded, Bound::Unbounded);
    assert!(all.map(|record| record.expect("it is whole")).eq(written));
}
