//! `file:PATH[+fdatasync][+overwrite]`: the raw medium as a store, to see what a data access function makes of it.
//!
//! Each key has a slot of whole blocks, at the place of its number: there is no index to read and nothing to compact.
//! A read is one `pread`, a write one `pwrite`, and a delete reads the slot and writes a tombstone. A slot has the
//! number of the run, the version, the lengths, the key, and the value:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | number of the run, so that nothing that was there before is taken for a value |
//! | 4 | version: how often the slot was written |
//! | 4 | length of the value; all ones for a tombstone |
//! | 4 | length of the key |
//! | that | the key |
//!
//! Sixteen neighbouring slots share a lock, so that no reader sees a slot that is half written.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::data::oracle::Oracle;
use crate::medium::{Access, Aligned, BLOCK_BYTES, Medium};
use crate::target::{Answers, Config, Records, Target, TargetError};
use crate::workload::mix::Operation;

/// The name of the target in lists.
pub(crate) const NAME: &str = "file:PATH[+fdatasync][+overwrite]";
const SCHEME: &str = "file:";
const FDATASYNC: &str = "+fdatasync";
const OVERWRITE: &str = "+overwrite";

/// Without the key.
const HEADER_BYTES: usize = 8 + 4 + 4 + 4;
const DELETED: u32 = u32::MAX;
/// Slots behind one lock, which a scan reads at once.
const GROUP: usize = 16;

#[derive(Debug, PartialEq, Eq)]
struct Address {
    path: PathBuf,
    is_durable: bool,
    access: Access,
}

impl FromStr for Address {
    type Err = String;

    /// The error is a sentence that begins with "it".
    fn from_str(text: &str) -> Result<Self, String> {
        let mut rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let (mut is_durable, mut access) = (false, Access::Write);
        loop {
            if let Some(before) = rest.strip_suffix(FDATASYNC) {
                (rest, is_durable) = (before, true);
            } else if let Some(before) = rest.strip_suffix(OVERWRITE) {
                (rest, access) = (before, Access::Overwrite);
            } else {
                break;
            }
        }
        match rest {
            "" => Err(format!("it names no file; give {NAME}")),
            path => Ok(Address { path: path.into(), is_durable, access }),
        }
    }
}

/// The versions of a group's slots, as they were written last.
type Versions = [u32; GROUP];

/// A medium with a slot for each key.
#[derive(Debug)]
pub struct FileTarget {
    medium: Medium,
    is_durable: bool,
    run: u64,
    slot_bytes: usize,
    /// The key spaces, one behind the other.
    oracles: Vec<Arc<Oracle>>,
    groups: Vec<RwLock<Versions>>,
    /// Slots that no thread uses now.
    idle: Mutex<Vec<Aligned>>,
    written_slots: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// A slot's key and value; no value for a tombstone.
type Slot<'a> = (&'a [u8], Option<&'a [u8]>);

impl FileTarget {
    /// The place of a key, if it has one.
    fn slot(&self, key: &[u8]) -> Option<usize> {
        let mut first = 0;
        for oracle in &self.oracles {
            if let Some(index) = oracle.index(key) {
                return Some((first + index) as usize);
            }
            first += oracle.len();
        }
        None
    }

    /// Calls `with` with room for a slot that is this thread's alone.
    fn with_slot<R>(&self, with: impl FnOnce(&mut Aligned) -> R) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut slot = taken.unwrap_or_else(|| Aligned::new(self.slot_bytes));
        let answer = with(&mut slot);
        idle().push(slot);
        answer
    }

    fn read(&self, slot: usize, bytes: &mut [u8]) -> Result<(), String> {
        self.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.medium.read((slot * self.slot_bytes) as u64, bytes)
    }

