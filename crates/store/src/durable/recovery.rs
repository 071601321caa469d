//! From a folder to a store that is ready: what the last checkpoint holds, then the log behind it.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::{Log, LogOptions, Lsn, Replay};

use super::journal::Journal;
use super::operation::{Operation, Operations};
use super::{DurableOptions, Recovered, Recovery};
use crate::Error;
use crate::core::Core;
use crate::record::{Kind, PutMeta};

/// The folder of the log within the store's.
const LOG_DIR: &str = "log";
/// Files that a store's folder may hold; anything else belongs to somebody else.
const OWN_FILES: [&str; 2] = ["LOCK", "MANIFEST"];
/// Records between two calls for progress.
const RECORDS_PER_REPORT: u64 = 4096;
/// Keys of a range that are deleted at a time.
const KEYS_PER_STEP: usize = 256;

/// Fills an empty store from its folder, and opens the log that its writes go to. Lifts the memory limit for that.
pub(crate) fn recover(
    core: &Core,
    options: &DurableOptions,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    core.gauges.set_limit(None);
    let disk = options.disk();
    check_folder(&*disk, &options.dir)?;
    disk.create_dir(&options.dir)?;
    let lock = disk.lock_dir(&options.dir)?;
    let start_lsn = load(core, &disk, options)?;

    let log_options = LogOptions { salvage: options.salvage, first_lsn: start_lsn, ..options.log };
    let mut replay = Log::open(disk, &options.dir.join(LOG_DIR), log_options)?;
    replay.start_at(start_lsn)?;
    let recovered = self::replay(core, &mut replay, options.salvage, progress)?;
    let log = replay.into_log()?;
    let journal = Journal::start(log, options.durability, options.waits, lock)?;
    core.recovering.store(false, Ordering::Relaxed);
    let is_first = core.journal.set(journal).is_ok();
    assert!(is_first, "a store recovers once");
    Ok(recovered)
}

/// Loads what the last checkpoint holds; the first record that the log has to add to it.
fn load(_core: &Core, _disk: &Arc<dyn Disk>, _options: &DurableOptions) -> Result<Lsn, Error> {
    Ok(1)
}

/// Refuses a folder that is not a store's.
fn check_folder(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        names => names?,
    };
    let is_own = |name: &String| OWN_FILES.iter().any(|own| name.starts_with(own));
    match names.into_iter().find(|name| !is_own(name)) {
        Some(name) => Err(Error::ForeignFile { path: dir.join(name) }),
        None => Ok(()),
    }
}

/// Does everything that the log says, in its order.
fn replay(
    core: &Core,
    replay: &mut Replay,
    salvage: bool,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    let mut recovered = Recovered::default();
    loop {
        if recovered.records.is_multiple_of(RECORDS_PER_REPORT) {
            let (done_bytes, all_bytes) = replay.progress();
            progress(Recovery { done_bytes, all_bytes });
        }
        let Some(record) = replay.next_record()? else { break };
        recovered.records += 1;
        recovered.log_bytes += record.payload.len() as u64;
        if let Err(reason) = apply(core, record.payload)? {
            if !salvage {
                return Err(Error::LogRecord { lsn: record.lsn, reason });
            }
            recovered.skipped.push(format!("record {} of the log: {reason}", record.lsn));
        }
    }
    recovered.is_sealed = replay.is_sealed();
    recovered.torn_tail = replay.torn_tail().cloned();
    let skipped = replay.skipped().iter().map(|skipped| {
        let (path, offset, bytes) = (skipped.path.display(), skipped.offset, skipped.bytes);
        format!("{bytes} bytes of {path} from byte {offset} on: {}", skipped.reason)
    });
    recovered.skipped.extend(skipped);
    Ok(recovered)
}

/// Does what one record says; the inner error is the record's.
fn apply(core: &Core, record: &[u8]) -> Result<Result<(), String>, Error> {
    let operations = match Operations::of(record) {
        Ok(operations) => operations,
        Err(reason) => return Ok(Err(reason)),
    };
    // All or none: a record of which a part cannot be read does nothing.
    let operations: Vec<Operation<'_>> = match operations.collect() {
        Ok(operations) => operations,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    operations.iter().try_for_each(|operation| core.redo(operation))?;
    Ok(Ok(()))
}

impl Core {
    /// Does what was logged, whatever is there now.
    fn redo(&self, operation: &Operation<'_>) -> Result<(), Error> {
        match *operation {
            Operation::Put { key, value, expires_at_ms, flags } => {
                self.put(key, value, PutMeta { expires_at_ms, flags })
            }
            Operation::Delete { key } => self.append_bare(key, Kind::Tombstone, None),
            Operation::Expire { key, expires_at_ms } => self.append_bare(key, Kind::Touch, expires_at_ms),
            Operation::DeleteRange { low, high } => self.delete_range(low, high),
        }
    }

    fn delete_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        let mut from = Bound::Included(low.to_vec());
        loop {
            let keys = self.keys_from(from.as_ref().map(Vec::as_slice), KEYS_PER_STEP)?;
            let Some((last, _)) = keys.last() else { return Ok(()) };
            from = Bound::Excluded(last.clone());
            for (key, _) in keys {
                if high.is_some_and(|high| key.as_slice() >= high) {
                    return Ok(());
                }
                self.append_bare(&key, Kind::Tombstone, None)?;
            }
        }
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Log(error.into())
    }
}
