//! The ziptier store behind the server.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier::{
    Batch, CodecChoice, Condition, Durability, Error, ErrorKind, Keys, OldValue, OpenValue, Options, PutMeta,
    Recovery, Store, Values,
};

use crate::backend::{
    Access, Backend, BackendError, Change, ChangeMeta, EachRecord, EachValue, FarUse, Grant, MemoryUse, Meta,
    Need, Old, Operation, Patience, Save, Saving, Transfer, Transferred, Update, ValueReader,
};
use crate::memory_limit::store_bytes_at_start;
use crate::process::raise_open_files;
use crate::shared::unix_ms;

/// Leaves without records that a walk passes from one record to the next: as many as the store passes in one call for
/// keys. On an SSD each of them may cost a read.
const PASSED_LEAVES_MAX: usize = 64;
/// Segments of a folder have up to so many times the bytes that the store may hold: twice the images, and the images
/// that a checkpoint writes before it ends.
const FOLDER_TIMES: u64 = 3;
/// Bytes of a multi-get's values that a thread keeps for its next one.
const VALUES_KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static VALUES: RefCell<Values> = RefCell::default();
}

/// A [`Store`] as a [`Backend`].
#[derive(Debug)]
pub struct StoreBackend {
    store: Store,
    codec: CodecChoice,
    limit_bytes: Option<u64>,
    far_anonymous_bytes: u64,
    /// Bytes of a segment in the folder of a store without an SSD.
    segment_bytes: u64,
    /// The server stops, and would wait for a count of all keys, or for a look at all leaves.
    is_stopping: AtomicBool,
}

impl StoreBackend {
    /// Opens a store. Its calls do not wait for durability; workers wait once for all requests of a round.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::open_with(options, |_| {})
    }

    /// As [`StoreBackend::open`], and tells how far the recovery has come.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_with(mut options: Options, progress: impl FnMut(Recovery)) -> Result<Self, Error> {
        let (codec, limit_bytes) = (options.codec, options.memory_limit_bytes);
        let segment_bytes = options.durable.as_ref().map_or(0, |durable| durable.segments.segment_bytes);
        if let Some(durable) = &mut options.durable {
            durable.waits = false;
            if options.eviction {
                // A recovery keeps this limit, with buffers of its own beside it.
                options.memory_limit_bytes = limit_bytes.map(|bytes| bytes.min(store_bytes_at_start(bytes)));
            }
        }
        let store = Store::open_with(options, progress)?;
        let far_anonymous_bytes = store.far().map_or(0, |far| far.anonymous_bytes);
        let is_stopping = AtomicBool::new(false);
        Ok(Self { store, codec, limit_bytes, far_anonymous_bytes, segment_bytes, is_stopping })
    }

    /// Ends the store, and tells whether everything is durable.
    ///
    /// # Errors
    ///
    /// As [`Store::close`].
    pub fn close(self) -> Result<(), Error> {
        self.store.close()
    }

    /// The store itself.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NoRoom => Self::MemoryLimit,
            _ => Self::Refused(error.to_string()),
        }
    }
}

impl From<ziptier::Meta> for Meta {
    fn from(meta: ziptier::Meta) -> Self {
        Self { len: meta.len, expires_at_ms: meta.expires_at_ms }
    }
}

impl From<Update> for ziptier::Update {
    fn from(update: Update) -> Self {
        match update {
            Update::Put { value, expires_at_ms } => Self::Put(value, put_meta(expires_at_ms)),
            Update::Expire { expires_at_ms } => Self::Expire(expires_at_ms),
            Update::Delete => Self::Delete,
            Update::Keep => Self::Keep,
        }
    }
}

fn put_meta(expires_at_ms: Option<u64>) -> PutMeta {
    PutMeta { expires_at_ms, ..PutMeta::default() }
}

