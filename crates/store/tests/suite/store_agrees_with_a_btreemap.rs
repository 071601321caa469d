//! A store that loses a key in a split, keeps a deleted one, or iterates out of order passes many a benchmark. Here
//! random operations run against the store and a `BTreeMap` at once, and every answer must be the same.
//!
//! `ZIPTIER_SEED=n` repeats the run of one seed; a failure names its seed. `ZIPTIER_RUNS=n` makes so many, from that
//! seed on.

use std::collections::BTreeMap;
use std::ops::Bound;

use ziptier::{
    Batch, BlockOptions, CodecChoice, Condition, Durability, DurableOptions, FarOptions, FarPlace, FarRatio,
    Meta, Options, PutMeta, SsdOptions, Store, Transferred, Update, Values,
};

use ziptier_testing::count;

type Model = BTreeMap<Vec<u8>, (Vec<u8>, PutMeta)>;

const CODECS: [CodecChoice; 6] = [
    CodecChoice::Auto,
    CodecChoice::None,
    CodecChoice::Token,
    CodecChoice::Lz4,
    CodecChoice::Zstd,
    CodecChoice::Deflate,
];

const NEVER_MS: u64 = 4_000_000_000_000;
const LONG_AGO_MS: u64 = 1_000;

struct Run {
    store: Store,
    model: Model,
    random: fastrand::Rng,
    keys: u32,
    /// Words that repeat, so that a value is a part of them.
    text: Vec<u8>,
    places: Places,
    options: Options,
    _folder: tempfile::TempDir,
}

/// What the store has besides DRAM.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    /// Bytes of far memory in a file, and a small limit of DRAM.
    far_bytes: Option<u64>,
    /// Leaves go to SSD and come back by chance.
    ssd: bool,
    /// It is kept in a folder, and closed and opened now and then.
    durable: bool,
}

const VALUE_BYTES_MAX: usize = 200_000;

const FAR_BYTES: u64 = 512 << 20;
const LITTLE_FAR_BYTES: u64 = 4 << 20;

impl Places {
    fn has_little_far(self) -> bool {
        self.far_bytes == Some(LITTLE_FAR_BYTES)
    }
}

