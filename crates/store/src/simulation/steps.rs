//! The steps of a simulation.

use std::ops::Bound;
use std::time::Duration;

use ziptier_tree::batch::{Batch, Condition, Transferred};
use ziptier_tree::clock::steady;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::multi_get::Values;
use ziptier_tree::record::PutMeta;
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use super::model::Entry;
use super::setup::Random;
use super::world::{End, Running, World};

/// Steps of the background in a row.
const BACKGROUND_STEPS: u64 = 12;
/// Records of a walk.
const WALKED: usize = 30;
const WORDS: [&str; 8] = ["ship", "harbour", "captain", "and", "the", "whale", "lantern", "of"];
/// Values that a dictionary is trained on, and their bytes.
const SAMPLES: usize = 40;
const SAMPLE_BYTES: usize = 200;
/// The smallest limit of a store with dictionaries. Each takes about 50 KB.
const TRAINED_LIMIT_BYTES_MIN: u64 = 512 << 10;
/// Dictionaries that live at the same time, where a store has so little memory.
const DICTIONARIES_MAX: usize = 3;

impl World {
    pub(super) fn take_step(&mut self) {
        match self.random.below(1000) {
            0..330 => self.put(),
            330..400 => self.delete(),
            400..440 => self.expire(),
            440..500 => self.update(),
            500..540 => self.batch(),
            540..570 => self.transfer(),
            570..730 => self.get(),
            730..750 => self.multi_get(),
            750..765 => self.walk(),
            765..900 => self.work(),
            900..965 => self.wait(),
            965..980 => self.checkpoint(),
            980..984 => self.settle(),
            984..988 => self.move_leaves(),
            988..990 => self.trouble(),
            990..996 => self.end_and_start(),
            996..998 => self.change_room(),
            998 => self.clear(),
            _ => self.train(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        // Some keys are written far more often than others.
        let end = 1 + self.random.below(self.setup.keys);
        let number = self.random.below(end);
        match number % 9 {
            0 => format!("a/rather/long/prefix/that/keys/share/{number:06}").into_bytes(),
            1 => format!("{number}{}", "x".repeat(number as usize % 200)).into_bytes(),
            _ => format!("k{number:04}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.below(1000) {
            0 => 70_000,
            1..15 => 2049 + self.random.below(6000),
            15..80 => 300 + self.random.below(1700),
            _ => self.random.below(300),
        };
        let mut number = self.random.next();
        if number.is_multiple_of(3) {
            return self.text(len as usize);
        }
        // Half of the others repeat themselves.
        let repeats = number & 1 == 0;
        (0..len)
            .map(|at| {
                if !repeats {
                    number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                }
                (number >> (8 * (at % 7) + 8 * u64::from(!repeats && at % 7 == 0))) as u8
            })
            .collect()
    }

    /// Words, which dictionaries code in fewer bytes.
    fn text(&mut self, len: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(len + 16);
        while text.len() < len {
            text.extend_from_slice(self.random.one_of(&WORDS).as_bytes());
            text.push(b' ');
        }
        text.truncate(len);
        text
    }

    fn meta(&mut self) -> PutMeta {
        let expires_at_ms = self.random.once_in(8).then(|| self.expiry());
        PutMeta { expires_at_ms, flags: if self.random.once_in(10) { 7 } else { 0 } }
    }

    fn expiry(&mut self) -> u64 {
        self.clock.now_ms() + self.random.below(20_000)
    }

    fn put(&mut self) {
        self.what = "put";
        let (key, value, meta) = (self.key(), self.value(), self.meta());
        let before = self.newest();
        let outcome = self.core().writes().put(&key, &value, meta);
        let lsn = self.number_of(before, &outcome);
        if outcome.is_ok() {
            let PutMeta { expires_at_ms, flags } = meta;
            self.model.write(lsn, &key, Some(Entry { value, expires_at_ms, flags }));
            self.acknowledge();
        }
        self.note(outcome.is_ok());
    }

    fn delete(&mut self) {
        self.what = "delete";
        let key = self.key();
        let (before, mut existed) = (self.newest(), false);
        let outcome = self.core().writes().modify(&key, Wanted::Presence, |found| {
            existed = found.is_some();
            Update::Delete
        });
        let lsn = self.number_of(before, &outcome);
        if outcome.is_ok() {
            self.check_presence(&key, existed);
            self.model.write(lsn, &key, None);
            self.acknowledge();
        }
        self.note(existed);
    }

    fn expire(&mut self) {
        self.what = "expire";
        let key = self.key();
        let expires_at_ms = (!self.random.once_in(4)).then(|| self.expiry());
        let before = self.newest();
        let outcome = self.core().writes().modify(&key, Wanted::Meta, |_| Update::Expire(expires_at_ms));
        let lsn = self.number_of(before, &outcome);
        if let Ok(update) = outcome {
            let exists = update != Update::Keep;
            self.check_presence(&key, exists);
            if exists {
                let entry = self.model.get(&key, self.clock.now_ms()).cloned();
                self.model.write(lsn, &key, entry.map(|entry| Entry { expires_at_ms, ..entry }));
                self.acknowledge();
            }
            self.note(exists);
        }
    }

    /// Appends a byte to a value.
    fn update(&mut self) {
        self.what = "update";
        let (key, byte, meta) = (self.key(), self.random.next() as u8, self.meta());
        let (before, mut seen) = (self.newest(), None);
        let outcome = self.core().writes().modify(&key, Wanted::Bytes, |found| {
            seen = found.map(|(bytes, meta)| (bytes.to_vec(), meta));
            let mut value = found.map_or_else(Vec::new, |(bytes, _)| bytes.to_vec());
            value.push(byte);
            Update::Put(value, meta)
        });
        let lsn = self.number_of(before, &outcome);
        if let Ok(Update::Put(value, PutMeta { expires_at_ms, flags })) = outcome {
            self.compare(&key, seen.as_ref().map(|(value, meta)| (value.as_slice(), *meta)));
            self.model.write(lsn, &key, Some(Entry { value, expires_at_ms, flags }));
            self.acknowledge();
        }
    }

    fn batch(&mut self) {
        self.what = "batch";
        let (mut batch, mut changes) = (Batch::new(), Vec::new());
        for _ in 0..2 + self.random.below(6) {
            let key = self.key();
            if self.random.once_in(4) {
                batch = batch.delete(&key);
                changes.push((key, None));
            } else {
                let (value, meta) = (self.value(), self.meta());
                batch = batch.put_with(&key, &value, meta);
                let PutMeta { expires_at_ms, flags } = meta;
                changes.push((key, Some(Entry { value, expires_at_ms, flags })));
            }
        }
        let required = self.random.once_in(3).then(|| self.key());
        let wants = self.random.once_in(2);
        if let Some(key) = &required {
            batch = batch.require(key, if wants { Condition::Exists } else { Condition::Absent });
        }
        let before = self.newest();
        let outcome = self.core().writes().write(&batch);
        let lsn = self.number_of(before, &outcome);
        if let Ok(written) = outcome {
            if let Some(key) = &required {
                self.check_presence(key, written == wants);
            }
            if written {
                for (key, entry) in changes {
                    self.model.write(lsn, &key, entry);
                }
                self.acknowledge();
            }
            self.note(written);
        }
    }

    fn transfer(&mut self) {
        self.what = "rename or copy";
        let (source, target) = (self.key(), self.key());
        let (keep_source, replace) = (self.random.once_in(2), !self.random.once_in(3));
        let before = self.newest();
        let outcome = self.core().writes().transfer(&source, &target, keep_source, replace);
        let lsn = self.number_of(before, &outcome);
        let Ok(transferred) = outcome else { return };
        self.check_presence(&source, transferred != Transferred::NoSource);
        if transferred == Transferred::TargetExists {
            self.check_presence(&target, true);
        }
        if transferred == Transferred::Done && source != target {
            let entry = self.model.get(&source, self.clock.now_ms()).cloned();
            self.model.write(lsn, &target, entry);
            if !keep_source {
                self.model.write(lsn, &source, None);
            }
            self.acknowledge();
        }
    }

    /// A key that exists by the model may have been evicted.
    fn check_presence(&self, key: &[u8], exists: bool) {
        let expected = self.model.get(key, self.clock.now_ms()).is_some();
        let agrees = expected == exists || expected && self.may_be_gone;
        assert!(agrees, "{} exists: {exists}", String::from_utf8_lossy(key));
    }

    fn get(&mut self) {
        self.what = "get";
        let (key, mut value) = (self.key(), Vec::new());
        match self.core().read(&key, &mut value) {
            Ok(meta) => {
                self.compare(&key, meta.map(|meta| (value.as_slice(), meta)));
                self.note(meta.map(|meta| meta.len));
            }
            Err(error) => self.check_error(error),
        }
    }

    fn multi_get(&mut self) {
        self.what = "multi-get";
        let keys: Vec<Vec<u8>> = (0..1 + self.random.below(20)).map(|_| self.key()).collect();
        let mut values = Values::default();
        match self.core().multi_get(&keys, u64::MAX, &mut values) {
            Ok(()) => {
                for (index, key) in keys.iter().enumerate() {
                    let found = values.meta(index).map(|meta| (values.get(index).unwrap_or_default(), meta));
                    self.compare(key, found);
                }
            }
            Err(error) => self.check_error(error),
        }
    }

    /// Walks over some records in either direction.
    fn walk(&mut self) {
        self.what = "walk";
        let (from, backwards) = (self.key(), self.random.once_in(2));
        let (low, high) = match backwards {
            true => (Bound::Unbounded, Bound::Included(from.clone())),
            false => (Bound::Included(from.clone()), Bound::Unbounded),
        };
        let mut range = self.core().reads().range(low, high);
        let mut found = Vec::new();
        while found.len() < WALKED
            && let Some(next) = if backwards { range.next_back() } else { range.next() }
        {
            match next {
                Ok(record) => found.push(record),
                Err(error) => return self.check_error(error),
            }
        }
        let now_ms = self.clock.now_ms();
        let is_within = |key: &Vec<u8>| if backwards { *key <= from } else { *key >= from };
        let mut expected: Vec<_> = self.model.live(now_ms).filter(|(key, _)| is_within(key)).collect();
        if backwards {
            expected.reverse();
        }
        let mut expected = expected.into_iter();
        for (key, value) in &found {
            let is_there = match self.may_be_gone {
                true => expected.any(|(at, entry)| at == key && entry.value == *value),
                false => expected.next().is_some_and(|(at, entry)| at == key && entry.value == *value),
            };
            assert!(is_there, "{} is not the next record", String::from_utf8_lossy(key));
        }
        assert!(
            found.len() == WALKED || self.may_be_gone || expected.next().is_none(),
            "a walk ended too soon, after {} records",
            found.len()
        );
        drop(expected);
        self.note(found.len());
    }

    fn work(&mut self) {
        self.what = "background";
        let steps = 1 + self.random.below(BACKGROUND_STEPS);
        let Running { core, background } = self.running.as_mut().expect("it runs between steps");
        for _ in 0..steps {
            if !core.maintenance().do_next(background, steady()) {
                core.tree.reclaim();
                core.reclaimer().maintain_dictionary();
                break;
            }
        }
    }

    fn wait(&mut self) {
        self.what = "wait";
        let time_ms = self.random.one_of(&[1, 10, 100, 1_000, 5_000]);
        self.pass(Duration::from_millis(time_ms));
    }

    /// What the thread of checkpoints does when it looks.
    fn checkpoint(&mut self) {
        self.what = "checkpoint";
        let now = self.random.once_in(5);
        let core = self.core();
        let (Some(checkpointer), Some(journal)) = (core.checkpointer.get(), core.journal.get()) else {
            return;
        };
        if now || checkpointer.is_due(&core.tree.gauges, journal) {
            let made = checkpointer.checkpoint(core.moves(), journal);
            let is_ok = made.is_ok();
            let may_fail = self.is_troubled || self.setup.ssd_bytes.is_some();
            assert!(is_ok || may_fail, "{made:?}");
            self.note(is_ok);
        }
    }

    fn settle(&mut self) {
        self.what = "settle";
        self.core().settle();
    }

    fn move_leaves(&mut self) {
        self.what = "moves of leaves";
        let (kind, mut picked) = (self.random.below(3), Random(self.random.next()));
        let mut picks = || picked.once_in(2);
        let core = self.core();
        match kind {
            0 => drop(core.moves().send_some_to_ssd(&mut picks)),
            1 => drop(core.moves().raise_some_from_ssd(&mut picks)),
            _ => drop(core.moves().raise_some_from_far(&mut picks)),
        }
    }

    /// The disk becomes full, has room again, or fails.
    fn trouble(&mut self) {
        self.what = "trouble";
        if self.setup.durability.is_none() {
            return;
        }
        self.is_troubled = true;
        match self.random.below(4) {
            0 => {
                let nth = self.random.below(8);
                self.disk.fail_sync_forgetfully(nth);
            }
            1 => {
                let operations = if self.random.once_in(2) { 0 } else { self.random.below(60) };
                self.failing.fail_after(operations);
            }
            2 => self.failing.set_full(true),
            _ => self.failing.set_full(false),
        }
    }

    fn end_and_start(&mut self) {
        if !self.is_troubled && !self.random.once_in(6) {
            return;
        }
        let end = self.random.one_of(&[End::Stop, End::Kill, End::PowerCut]);
        // A kill or a power cut comes in the middle of something.
        match self.random.below(4) {
            0 => self.checkpoint(),
            1 => self.work(),
            2 => self.batch(),
            _ => {}
        }
        self.restart(end);
    }

    /// Changes the limit, or whether the store evicts.
    fn change_room(&mut self) {
        self.what = "change of room";
        let Some(limit_bytes) = self.setup.limit_bytes else { return };
        if self.setup.ssd_bytes.is_none() && self.random.once_in(2) {
            self.setup.evicts = !self.setup.evicts;
            self.may_be_gone = true;
            let changed = self.core().reclaimer().set_eviction(self.setup.evicts);
            assert_eq!(changed, Ok(()));
            return;
        }
        let limit_bytes = limit_bytes * (75 + self.random.below(60)) / 100;
        let limit_bytes = limit_bytes.clamp(192 << 10, 1 << 20);
        self.setup.limit_bytes = Some(limit_bytes);
        self.core().set_memory_limit(Some(limit_bytes));
    }

    /// A dictionary is trained, as in a store that is larger.
    fn train(&mut self) {
        self.what = "training";
        let has_room =
            self.setup.limit_bytes.is_none_or(|limit_bytes| limit_bytes >= TRAINED_LIMIT_BYTES_MIN);
        if self.setup.codec == CodecChoice::None || !has_room || self.random.once_in(2) {
            return;
        }
        let samples: Vec<Vec<u8>> = (0..SAMPLES).map(|_| self.text(SAMPLE_BYTES)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let adopted = self.core().tree.dictionaries.adopt_one_of(&samples, DICTIONARIES_MAX);
        self.note(adopted);
    }

    /// Each leaf has a record of the log of its own, so the log is synced before a power cut may come.
    fn clear(&mut self) {
        self.what = "clear";
        if self.is_troubled || !self.random.once_in(10) {
            return;
        }
        let outcome = self.core().maintenance().clear();
        assert_eq!(outcome, Ok(()));
        self.reached.clears += 1;
        let lsn = self.newest();
        let synced = self.core().journal.get().map_or(Ok(()), |journal| journal.log().sync(lsn));
        assert_eq!(synced, Ok(()));
        let keys: Vec<Vec<u8>> = self.model.live(0).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.model.write(lsn, key, None));
        self.acknowledge();
    }
}