fn batch(operations: &[Operation<'_>]) -> Batch {
    operations.iter().fold(Batch::new(), |batch, operation| match operation {
        Operation::Put { key, value } => batch.put(key, value),
        Operation::Delete { key } => batch.delete(key),
        Operation::RequireAbsent { key } => batch.require(key, Condition::Absent),
    })
}

impl ValueReader for OpenValue {
    fn len(&self) -> u64 {
        self.meta().len
    }

    fn own_bytes(&self) -> usize {
        OpenValue::own_bytes(self)
    }

    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError> {
        Ok(OpenValue::read_at(self, offset, len, out)?)
    }
}

impl Backend for StoreBackend {
    fn get_into(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, BackendError> {
        let meta = self.store.get_up_to(key, bytes_max as u64, value)?;
        if meta.is_some_and(|meta| meta.len > bytes_max as u64) {
            value.clear();
        }
        Ok(meta.map(Meta::from))
    }

    fn multi_get(&self, keys: &[&[u8]], bytes_max: usize, each: &mut EachValue<'_>) {
        let mut values = VALUES.take();
        if self.store.multi_get_up_to(keys, bytes_max as u64, &mut values).is_ok() {
            for index in 0..keys.len() {
                let value = values.get(index).filter(|value| value.len() <= bytes_max);
                if !each(Ok(values.meta(index).map(|meta| (meta.into(), value.unwrap_or_default())))) {
                    break;
                }
            }
        } else {
            // Only one key failed; the others still get their answers.
            let mut value = Vec::new();
            for key in keys {
                let found = self.get_into(key, bytes_max, &mut value);
                if !each(found.map(|meta| meta.map(|meta| (meta, &value[..])))) {
                    break;
                }
            }
        }
        if values.held_bytes() <= VALUES_KEPT_BYTES {
            VALUES.set(values);
        }
    }

    fn prepare(&self, keys: &[&[u8]], access: Access) {
        match access {
            Access::Read => self.store.prepare_reads(keys),
            Access::Write => self.store.prepare_writes(keys),
        }
    }

    fn open_value(&self, key: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError> {
        let value = self.store.open_value(key)?;
        Ok(value.map(|value| Box::new(value) as Box<dyn ValueReader>))
    }

    fn open_values(&self) -> u64 {
        self.store.open_values()
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>, BackendError> {
        Ok(self.store.meta(key)?.map(Meta::from))
    }

    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<(), BackendError> {
        Ok(self.store.put_with(key, value, put_meta(expires_at_ms))?)
    }

    fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, BackendError> {
        Ok(self.store.set_expiry(key, expires_at_ms)?)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, BackendError> {
        Ok(self.store.delete(key)?)
    }

    fn update(&self, key: &[u8], change: &mut Change<'_>) -> Result<(), BackendError> {
        self.store.update_opened(key, |old| {
            let old = old.map(|(value, meta)| match value {
                OldValue::Inline(bytes) => (Old::Whole(bytes), meta.into()),
                OldValue::Large(value) => (Old::Large(Box::new(value)), meta.into()),
            });
            change(old).into()
        })?;
        Ok(())
    }

    fn update_meta(&self, key: &[u8], change: &mut ChangeMeta<'_>) -> Result<(), BackendError> {
        self.store.update_meta(key, |old| change(old.map(Meta::from)).into())?;
        Ok(())
    }

    fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        how: Transfer,
        grant: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError> {
        let Transfer { keep_source, replace } = how;
        let outcome = self.store.transfer(source, target, keep_source, replace, |need| match need {
            ziptier::Need::Bytes(bytes) => grant(Need::Bytes(bytes)),
            _ => grant(Need::Wait),
        })?;
        match outcome {
            ziptier::Transferred::Done => Ok(Transferred::Done),
            ziptier::Transferred::NoSource => Ok(Transferred::NoSource),
            ziptier::Transferred::TargetExists => Ok(Transferred::TargetExists),
            ziptier::Transferred::NotGranted => Ok(Transferred::NotGranted),
            other => Err(BackendError::Refused(format!("the store answered {other:?}"))),
        }
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<bool, BackendError> {
        Ok(self.store.write(&batch(operations))?)
    }

    fn write_if_free(&self, operations: &[Operation<'_>]) -> Result<Option<bool>, BackendError> {
        Ok(self.store.write_if_free(&batch(operations))?)
    }

    fn holds_up(&self, key: &[u8]) -> bool {
        self.store.holds_up(key)
    }

    fn may_wait_for_room(&self, adds: bool) -> bool {
        adds && self.store.may_wait_for_room()
    }

    fn thread_read_bytes(&self) -> u64 {
        self.store.thread_read_bytes()
    }

    fn keys_from(
        &self,
        from: &[u8],
        limit: usize,
        _patience: Patience,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let Keys { keys, next } = self.store.keys_from(from, limit).map_err(|error| match error {
            Error::Unread { .. } => {
                BackendError::UnreadKeys { words: error.to_string(), next: self.store.keys_behind(from) }
            }
            error => error.into(),
        })?;
        keys.iter().for_each(|key| each(key));
        Ok(next)
    }

    fn records(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        _patience: Patience,
        each: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let mut range = self.store.range((from, to));
        loop {
            let place = range.look_ahead(PASSED_LEAVES_MAX)?;
            if place.is_some() {
                return Ok(place);
            }
            let Some(record) = range.next_opened() else { return Ok(None) };
            let (key, mut value) = record?;
            if !each(&key, &mut value)? {
                return Ok(None);
            }
        }
    }

    fn random_key(&self, patience: Patience) -> Result<Option<Vec<u8>>, BackendError> {
        // Every hasher of the standard library starts from other random numbers.
        let numbers = RandomState::new();
        let (mut drawn, mut leaves) = (0u64, 0);
        let random = || {
            drawn += 1;
            numbers.hash_one(drawn)
        };
        let goes_on = || {
            leaves += 1;
            match patience {
                Patience::Brief => leaves <= PASSED_LEAVES_MAX,
                Patience::Endless => !self.is_stopping.load(Relaxed),
            }
        };
        self.store.random_key_while(random, goes_on).ok_or_else(|| match patience {
            Patience::Brief => BackendError::TakesLong,
            Patience::Endless => BackendError::Refused("the server stops, and draws no key".into()),
        })
    }

    fn count(&self) -> Result<u64, BackendError> {
        let counted = self.store.len_while(|| !self.is_stopping.load(Relaxed));
        counted.ok_or_else(|| BackendError::Refused("the server stops, and counts no more keys".into()))
    }

    fn len_if_quick(&self) -> Result<u64, u64> {
        self.store.len_if_quick()
    }

    fn set_memory_limit(&self, limit_bytes: Option<u64>) {
        self.store.set_memory_limit(limit_bytes);
    }

    fn clear(&self) -> Result<(), BackendError> {
        Ok(self.store.clear()?)
    }

    fn evicts(&self) -> bool {
        self.store.evicts()
    }

    fn may_evict(&self) -> Result<(), BackendError> {
        Ok(self.store.may_evict()?)
    }

    fn set_eviction(&self, evicts: bool) {
        // A store that may not evict is as it was.
        let _ = self.store.set_eviction(evicts);
    }

    fn make_room(&self, bytes: u64) -> bool {
        self.store.make_room(bytes)
    }

    fn evicted_keys(&self) -> u64 {
        self.store.stats().evicted
    }

    fn is_settled(&self) -> bool {
        self.store.is_settled()
    }

    fn holds_replies(&self) -> bool {
        self.store.durability().is_some()
    }

    fn waits_for_disk(&self) -> bool {
        self.store.durability() == Some(Durability::Always)
    }

    fn wait(&self) -> Result<(), BackendError> {
        Ok(self.store.wait()?)
    }

    fn save(&self, how: Save) -> Result<Saving, BackendError> {
        let Some(stats) = self.store.checkpoint_stats() else { return Ok(Saving::NoFolder) };
        match how {
            Save::Begin | Save::Make if stats.is_running => Ok(Saving::UnderWay),
            Save::Begin if !self.store.begin_checkpoint() => Ok(Saving::UnderWay),
            Save::Begin => Ok(Saving::Done),
            Save::Make | Save::MakeNext => Ok(self.store.checkpoint().map(|()| Saving::Done)?),
        }
    }

    fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        self.store.stop_checkpoints();
    }

    fn last_save_ms(&self) -> Option<u64> {
        Some(self.store.checkpoint_stats()?.last_ended_ms)
    }

    fn persistence(&self) -> Vec<(&'static str, String)> {
        let Some(stats) = self.store.durable_stats() else { return Vec::new() };
        let Some(checkpoints) = self.store.checkpoint_stats() else { return Vec::new() };
        let accepted = self.store.stats().logged_bytes;
        let written =
            stats.log_written_bytes + checkpoints.segment_written_bytes + checkpoints.other_written_bytes;
        let amplification = if accepted == 0 { 0.0 } else { written as f64 / accepted as f64 };
        let status = |is_ok: bool| if is_ok { "ok" } else { "err" }.to_owned();
        let (running, last_ok) = (checkpoints.is_running, checkpoints.last_error.is_none());
        // Redis has -1 where there is nothing to tell.
        let seconds = |ms: Option<u64>| ms.map_or("-1".to_owned(), |ms| (ms / 1000).to_string());
        let running_ms = running.then(|| unix_ms().saturating_sub(checkpoints.began_ms));
        // One that began meanwhile may be ahead.
        let changes = (stats.last_lsn + 1).saturating_sub(checkpoints.start_lsn);
        let took_ms = (checkpoints.checkpoints > 0).then_some(checkpoints.last_took_ms);
        vec![
            ("rdb_changes_since_last_save", changes.to_string()),
            ("rdb_bgsave_in_progress", u8::from(running).to_string()),
            ("rdb_last_save_time", (checkpoints.last_ended_ms / 1000).to_string()),
            ("rdb_last_bgsave_status", status(last_ok)),
            ("rdb_last_bgsave_time_sec", seconds(took_ms)),
            ("rdb_current_bgsave_time_sec", seconds(running_ms)),
            ("rdb_saves", checkpoints.checkpoints.to_string()),
            ("aof_rewrite_in_progress", "0".to_owned()),
            ("aof_rewrite_scheduled", "0".to_owned()),
            ("aof_last_write_status", status(stats.failure.is_none() && stats.refusal.is_none())),
            ("aof_current_size", stats.log_allocated_bytes.to_string()),
            ("durability", stats.durability.to_string()),
            ("log_durable_after", stats.durable_after),
            ("log_first_lsn", stats.first_lsn.to_string()),
            ("log_last_lsn", stats.last_lsn.to_string()),
            ("log_durable_lsn", stats.durable_lsn.to_string()),
            ("log_records", stats.log_records.to_string()),
            ("log_written_bytes", stats.log_written_bytes.to_string()),
            ("log_allocated_bytes", stats.log_allocated_bytes.to_string()),
            ("log_syncs", stats.log_syncs.to_string()),
            ("log_failure", stats.failure.unwrap_or_default()),
            ("log_refusal", stats.refusal.unwrap_or_default()),
            ("checkpoints", checkpoints.checkpoints.to_string()),
            ("checkpoints_failed", checkpoints.failed.to_string()),
            ("checkpoint_last_failure", checkpoints.last_error.unwrap_or_default()),
            ("checkpoints_kept_for_dump", checkpoints.kept_for_dump.to_string()),
            ("checkpoint_last_took_ms", checkpoints.last_took_ms.to_string()),
            ("images_written", checkpoints.images.to_string()),
            ("images_kept", checkpoints.images_kept.to_string()),
            ("segment_written_bytes", checkpoints.segment_written_bytes.to_string()),
            ("segment_cleaned_bytes", checkpoints.cleaned_bytes.to_string()),
            ("segment_allocated_bytes", checkpoints.segment_allocated_bytes.to_string()),
            ("segment_live_bytes", checkpoints.segment_live_bytes.to_string()),
            ("manifest_written_bytes", checkpoints.other_written_bytes.to_string()),
            ("accepted_bytes", accepted.to_string()),
            ("write_amplification", format!("{amplification:.2}")),
        ]
    }

    fn held_below_bytes(&self) -> u64 {
        self.store.memory().far_used_bytes + self.store.ssd().map_or(0, |ssd| ssd.live_bytes)
    }

    fn memory(&self) -> MemoryUse {
        let memory = self.store.memory();
        MemoryUse {
            logical_bytes: memory.logical_bytes,
            held_bytes: memory.total_bytes(),
            limit_bytes: self.limit_bytes,
            parts: vec![
                ("index_bytes", memory.index_bytes),
                ("landing_bytes", memory.landing_bytes),
                ("raw_body_bytes", memory.raw_body_bytes),
                ("coded_body_bytes", memory.coded_body_bytes),
                ("packed_body_bytes", memory.packed_body_bytes),
                ("large_bytes", memory.large_bytes),
                ("dictionary_bytes", memory.dictionary_bytes),
                ("eviction_bytes", memory.eviction_bytes),
                ("retired_bytes", memory.retired_bytes),
                ("slack_bytes", memory.slack_bytes),
            ],
            far_anonymous_bytes: self.far_anonymous_bytes,
        }
    }

    fn far(&self) -> Option<FarUse> {
        let (far, memory) = (self.store.far()?, self.store.memory());
        Some(FarUse {
            kind: far.kind,
            persistence: far.persistence,
            used_bytes: far.used_bytes,
            limit_bytes: far.limit_bytes,
            parts: vec![
                ("far_body_bytes", memory.far_body_bytes),
                ("far_large_bytes", memory.far_large_bytes),
                ("far_retired_bytes", memory.far_retired_bytes),
            ],
        })
    }

    /// Those of the segments that the SSD has room for, or that the folder may have. Clients need files, too, so these
    /// are at most half of all.
    fn files_to_come(&self) -> u64 {
        let (limit_bytes, allocated_bytes, segment_bytes) = match self.store.ssd() {
            Some(ssd) => (ssd.limit_bytes, ssd.allocated_bytes, ssd.segment_bytes),
            None => {
                let Some(checkpoints) = self.store.checkpoint_stats() else { return 0 };
                let far_bytes = self.store.far().map_or(0, |far| far.limit_bytes);
                let held_bytes_max = self.limit_bytes.unwrap_or(u64::MAX).saturating_add(far_bytes);
                let limit_bytes = held_bytes_max.saturating_mul(FOLDER_TIMES);
                (limit_bytes, checkpoints.segment_allocated_bytes, self.segment_bytes)
            }
        };
        let free_bytes = limit_bytes.saturating_sub(allocated_bytes);
        free_bytes.div_ceil(segment_bytes.max(1)).min(raise_open_files() / 2)
    }

    fn codec(&self) -> String {
        self.codec.to_string()
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        let stats = self.store.stats();
        let ratio = stats.coded_raw_bytes as f64 / stats.coded_bytes.max(1) as f64;
        let counters = [
            ("reads_raw", stats.reads_raw),
            ("reads_coded", stats.reads_coded),
            ("reads_packed", stats.reads_packed),
            ("reads_landing", stats.reads_landing),
            ("reads_large", stats.reads_large),
            ("misses", stats.misses),
            ("writes", stats.writes),
            ("packs_background", stats.packs_background),
            ("packs_foreground", stats.packs_foreground),
            ("splits", stats.splits),
            ("merges", stats.merges),
            ("heated", stats.heated),
            ("cooled", stats.cooled),
            ("recoded", stats.recoded),
            ("condensed", stats.condensed),
            ("relaxed", stats.relaxed),
            ("sent_to_far", stats.sent_to_far),
            ("raised_from_far", stats.raised_from_far),
            ("values_raised", stats.values_raised),
            ("dictionary_generation", stats.dictionary_generation.into()),
            ("dictionary_bits", stats.dictionary_bits.into()),
            ("dictionary_trainings", stats.trainings),
            ("dictionary_adoptions", stats.adoptions),
            ("damaged", stats.damaged),
            ("coded_raw_bytes", stats.coded_raw_bytes),
            ("coded_bytes", stats.coded_bytes),
            ("qpl_compress_calls", stats.qpl_compress_calls),
            ("qpl_decompress_calls", stats.qpl_decompress_calls),
            ("iaa_compress_calls", stats.iaa_compress_calls),
            ("iaa_decompress_calls", stats.iaa_decompress_calls),
            ("zlib_compress_calls", stats.zlib_compress_calls),
            ("zlib_decompress_calls", stats.zlib_decompress_calls),
            ("engine_fallbacks", stats.engine_fallbacks),
            ("engine_queue_full_retries", stats.engine_queue_full_retries),
            ("engine_faults", stats.engine_faults),
        ];
        let mut shown: Vec<_> = counters.into_iter().map(|(name, count)| (name, count.to_string())).collect();
        shown.push(("codec_ratio", format!("{ratio:.3}")));
        shown.push(("codec_worker", self.store.block_worker().unwrap_or("cpu").to_owned()));
        shown
    }

    fn ssd(&self) -> Vec<(&'static str, String)> {
        let Some(ssd) = self.store.ssd() else { return Vec::new() };
        let stats = self.store.stats();
        // Before the first put since the start there is no figure to compare the SSD's writes with.
        let put_bytes = Some(stats.written_bytes).filter(|bytes| *bytes > 0);
        let amplification = put_bytes.map_or(0.0, |bytes| ssd.written_bytes as f64 / bytes as f64);
        let counters = [
            // As for `maxmemory`, 0 says that there is no limit.
            ("ssd_limit_bytes", if ssd.limit_bytes == u64::MAX { 0 } else { ssd.limit_bytes }),
            ("ssd_allocated_bytes", ssd.allocated_bytes),
            ("ssd_live_bytes", ssd.live_bytes),
            ("ssd_written_bytes", ssd.written_bytes),
            ("ssd_cleaned_bytes", ssd.cleaned_bytes),
            ("ssd_index_bytes", ssd.index_bytes),
            ("ssd_leaves", ssd.leaves),
            ("ssd_refused", ssd.is_refused.into()),
            ("ssd_reads", stats.ssd_reads),
            ("ssd_pieces_read", ssd.pieces_read),
            ("reads_below", stats.reads_below),
            ("sent_to_ssd", stats.sent_to_ssd),
            ("merged_on_ssd", stats.merged_on_ssd),
            ("raised_from_ssd", stats.raised_from_ssd),
            ("copied_up", stats.copied_up),
        ];
        let mut shown: Vec<_> = counters.map(|(name, count)| (name, count.to_string())).into();
        shown.push(("ssd_write_amplification", format!("{amplification:.2}")));
        shown.push(("ssd_medium", ssd.medium));
        shown
    }
}
