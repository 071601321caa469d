//! A store whose calls a test can block and count. So a test can check other clients meanwhile, whatever the speed of
//! the machine.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::map_backend::MapBackend;
use super::{PATIENCE, TestServer};
use ziptier_server::backend::{Change, ChangeMeta, EachRecord, Grant, Need};
use ziptier_server::{
    Backend, BackendError, Chosen, DatabaseName, Databases, ListedDatabase, MemoryUse, Meta, Old, Operation,
    Patience, Save, Saving, Transfer, Transferred, Update, ValueReader,
};

thread_local! {
    static READ_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// One worker in front of the map, and the gate between them.
pub(crate) fn started() -> (TestServer, Arc<Gate>) {
    let backend = Arc::new(GatedBackend::default());
    let gate = backend.gate();
    (TestServer::start_with(backend, |config| config.threads = 1), gate)
}

/// The map, behind a gate.
#[derive(Default)]
pub(crate) struct GatedBackend {
    map: MapBackend,
    gate: Arc<Gate>,
    /// Another database.
    other: Option<Arc<Self>>,
}

/// Holds up calls of one method.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The method that is held up.
    closed: Option<&'static str>,
    /// Every call that came, by method.
    calls: Vec<&'static str>,
    /// Calls of the closed method that still pass, and are not remembered.
    free: usize,
    /// The method whose calls panic once they are let go.
    panics: Option<&'static str>,
    /// The bytes that a rename or a copy claims to read.
    read_bytes: u64,
    /// The bytes that a look at a key claims to read.
    looked_bytes: u64,
    /// Writes that add data may have to wait for room.
    is_short: bool,
    /// All writes may have to wait.
    is_stopped: bool,
    /// The next look at a key makes all writes wait.
    stops_behind_a_look: bool,
    /// The bytes that a reader claims to hold alone.
    own_bytes: usize,
    /// All walks take long.
    is_slow: bool,
    /// Replies wait for a log, which has failed.
    has_failed: bool,
    /// All keys at once cannot be removed.
    keeps_keys: bool,
    /// Opened values cannot be read from this place on.
    unreadable_from: Option<u64>,
}

impl Gate {
    /// Holds up calls of `method` from now on, and forgets earlier ones.
    pub(crate) fn close(&self, method: &'static str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.closed, state.calls, state.free) = (Some(method), Vec::new(), 0);
    }

    /// As [`Gate::close`], behind the next `free` calls.
    pub(crate) fn close_behind(&self, free: usize, method: &'static str) {
        self.close(method);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free = free;
    }

    /// Has calls of `method` panic from now on, once they may go on.
    pub(crate) fn panic_in(&self, method: &'static str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).panics = Some(method);
    }

