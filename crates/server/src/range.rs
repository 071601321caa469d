//! A walk over the records of a range of keys, a bounded part at a time, as `ZT.RANGE` needs it.
//!
//! Large values are opened and read piece by piece, one piece a step.

use std::ops::Bound;

use crate::backend::{Backend, BackendError, Patience, ValueReader};
use crate::shared::{ClientInfo, Shared};
use crate::streaming::{PIECE_BYTES, Value};

/// Records that one call visits at most.
const RECORDS_MAX: usize = 512;

/// The state of a walk over records.
pub(crate) struct Range {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// Records that the client still wants.
    wanted: u64,
    /// Records so far.
    pub(crate) found: usize,
    /// The rest of the last record's value.
    value: Option<Value>,
}

impl Range {
    /// Begins a walk over at most `wanted` records between the two ends.
    pub(crate) fn new(from: Bound<&[u8]>, to: Bound<&[u8]>, wanted: u64) -> Self {
        Self { from: from.map(<[u8]>::to_vec), to: to.map(<[u8]>::to_vec), wanted, found: 0, value: None }
    }

    /// Bytes of memory held, by the walk itself and by the store for a value that is being read.
    pub(crate) fn held_bytes(&self) -> usize {
        let bytes = |end: &Bound<Vec<u8>>| match end {
            Bound::Included(key) | Bound::Excluded(key) => key.capacity(),
            Bound::Unbounded => 0,
        };
        bytes(&self.from) + bytes(&self.to) + self.value.as_ref().map_or(0, Value::own_bytes)
    }

    /// Visits some records, and stops when `out` has `bytes_max` bytes. Appends keys and values to `out` as bulk
    /// strings. `false` at the end of the walk.
    ///
    /// # Errors
    ///
    /// The store's, or that the process or its clients have no room for a value. After [`BackendError::TakesLong`] the
    /// walk can go on.
    pub(crate) fn advance(
        &mut self,
        backend: &dyn Backend,
        shared: &Shared,
        client: &ClientInfo,
        patience: Patience,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, BackendError> {
        if let Some(value) = &mut self.value {
            let _room = shared.reserve(PIECE_BYTES).map_err(|_| BackendError::MemoryLimit)?;
            if !value.next_piece(out)? {
                out.extend_from_slice(b"\r\n");
                self.value = None;
            }
            return Ok(true);
        }
        if self.wanted == 0 {
            return Ok(false);
        }
        let (mut seen, mut last, mut is_over, mut is_large) = (0, Vec::new(), true, false);
        let Self { from, to, wanted, found, .. } = self;
        let (start, end) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let walked = backend.records(start, end, patience, &mut |key, value| {
            // The walk can go on behind any record, but at least one.
            if seen > 0 && (seen == RECORDS_MAX || out.len() >= bytes_max) {
                is_over = false;
                return Ok(false);
            }
            last.clear();
            last.extend_from_slice(key);
            seen += 1;
            is_large = value.len() > PIECE_BYTES as u64;
            if is_large {
                is_over = false;
                return Ok(false);
            }
            append(key, value, shared, out)?;
            (*found, *wanted) = (*found + 1, *wanted - 1);
            Ok(*wanted > 0)
        });
        let place = match walked {
            Err(BackendError::TakesLong) if seen > 0 => {
                is_over = false;
                None
            }
            walked => walked?,
        };
        is_over &= place.is_none();
        if is_large {
            self.open(&last, backend, shared, client, out)?;
        }
        self.from = place.map_or(Bound::Excluded(last), Bound::Included);
        Ok(!is_over)
    }

    /// Begins a record whose value the next steps read. A record that was deleted meanwhile is left out.
    fn open(
        &mut self,
        key: &[u8],
        backend: &dyn Backend,
        shared: &Shared,
        client: &ClientInfo,
        out: &mut Vec<u8>,
    ) -> Result<(), BackendError> {
        let Some(reader) = backend.open_value(key)? else { return Ok(()) };
        shared.check_room_for(client, &*reader).map_err(|_| BackendError::MemoryLimit)?;
        begin(key, &*reader, shared, out)?;
        (self.found, self.wanted) = (self.found + 1, self.wanted - 1);
        self.value = Some(Value::whole(reader));
        Ok(())
    }
}

/// Appends a record, if there is room for it.
fn append(
    key: &[u8],
    value: &mut dyn ValueReader,
    shared: &Shared,
    out: &mut Vec<u8>,
) -> Result<(), BackendError> {
    let _room = shared.reserve(value.len() as usize).map_err(|_| BackendError::MemoryLimit)?;
    begin(key, value, shared, out)?;
    value.read_at(0, value.len() as usize, out)?;
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a record up to the bytes of its value, if clients have room for all of it.
fn begin(
    key: &[u8],
    value: &dyn ValueReader,
    shared: &Shared,
    out: &mut Vec<u8>,
) -> Result<(), BackendError> {
    let len = usize::try_from(value.len()).unwrap_or(usize::MAX);
    let after = out.len().saturating_add(key.len()).saturating_add(len);
    if after > shared.budget.limit_bytes() / 2 {
        let words =
            format!("the records found so far have {after} bytes, more than there is room for; use LIMIT");
        return Err(BackendError::Refused(words));
    }
    bulk_header(key.len(), out);
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
    bulk_header(len, out);
    Ok(())
}

/// The line before a bulk string.
pub(crate) fn bulk_header(len: usize, out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}