    /// The record in a slot that has this version; nothing if it was never written.
    fn decode<'a>(&self, slot: usize, version: u32, bytes: &'a [u8]) -> Result<Option<Slot<'a>>, String> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let is_ours = bytes[..8] == self.run.to_le_bytes();
        let found = if is_ours { number(8) } else { 0 };
        if found != version {
            return Err(format!("slot {slot} of the medium has version {found}, and {version} was written"));
        }
        if found == 0 {
            return Ok(None);
        }
        let says = |length: u32| format!("slot {slot} of the medium says {length} bytes");
        let key_bytes = number(16);
        let parted = bytes[HEADER_BYTES..].split_at_checked(key_bytes as usize);
        let (key, value) = parted.ok_or_else(|| says(key_bytes))?;
        match number(12) {
            DELETED => Ok(Some((key, None))),
            length => {
                let value = value.get(..length as usize).ok_or_else(|| says(length))?;
                Ok(Some((key, Some(value))))
            }
        }
    }

    /// Writes the next version of a slot: the value, or a tombstone.
    fn write(&self, slot: usize, version: &mut u32, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        self.with_slot(|bytes| {
            let next = *version + 1;
            bytes[..8].copy_from_slice(&self.run.to_le_bytes());
            bytes[8..12].copy_from_slice(&next.to_le_bytes());
            let length = value.map_or(DELETED, |value| value.len() as u32);
            bytes[12..16].copy_from_slice(&length.to_le_bytes());
            bytes[16..HEADER_BYTES].copy_from_slice(&(key.len() as u32).to_le_bytes());
            let (room, rest) = bytes[HEADER_BYTES..].split_at_mut(key.len());
            room.copy_from_slice(key);
            if let Some(value) = value {
                rest[..value.len()].copy_from_slice(value);
            }
            self.medium.write((slot * self.slot_bytes) as u64, bytes)?;
            self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.written_slots.fetch_add(u64::from(*version == 0), Ordering::Relaxed);
            *version = next;
            Ok(())
        })
    }

    /// Makes durable what has returned, where that was asked for.
    fn sync(&self) -> Result<(), String> {
        if self.is_durable { self.medium.sync() } else { Ok(()) }
    }

    /// Calls `with` with the value of a key, read from its slot.
    fn look_up<R>(&self, key: &[u8], with: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, TargetError> {
        let Some(slot) = self.slot(key) else { return Ok(with(None)) };
        let versions = self.groups[slot / GROUP].read().unwrap_or_else(PoisonError::into_inner);
        self.with_slot(|bytes| {
            self.read(slot, bytes)?;
            match self.decode(slot, versions[slot % GROUP], bytes)? {
                Some((found, _)) if found != key => {
                    Err(format!("slot {slot} of the medium has the key {}", found.escape_ascii()).into())
                }
                found => Ok(with(found.and_then(|(_, value)| value))),
            }
        })
    }

    fn is_in_order(&self) -> bool {
        self.oracles.iter().all(|oracle| oracle.is_in_order())
    }
}

/// A number that no run before had.
fn run_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64) << 16 | u64::from(std::process::id() & 0xffff)
}

impl Target for FileTarget {
    type Batch = Answers;