    /// Has renames and copies say from now on that they read so many bytes.
    pub(crate) fn read(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).read_bytes = bytes;
    }

    /// Has `EXISTS`, `DEL`, `GET` and the like say from now on that they read so many bytes of each key, and walks of
    /// each step.
    pub(crate) fn read_to_look(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).looked_bytes = bytes;
    }

    /// Has the store say that all writes may have to wait, from the next `EXISTS`, `DEL` or the like on.
    pub(crate) fn stop_behind_a_look(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stops_behind_a_look = true;
    }

    /// Has the store say from now on that writes that add data may have to wait for room.
    pub(crate) fn run_short(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_short = true;
    }

    /// Has the store say from now on that all writes may have to wait.
    pub(crate) fn stop_writers(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_stopped = true;
    }

    /// Has readers of values say from now on that they hold so many bytes alone.
    pub(crate) fn own(&self, bytes: usize) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).own_bytes = bytes;
    }

    /// Has walks with brief patience say from now on that they take too long.
    pub(crate) fn slow_walks(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_slow = true;
    }

    /// Lets opened values be read from now on only before `offset`.
    pub(crate) fn fail_reads_from(&self, offset: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).unreadable_from = Some(offset);
    }

    /// Has `FLUSHALL` and `FLUSHDB` refused from now on.
    pub(crate) fn keep_keys(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keeps_keys = true;
    }

    /// Has replies wait from now on for a log that has failed.
    pub(crate) fn fail_log(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_failed = true;
    }

    /// Whether replies wait for a log that has failed.
    fn has_failed(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_failed
    }

    /// Lets them go on.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = None;
        self.changed.notify_all();
    }

    /// Waits until a call is held up.
    pub(crate) fn wait(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |state: &mut State| state.closed.is_some_and(|method| !state.calls.contains(&method));
        let (state, outcome) = self.changed.wait_timeout_while(state, PATIENCE, is_free).unwrap();
        assert!(
            !outcome.timed_out(),
            "{:?} never came, and these calls did: {:?}",
            state.closed,
            state.calls
        );
    }

    /// The calls since the gate was closed.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }

    /// Whether a call of `method` is held up.
    fn holds(&self, method: &'static str) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed == Some(method) && state.calls.contains(&method)
    }

    fn walk(&self, patience: Patience, method: &'static str) -> Result<(), BackendError> {
        let is_slow = self.state.lock().unwrap_or_else(PoisonError::into_inner).is_slow;
        if is_slow && patience == Patience::Brief {
            return Err(BackendError::TakesLong);
        }
        self.look(method);
        Ok(())
    }

    fn look(&self, method: &'static str) {
        self.pass(method);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        READ_BYTES.set(READ_BYTES.get() + state.looked_bytes);
        state.is_stopped |= state.stops_behind_a_look;
    }

    fn pass(&self, method: &'static str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed == Some(method) && state.free > 0 {
            state.free -= 1;
            return;
        }
        state.calls.push(method);
        self.changed.notify_all();
        while state.closed == Some(method) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let panics = state.panics == Some(method);
        drop(state);
        assert!(!panics, "made by a test");
    }
}

impl GatedBackend {
    /// A store with the other database, too.
    pub(crate) fn beside(other: Arc<Self>) -> Self {
        Self { other: Some(other), ..Self::default() }
    }

    pub(crate) fn gate(&self) -> Arc<Gate> {
        self.gate.clone()
    }

    fn gated(&self, reader: Box<dyn ValueReader>) -> Box<dyn ValueReader> {
        Box::new(Gated { reader, gate: self.gate() })
    }
}

/// Pieces that are read pass the gate, too.
struct Gated {
    reader: Box<dyn ValueReader>,
    gate: Arc<Gate>,
}

impl ValueReader for Gated {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn own_bytes(&self) -> usize {
        self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).own_bytes
    }

    fn read_at(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.gate.pass("read_at");
        let unreadable_from = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).unreadable_from;
        if unreadable_from.is_some_and(|from| offset + len as u64 > from) {
            return Err(BackendError::Refused("made by a test".into()));
        }
        self.reader.read_at(offset, len, out)
    }
}

/// The other database has any name but `default`.
impl Databases for GatedBackend {
    fn open(&self, _: DatabaseName<'_>, _: &[(&[u8], &[u8])]) -> Result<(), BackendError> {
        Ok(())
    }