impl Run {
    fn new(seed: u64, places: Places) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let Places { far_bytes, ssd, durable } = places;
        let ssd_limit_bytes = 256 << 20;
        let options = Options {
            ssd: ssd.then(|| SsdOptions {
                path: Some(folder.path().join("segments")),
                limit_bytes: ssd_limit_bytes,
            }),
            durable: durable.then(|| {
                let mut durable = DurableOptions::new(folder.path().join("store"));
                durable.durability = Durability::No;
                durable.checkpoint_log_bytes = Some(4 << 20);
                durable.log.segment_bytes = 1 << 20;
                durable
            }),
            codec: CODECS[(seed % CODECS.len() as u64) as usize],
            block: BlockOptions {
                bytes: [512, 1024, 4096, 16_384][random.usize(..4)],
                context_cache: random.u32(..4) > 0,
                background_codec: [None, Some(CodecChoice::Lz4), Some(CodecChoice::Zstd)][random.usize(..3)],
                ..BlockOptions::default()
            },
            heating: random.bool(),
            landing_bytes: [256, 512, 1024, 4096][random.usize(..4)],
            background_threads: random.usize(..3),
            background_packing: random.bool(),
            landing_watermark_pct: [100, 75, 1][random.usize(..3)],
            ..Options::default()
        };
        let options = Options {
            memory_limit_bytes: far_bytes.map(|bytes| {
                if bytes == LITTLE_FAR_BYTES {
                    1 << 20
                } else {
                    [2 << 20, 4 << 20, 8 << 20][random.usize(..3)]
                }
            }),
            far: far_bytes.map(|capacity_bytes| FarOptions {
                place: FarPlace::File(folder.path().join("far")),
                capacity_bytes,
                require_dax: false,
            }),
            far_ratio: FarRatio::new(1, 9).filter(|_| far_bytes.is_some() && random.bool()),
            ..options
        };
        let words = ["alpha", "beta", "gamma", "delta", "{\"id\":", ",\"name\":\"", "\n", " ", "0123"];
        let text: Vec<u8> = (0..4000).flat_map(|_| words[random.usize(..words.len())].bytes()).collect();
        let text = text.repeat(VALUE_BYTES_MAX / text.len() + 2);
        let keys = [20, 300, 5_000, 40_000][random.usize(..4)];
        let store = Store::open(options.clone()).unwrap();
        Self { store, model: Model::new(), random, keys, text, places, options, _folder: folder }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.u32(..self.keys);
        match number % 7 {
            0 => format!("key:{number:012}").into_bytes(),
            1 => format!("user/{}/{number}", number % 13).into_bytes(),
            2 => number.to_be_bytes().to_vec(),
            3 => vec![0; 1 + number as usize % 300],
            4 => format!("{:x}", number.wrapping_mul(0x9e37_79b9)).into_bytes(),
            5 => vec![255; 1 + number as usize % 40],
            _ => [b"common prefix that is rather long ".as_slice(), &number.to_le_bytes()].concat(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.u32(..100) {
            0..5 => 0,
            5..80 => self.random.usize(..200),
            80..97 => self.random.usize(..3_000),
            97..99 => self.random.usize(..20_000),
            _ => self.random.usize(..VALUE_BYTES_MAX),
        };
        // Large values that are placed at a ratio stay in memory, which must not be all there is then.
        let len = match (self.places.has_little_far(), self.options.far_ratio) {
            (true, None) if len >= 3_000 => len.min(20_000),
            (true, _) => (4 * len).min(2_000),
            (false, _) => len,
        };
        if self.random.u32(..10) == 0 {
            return (0..len).map(|_| self.random.u8(..)).collect();
        }
        let start = self.random.usize(..self.text.len() - VALUE_BYTES_MAX);
        self.text[start..][..len].to_vec()
    }

    fn meta(&mut self) -> PutMeta {
        PutMeta {
            expires_at_ms: match self.random.u32(..20) {
                0 => Some(LONG_AGO_MS),
                1..4 => Some(NEVER_MS + self.random.u64(..1000)),
                _ => None,
            },
            flags: if self.random.u32(..10) == 0 { self.random.u32(..) } else { 0 },
        }
    }

    fn model_put(&mut self, key: &[u8], value: Vec<u8>, meta: PutMeta) {
        if meta.expires_at_ms == Some(LONG_AGO_MS) {
            self.model.remove(key);
        } else {
            self.model.insert(key.to_vec(), (value, meta));
        }
    }

    fn expected_meta((value, meta): &(Vec<u8>, PutMeta)) -> Meta {
        Meta { len: value.len() as u64, expires_at_ms: meta.expires_at_ms, flags: meta.flags }
    }

    fn step(&mut self) {
        let key = self.key();
        if self.places.ssd && self.random.u32(..200) == 0 {
            self.move_leaves();
        }
        if self.places.durable && self.random.u32(..1500) == 0 {
            self.open_anew();
        }
        match self.random.u32(..103) {
            0..35 => {
                let (value, meta) = (self.value(), self.meta());
                self.store.put_with(&key, &value, meta).unwrap();
                self.model_put(&key, value, meta);
            }
            // Some leaf becomes hot.
            35 => (0..500).for_each(|_| self.get(&key)),
            36..60 => self.get(&key),
            60..70 => {
                assert_eq!(self.store.delete(&key).unwrap(), self.model.remove(&key).is_some());
            }
            70..75 => {
                let expires_at_ms = self.meta().expires_at_ms;
                let existed = self.store.set_expiry(&key, expires_at_ms).unwrap();
                assert_eq!(existed, self.model.contains_key(&key));
                if let Some((value, meta)) = self.model.remove(&key) {
                    self.model_put(&key, value, PutMeta { expires_at_ms, ..meta });
                }
            }
            75..80 => {
                let appended = self.value();
                self.store
                    .update(&key, |old| match old {
                        Some((old, _)) if old.len() < 10_000 => {
                            Update::Put([old, &appended].concat(), PutMeta::default())
                        }
                        Some(_) => Update::Delete,
                        None => Update::Put(appended.clone(), PutMeta::default()),
                    })
                    .unwrap();
                match self.model.remove(&key) {
                    Some((old, _)) if old.len() < 10_000 => {
                        self.model_put(&key, [old, appended].concat(), PutMeta::default());
                    }
                    Some(_) => {}
                    None => self.model_put(&key, appended, PutMeta::default()),
                }
            }
            80..85 => self.batch(key),
            85..88 => {
                let keys: Vec<_> = (0..10).map(|_| self.key()).collect();
                let mut values = Values::default();
                self.store.multi_get(&keys, &mut values).unwrap();
                for (index, key) in keys.iter().enumerate() {
                    assert_eq!(values.get(index), self.model.get(key).map(|(value, _)| value.as_slice()));
                }
            }
            88..90 => {
                let (offset, len) = (self.random.u64(..100_000), self.random.usize(..100_000));
                let mut part = Vec::new();
                let meta = self.store.read_at(&key, offset, len, &mut part).unwrap();
                let expected = self.model.get(&key);
                assert_eq!(meta, expected.map(Self::expected_meta));
                if let Some((value, _)) = expected {
                    let start = value.len().min(offset as usize);
                    assert_eq!(part, &value[start..value.len().min(start + len)]);
                }
            }
            90..99 => self.range(key),
            99..102 => self.transfer(&key),
            _ => {
                if self.random.u32(..20) == 0 {
                    self.store.clear().unwrap();
                    self.model.clear();
                } else {
                    self.store.settle().unwrap();
                }
                assert_eq!(self.store.len(), self.model.len() as u64);
            }
        }
    }

    /// Another codec reads what this one has written, too.
    fn open_anew(&mut self) {
        if self.random.bool() {
            self.store.checkpoint().unwrap();
        }
        if self.random.u32(..3) > 0 {
            let memory = Store::open(Options::default()).unwrap();
            std::mem::replace(&mut self.store, memory).close().unwrap();
            if self.random.u32(..4) == 0 {
                self.options.codec = CODECS[self.random.usize(..CODECS.len())];
            }
            let report = ziptier::check(self.options.durable.as_ref().unwrap()).unwrap();
            assert_eq!(report.damages, []);
            self.store = Store::open(self.options.clone()).unwrap();
            // What has expired was not dropped, for the log might have said otherwise.
            self.store.settle().unwrap();
            assert_eq!(self.store.len(), self.model.len() as u64);
        }
    }

    fn move_leaves(&mut self) {
        let random = &mut self.random;
        let share = [1, 2, 10][random.usize(..3)];
        if random.u32(..4) == 0 {
            self.store.bring_from_ssd(|| random.u32(..share) == 0);
        } else {
            self.store.send_to_ssd(|| random.u32(..share) == 0).unwrap();
        }
        if random.u32(..8) == 0 {
            let drawn = self.store.random_key(|| random.u64(..));
            assert!(drawn.map_or(self.model.is_empty(), |key| self.model.contains_key(&key)));
        }
        if random.u32(..20) == 0 {
            assert_eq!(self.store.len(), self.model.len() as u64);
        }
    }

    fn transfer(&mut self, source: &[u8]) {
        let target = self.key();
        let (keeps, replaces) = (self.random.bool(), self.random.bool());
        let done = match keeps {
            true => self.store.copy(source, &target, replaces),
            false => self.store.rename(source, &target, replaces),
        };
        let Some(carried) = self.model.get(source).cloned() else {
            return assert_eq!(done, Ok(Transferred::NoSource));
        };
        if !replaces && self.model.contains_key(&target) {
            return assert_eq!(done, Ok(Transferred::TargetExists));
        }
        assert_eq!(done, Ok(Transferred::Done));
        if !keeps {
            self.model.remove(source);
        }
        self.model.insert(target, carried);
    }

    fn get(&self, key: &[u8]) {
        let mut value = vec![1, 2, 3];
        let meta = self.store.get_into(key, &mut value).unwrap();
        let expected = self.model.get(key);
        assert_eq!(meta, expected.map(Self::expected_meta));
        assert_eq!(value, expected.map_or(&[][..], |(value, _)| value.as_slice()));
        assert_eq!(self.store.meta(key).unwrap(), meta);
    }

    fn batch(&mut self, key: Vec<u8>) {
        let mut batch = Batch::new();
        let condition = match self.random.u32(..4) {
            0 => Some((Condition::Exists, self.model.contains_key(&key))),
            1 => Some((Condition::Absent, !self.model.contains_key(&key))),
            2 => {
                let value = self.model.get(&key).map_or_else(Vec::new, |(value, _)| value.clone());
                Some((Condition::ValueIs(value), self.model.contains_key(&key)))
            }
            _ => None,
        };
        let holds = condition.as_ref().is_none_or(|(_, holds)| *holds);
        if let Some((condition, _)) = condition {
            batch = batch.require(&key, condition);
        }
        for _ in 0..self.random.usize(..30) {
            let key = self.key();
            if self.random.u32(..4) == 0 {
                batch = batch.delete(&key);
                if holds {
                    self.model.remove(&key);
                }
            } else {
                let value = self.value();
                batch = batch.put(&key, &value);
                if holds {
                    self.model_put(&key, value, PutMeta::default());
                }
            }
        }
        assert_eq!(self.store.write(&batch).unwrap(), holds);
    }

    fn range(&mut self, key: Vec<u8>) {
        let other = self.key();
        let (from, to) = if key <= other { (key, other) } else { (other, key) };
        let bound = |key: &[u8], random: &mut fastrand::Rng| match random.u32(..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key.to_vec()),
            _ => Bound::Excluded(key.to_vec()),
        };
        let (from, to) = (bound(&from, &mut self.random), bound(&to, &mut self.random));
        if let (Bound::Excluded(from), Bound::Excluded(to)) = (&from, &to)
            && from == to
        {
            return; // `BTreeMap` panics on this, the store has nothing to give
        }
        let mut expected = self.model.range((from.clone(), to.clone()));
        let mut range = self.store.range((from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice)));
        for _ in 0..200 {
            let (got, wanted) = if self.random.bool() {
                (range.next(), expected.next())
            } else {
                (range.next_back(), expected.next_back())
            };
            let got = got.transpose().unwrap();
            let got = got.as_ref().map(|(key, value)| (key, value));
            assert_eq!(got, wanted.map(|(key, (value, _))| (key, value)));
            if wanted.is_none() {
                break;
            }
        }
    }

    fn finish(mut self) {
        self.store.settle().unwrap();
        assert_eq!(self.store.len(), self.model.len() as u64);
        let all: Vec<_> = self.store.range(..).map(|record| record.unwrap()).collect();
        let expected: Vec<_> =
            self.model.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        assert_eq!(all.len(), expected.len());
        assert!(all == expected, "the store holds other records than the model");
        let prefix = self.key();
        let prefix = &prefix[..prefix.len().min(3)];
        let got: Vec<_> = self.store.prefix(prefix).map(|record| record.unwrap().0).collect();
        let expected: Vec<_> = self.model.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        assert_eq!(got, expected);
        self.store.bring_from_ssd(|| true);
        self.store.settle().unwrap();
        let logical: usize = self.model.iter().map(|(key, (value, _))| key.len() + value.len()).sum();
        assert_eq!(self.store.memory().logical_bytes, logical as u64);
    }
}