    fn check(config: &Config) -> Result<(), TargetError> {
        let Address { path, access, .. } = config.target.parse()?;
        if config.instances > 1 {
            return Err("it is one medium; leave out --instances".into());
        }
        if config.is_replay {
            return Err(
                "it has slots for keys that are known beforehand, and a trace has others; leave out --trace"
                    .into(),
            );
        }
        config.options.take_only(&[])?;
        Ok(Medium::check(&path, access)?)
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        Self::check(config)?;
        let Address { path, is_durable, access } = config.target.parse()?;
        let keys: u64 = config.oracles.iter().map(|oracle| oracle.len()).sum();
        let record = |oracle: &Arc<Oracle>| oracle.keys().bytes_max() + oracle.values().bytes_max();
        let record_bytes = config.oracles.iter().map(record).max().unwrap_or(0);
        let slot_bytes = |block_bytes: usize| (HEADER_BYTES + record_bytes).next_multiple_of(block_bytes);
        // A device with larger blocks than usual is opened for what these need.
        let bytes = keys * slot_bytes(BLOCK_BYTES) as u64;
        let medium = Medium::open(&path, bytes, access)?.unnamed();
        let slot_bytes = slot_bytes(medium.block_bytes());
        if medium.bytes() < keys * slot_bytes as u64 {
            let (has, needed) = (medium.bytes(), keys * slot_bytes as u64);
            return Err(format!("its medium has {has} bytes, and {needed} are needed").into());
        }
        Ok(FileTarget {
            medium,
            is_durable,
            run: run_number(),
            slot_bytes,
            oracles: config.oracles.clone(),
            groups: (0..keys.div_ceil(GROUP as u64)).map(|_| RwLock::new([0; GROUP])).collect(),
            idle: Mutex::default(),
            written_slots: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        self.look_up(key, |found| {
            value.extend_from_slice(found.unwrap_or_default());
            found.is_some()
        })
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        keys.iter().try_for_each(|key| self.look_up(key, |found| batch.push(found)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let slot = self.slot(key).ok_or("the medium has no slot for this key")?;
        {
            let mut versions = self.groups[slot / GROUP].write().unwrap_or_else(PoisonError::into_inner);
            self.write(slot, &mut versions[slot % GROUP], key, Some(value))?;
        }
        Ok(self.sync()?)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        let Some(slot) = self.slot(key) else { return Ok(false) };
        let existed = {
            let mut versions = self.groups[slot / GROUP].write().unwrap_or_else(PoisonError::into_inner);
            let version = &mut versions[slot % GROUP];
            let existed = self.with_slot(|bytes| {
                self.read(slot, bytes)?;
                Ok::<_, String>(matches!(self.decode(slot, *version, bytes)?, Some((_, Some(_)))))
            })?;
            if existed {
                self.write(slot, version, key, None)?;
            }
            existed
        };
        self.sync()?;
        Ok(existed)
    }

    /// Reads slots in their order, which is that of the numbers of keys.
    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        if let Some(reason) = self.refuses(Operation::Scan) {
            return Err(reason.into());
        }
        let Some(from) = self.slot(from) else { return Ok(()) };
        let mut bytes = Aligned::new(GROUP * self.slot_bytes);
        let end = records.len() + limit;
        let slots = self.oracles.iter().map(|oracle| oracle.len()).sum::<u64>() as usize;
        for group in from / GROUP..self.groups.len() {
            let first = from.max(group * GROUP);
            let last = slots.min((group + 1) * GROUP);
            let bytes = &mut bytes[..(last - first) * self.slot_bytes];
            let versions = self.groups[group].read().unwrap_or_else(PoisonError::into_inner);
            self.read(first, bytes)?;
            for (slot, bytes) in (first..last).zip(bytes.chunks(self.slot_bytes)) {
                if records.len() == end {
                    return Ok(());
                }
                if let Some((key, Some(value))) = self.decode(slot, versions[slot % GROUP], bytes)? {
                    records.push(key, value);
                }
            }
        }
        Ok(())
    }

    fn refuses(&self, operation: Operation) -> Option<String> {
        (operation == Operation::Scan && !self.is_in_order()).then(|| {
            "its slots are in the order of the numbers of keys, which these keys do not have; leave scan out of --mix, \
             or give --key-shape decimal"
                .into()
        })
    }

    fn held_bytes(&self) -> Option<u64> {
        Some(self.written_slots.load(Ordering::Relaxed) * self.slot_bytes as u64)
    }

    fn describe(&self) -> String {
        format!(
            "slots of {} bytes, {}, {}; {} bytes read and {} written in all",
            self.slot_bytes,
            self.medium.way(),
            if self.is_durable { "fdatasync after each write" } else { "without fdatasync" },
            self.read_bytes.load(Ordering::Relaxed),
            self.written_bytes.load(Ordering::Relaxed)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::data::keys::{KeyShape, Keys};
    use crate::data::values::{ValueBytes, Values};

    fn config(path: &std::path::Path, words: &str) -> Config {
        let corpus: Arc<Vec<u8>> = Arc::new((0..4_000u32).flat_map(u32::to_le_bytes).collect());
        let region = 0..corpus.len();
        let values = Values::new(corpus, region, ValueBytes { min: 0, max: 5_000 }, 1).unwrap();
        Config {
            target: format!("{SCHEME}{}{words}", path.display()),
            oracles: vec![Arc::new(Oracle::new(Keys::new(KeyShape::Decimal, None), 0, 100, values))],
            ..Config::default()
        }
    }

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Address>();
        let address = |path: &str, is_durable, access| Ok(Address { path: path.into(), is_durable, access });
        assert_eq!(read("file:/a b"), address("/a b", false, Access::Write));
        assert_eq!(read("file:a+b+fdatasync"), address("a+b", true, Access::Write));
        assert_eq!(read("file:/dev/x+overwrite+fdatasync"), address("/dev/x", true, Access::Overwrite));
        assert!(read("file:+overwrite").unwrap_err().contains("it names no file"));
    }

    #[test]
    fn a_medium_that_was_made_here_has_no_name_to_leave_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("medium");
        let config = config(&path, "");
        let target = FileTarget::open(&config).unwrap();
        let (key, mut value) = (config.oracles[0].key(3), Vec::new());
        target.put(&key, b"value").unwrap();
        assert!(target.get(&key, &mut value).unwrap() && value == b"value");
        assert!(!path.exists(), "a process that is killed now leaves it behind");
    }

    /// What another run has left is no value of this one, and a medium that loses a write, or writes to the wrong
    /// place, is caught though its bytes are whole.
    #[test]
    fn slots_of_others_and_old_ones_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("medium");
        std::fs::write(&path, "something").unwrap();
        let config = config(&path, "+overwrite");
        let key = |index| config.oracles[0].key(index);
        let mut value = Vec::new();
        for _ in 0..2 {
            let target = FileTarget::open(&config).unwrap();
            assert_eq!(target.slot_bytes, 8192);
            assert!(!target.get(&key(3), &mut value).unwrap());
            target.put(&key(3), b"first").unwrap();
            let old = std::fs::read(&path).unwrap();
            target.put(&key(3), &[7; 5_000]).unwrap();
            assert!(target.get(&key(3), &mut value).unwrap() && value == [7; 5_000]);
            let now = std::fs::read(&path).unwrap();
            std::fs::write(&path, &old).unwrap();
            let told = target.get(&key(3), &mut value).unwrap_err().to_string();
            assert_eq!(told, "slot 3 of the medium has version 1, and 2 was written");
            std::fs::write(&path, &now).unwrap();
            target.put(&key(4), b"a").unwrap();
            target.put(&key(4), b"b").unwrap();
            let other = std::fs::File::options().write(true).open(&path).unwrap();
            other.write_all_at(&now[3 * 8192..4 * 8192], 4 * 8192).unwrap();
            let told = target.get(&key(4), &mut value).unwrap_err().to_string();
            assert!(told.contains("has the key key:000000000003"), "{told}");
        }
    }
}