    fn close(&self, _: DatabaseName<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<ListedDatabase>, BackendError> {
        Ok(vec![ListedDatabase { name: "other".into(), is_open: true }])
    }

    fn find(&self, name: DatabaseName<'_>) -> Result<Chosen, BackendError> {
        let other = self.other.clone().filter(|_| name.as_str() != "default");
        Ok(other.map(|other| other as Arc<dyn Backend>))
    }
}

impl Backend for GatedBackend {
    fn get_into(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, BackendError> {
        self.gate.look("get_into");
        self.map.get_into(key, bytes_max, value)
    }

    fn open_value(&self, key: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError> {
        self.gate.pass("open_value");
        Ok(self.map.open_value(key)?.map(|reader| self.gated(reader)))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Meta>, BackendError> {
        self.gate.look("meta");
        self.map.meta(key)
    }

    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<(), BackendError> {
        self.gate.pass("put");
        self.map.put(key, value, expires_at_ms)
    }

    fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, BackendError> {
        self.map.set_expiry(key, expires_at_ms)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, BackendError> {
        self.gate.look("delete");
        self.map.delete(key)
    }

    fn update(&self, key: &[u8], change: &mut Change<'_>) -> Result<(), BackendError> {
        let mut is_put = false;
        self.map.update(key, &mut |old| {
            let update = change(old.map(|(old, meta)| match old {
                Old::Large(reader) => (Old::Large(self.gated(reader)), meta),
                whole => (whole, meta),
            }));
            is_put = matches!(update, Update::Put { .. });
            update
        })?;
        if is_put {
            self.gate.pass("updated");
        }
        Ok(())
    }

    fn update_meta(&self, key: &[u8], change: &mut ChangeMeta<'_>) -> Result<(), BackendError> {
        self.map.update_meta(key, change)
    }

    /// It waits for writes of several keys as a store does.
    fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        how: Transfer,
        grant: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError> {
        if self.gate.holds("write") {
            if !grant(Need::Wait) {
                return Ok(Transferred::NotGranted);
            }
            self.gate.pass("write");
        }
        let read_bytes = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).read_bytes;
        if read_bytes > 0 && !grant(Need::Bytes(read_bytes)) {
            return Ok(Transferred::NotGranted);
        }
        self.gate.pass("transfer");
        self.map.transfer(source, target, how, grant)
    }

    fn write_if_free(&self, operations: &[Operation<'_>]) -> Result<Option<bool>, BackendError> {
        if self.gate.holds("write") { Ok(None) } else { self.write(operations).map(Some) }
    }

    fn write(&self, operations: &[Operation<'_>]) -> Result<bool, BackendError> {
        self.gate.pass("write");
        self.map.write(operations)
    }

    /// All keys, while a `put` is held up.
    fn holds_up(&self, _key: &[u8]) -> bool {
        self.gate.holds("put")
    }

    fn thread_read_bytes(&self) -> u64 {
        READ_BYTES.get()
    }

    fn may_wait_for_room(&self, adds: bool) -> bool {
        let state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_stopped || adds && state.is_short
    }

    fn keys_from(
        &self,
        from: &[u8],
        limit: usize,
        patience: Patience,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError> {
        self.gate.walk(patience, "keys_from")?;
        self.map.keys_from(from, limit, patience, each)
    }

    fn records(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        patience: Patience,
        each: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        self.gate.walk(patience, "records")?;
        self.map.records(from, to, patience, each)
    }

    fn random_key(&self, patience: Patience) -> Result<Option<Vec<u8>>, BackendError> {
        self.gate.walk(patience, "random_key")?;
        self.map.random_key(patience)
    }

    fn count(&self) -> Result<u64, BackendError> {
        self.gate.pass("len");
        self.map.count()
    }

    fn len_if_quick(&self) -> Result<u64, u64> {
        Err(17)
    }

    fn clear(&self) -> Result<(), BackendError> {
        self.gate.pass("clear");
        if self.gate.state.lock().unwrap_or_else(PoisonError::into_inner).keeps_keys {
            return Err(BackendError::Refused("made by a test".into()));
        }
        self.map.clear()
    }

    fn holds_replies(&self) -> bool {
        self.wait().is_err()
    }

    fn waits_for_disk(&self) -> bool {
        self.other.is_some()
    }

    fn wait(&self) -> Result<(), BackendError> {
        self.wait_alone()?;
        self.other.as_ref().map_or(Ok(()), |other| other.wait_alone())
    }

    fn wait_alone(&self) -> Result<(), BackendError> {
        if self.gate.has_failed() {
            return Err(BackendError::Refused("made by a test".into()));
        }
        Ok(())
    }

    fn databases(&self) -> Option<&dyn Databases> {
        self.other.as_ref().map(|_| self as &dyn Databases)
    }

    fn may_evict(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn set_eviction(&self, _evicts: bool) {
        self.gate.pass("set_eviction");
    }

    fn save(&self, how: Save) -> Result<Saving, BackendError> {
        assert_ne!(how, Save::Begin, "BGSAVE waits for nobody");
        self.gate.pass("save");
        Ok(Saving::Done)
    }

    fn stop(&self) {
        self.gate.open();
    }

    fn memory(&self) -> MemoryUse {
        self.map.memory()
    }

    fn codec(&self) -> String {
        self.map.codec()
    }

    fn counters(&self) -> Vec<(&'static str, String)> {
        self.map.counters()
    }
}