#[test]
fn store_agrees_with_a_btreemap() {
    agrees(Places::default());
}

#[test]
fn store_with_far_memory_agrees_with_a_btreemap() {
    agrees(Places { far_bytes: Some(FAR_BYTES), ..Places::default() });
}

#[test]
fn store_with_leaves_on_ssd_agrees_with_a_btreemap() {
    agrees(Places { ssd: true, ..Places::default() });
}

#[test]
fn store_in_a_folder_with_leaves_on_ssd_agrees_with_a_btreemap() {
    agrees(Places { ssd: true, durable: true, ..Places::default() });
}

#[test]
fn store_in_a_folder_with_all_places_agrees_with_a_btreemap() {
    agrees(Places { far_bytes: Some(FAR_BYTES), ssd: true, durable: true });
}

#[test]
fn store_with_all_places_agrees_with_a_btreemap() {
    agrees(Places { far_bytes: Some(FAR_BYTES), ssd: true, durable: false });
}

#[test]
fn store_with_little_far_memory_and_an_ssd_agrees_with_a_btreemap() {
    agrees(Places { far_bytes: Some(LITTLE_FAR_BYTES), ssd: true, durable: false });
}

/// Of a run, unless `ZIPTIER_STEPS` says otherwise: enough for thousands of records, dictionaries and several
/// checkpoints.
const STEPS: u64 = 6_000;

/// Six runs in CI, each with the next seed: these have every codec once.
fn agrees(places: Places) {
    let first = count("ZIPTIER_SEED", 0);
    let runs = if std::env::var_os("ZIPTIER_SEED").is_some() { 1 } else { CODECS.len() as u64 };
    for seed in first..first + count("ZIPTIER_RUNS", runs) {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed, places);
            for _ in 0..count("ZIPTIER_STEPS", STEPS) {
                run.step();
            }
            run.finish();
        });
        assert!(outcome.is_ok(), "failed with ZIPTIER_SEED={seed}");
    }
}
