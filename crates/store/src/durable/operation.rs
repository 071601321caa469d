//! The bytes of a record of the log: a list of operations, with whole, raw keys and values. `docs/FORMATS.md` draws it.

use ziptier_tree::numbers::write_varint;
use ziptier_tree::operation::Operation;
use ziptier_tree::record::EXPIRES_AT_MS_MAX;
use ziptier_tree::sizes::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The first byte of a record.
const VERSION: u8 = 1;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const EXPIRE: u8 = 2;
const DELETE_RANGE: u8 = 3;
const KIND_BITS: u8 = 0b11;
const HAS_EXPIRY: u8 = 1 << 2;
const HAS_FLAGS: u8 = 1 << 3;

/// Bytes of a buffer that are kept for the next record.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes of an expiry, as in records in memory.
const EXPIRY_BYTES: usize = 6;

/// The kind of an operation, its first and second string, its expiry, and its flags.
fn parts<'a>(operation: &Operation<'a>) -> (u8, &'a [u8], &'a [u8], Option<u64>, u32) {
    match *operation {
        Operation::Put { key, value, expires_at_ms, flags } => (PUT, key, value, expires_at_ms, flags),
        Operation::Delete { key } => (DELETE, key, &[], None, 0),
        Operation::Expire { key, expires_at_ms } => (EXPIRE, key, &[], expires_at_ms, 0),
        Operation::DeleteRange { low, high } => (DELETE_RANGE, low, high.unwrap_or_default(), None, 0),
    }
}

/// A record on its way into the log. Values are not copied; the buffer for everything else can be used again.
#[derive(Default)]
pub(crate) struct Heads(Vec<u8>);

impl Heads {
    /// Lays `operations` out and hands the record's parts to `take`.
    pub(crate) fn lay_out<'a, R>(
        &mut self,
        operations: impl Iterator<Item = Operation<'a>>,
        take: impl FnOnce(&[&[u8]]) -> R,
    ) -> R {
        self.0.clear();
        self.0.push(VERSION);
        let values: Vec<(usize, &[u8])> = operations
            .map(|operation| {
                let value = self.push(&operation);
                (self.0.len(), value)
            })
            .collect();
        let mut parts = Vec::with_capacity(2 * values.len());
        let mut start = 0;
        for (end, value) in values {
            parts.extend([&self.0[start..end], value]);
            start = end;
        }
        take(&parts)
    }

    /// Lays out a record of one operation: everything but its value, which is returned and follows.
    pub(crate) fn lay_out_one<'a>(&mut self, operation: &Operation<'a>) -> &'a [u8] {
        self.0.clear();
        self.0.push(VERSION);
        self.push(operation)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Gives back the memory of an unusually large batch.
    pub(crate) fn give_back(&mut self) {
        if self.0.capacity() > KEPT_BYTES_MAX {
            self.0 = Vec::new();
        }
    }

    fn push<'a>(&mut self, operation: &Operation<'a>) -> &'a [u8] {
        let (kind, key, value, expires_at_ms, flags) = parts(operation);
        let out = &mut self.0;
        let expiry = if expires_at_ms.is_some() { HAS_EXPIRY } else { 0 };
        out.push(kind | expiry | if flags != 0 { HAS_FLAGS } else { 0 });
        write_varint(key.len() as u32, out);
        write_varint(value.len() as u32, out);
        if let Some(at) = expires_at_ms {
            out.extend_from_slice(&at.min(EXPIRES_AT_MS_MAX).to_le_bytes()[..EXPIRY_BYTES]);
        }
        if flags != 0 {
            out.extend_from_slice(&flags.to_le_bytes());
        }
        out.extend_from_slice(key);
        value
    }
}

/// Reads the operations of a record one by one; after an error there are no more.
pub(crate) struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Operations<'a> {
    /// # Errors
    /// A record of another version.
    pub(crate) fn of(record: &'a [u8]) -> Result<Self, String> {
        match record {
            [VERSION, rest @ ..] => Ok(Self { rest }),
            [version, ..] => {
                Err(format!("it has version {version}, and this program reads version {VERSION}"))
            }
            [] => Err("it is empty".to_owned()),
        }
    }

    fn read(&mut self) -> Result<Operation<'a>, &'static str> {
        let tag = self.take(1)?[0];
        if tag & !(KIND_BITS | HAS_EXPIRY | HAS_FLAGS) != 0 {
            return Err("an operation is of no known kind");
        }
        let key_len = self.length(KEY_BYTES_MAX)?;
        let value_len = self.length(VALUE_BYTES_MAX as usize)?;
        let mut number = |present: u8, bytes: usize| -> Result<Option<u64>, &'static str> {
            if tag & present == 0 {
                return Ok(None);
            }
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(self.take(bytes)?);
            Ok(Some(u64::from_le_bytes(number)))
        };
        let expires_at_ms = number(HAS_EXPIRY, EXPIRY_BYTES)?;
        let flags = number(HAS_FLAGS, 4)?.unwrap_or_default() as u32;
        let (key, value) = (self.take(key_len)?, self.take(value_len)?);
        let operation = match tag & KIND_BITS {
            PUT => Operation::Put { key, value, expires_at_ms, flags },
            DELETE => Operation::Delete { key },
            EXPIRE => Operation::Expire { key, expires_at_ms },
            _ => Operation::DeleteRange { low: key, high: (!value.is_empty()).then_some(value) },
        };
        // A field that the operation does not have must not be there.
        if parts(&operation) != (tag & KIND_BITS, key, value, expires_at_ms, flags) {
            return Err("an operation has more fields than its kind");
        }
        if key.is_empty() && !matches!(operation, Operation::DeleteRange { .. }) {
            return Err("an operation has an empty key");
        }
        Ok(operation)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("it ends within an operation")?;
        self.rest = rest;
        Ok(taken)
    }

    /// A varint of at most five bytes.
    fn length(&mut self, max: usize) -> Result<usize, &'static str> {
        let mut length = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return if length <= max { Ok(length) } else { Err("a key or value is too long") };
            }
        }
        Err("a length has no end")
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    const OPERATIONS: [Operation<'static>; 7] = [
        Operation::Put { key: b"key", value: b"value", expires_at_ms: None, flags: 0 },
        Operation::Put { key: b"k", value: b"", expires_at_ms: Some(0x0102_0304_0506), flags: 0x0a0b_0c0d },
        Operation::Delete { key: b"gone" },
        Operation::Expire { key: b"k", expires_at_ms: Some(7) },
        Operation::Expire { key: b"k", expires_at_ms: None },
        Operation::DeleteRange { low: b"", high: Some(b"m") },
        Operation::DeleteRange { low: b"m", high: None },
    ];

    fn laid_out(operations: &[Operation<'_>]) -> Vec<u8> {
        Heads::default().lay_out(operations.iter().copied(), |parts| parts.concat())
    }

    #[test]
    fn operations_come_back_in_their_order() {
        let record = laid_out(&OPERATIONS);
        let read: Vec<_> = Operations::of(&record).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, OPERATIONS);
        let mut heads = Heads::default();
        let value = heads.lay_out_one(&OPERATIONS[0]);
        assert_eq!([heads.bytes(), value].concat(), laid_out(&OPERATIONS[..1]));
    }

    #[test]
    fn bytes_are_as_they_are_documented() {
        assert_eq!(laid_out(&OPERATIONS[..1]), b"\x01\x00\x03\x05keyvalue");
        let fields = b"\x01\x0c\x01\x00\x06\x05\x04\x03\x02\x01\x0d\x0c\x0b\x0ak";
        assert_eq!(laid_out(&OPERATIONS[1..2]), fields);
        assert_eq!(laid_out(&OPERATIONS[5..6]), b"\x01\x03\x00\x01m");
    }

    #[test]
    fn bytes_that_are_no_record_are_an_error() {
        let record = laid_out(&OPERATIONS);
        for end in 1..record.len() {
            let whole: Result<Vec<_>, _> = Operations::of(&record[..end]).unwrap().collect();
            assert!(whole.is_err() || whole.unwrap().len() < OPERATIONS.len(), "{end}");
        }
        assert!(Operations::of(b"").is_err());
        assert!(Operations::of(b"\x02").is_err_and(|reason| reason.contains("version 2")));
        for bad in [
            &b"\x01\x10\x01\x00k"[..],           // a kind that there is not
            b"\x01\x01\x01\x01kv",               // a delete with a value
            b"\x01\x05\x01\x00\0\0\0\0\0\0k",    // a delete with an expiry
            b"\x01\x0a\x01\x00\x01\0\0\0k",      // an expiry with flags
            b"\x01\x00\x00\x00",                 // no key
            b"\x01\x00\xff\xff\xff\xff\xff\x01", // a length of too many bytes
            b"\x01\x00\x81\x80\x04\x00",         // a key that is too long
        ] {
            let read: Vec<_> = Operations::of(bad).unwrap().collect();
            assert!(matches!(read[..], [Err(_)]), "{bad:?} {read:?}");
        }
    }

    #[test]
    fn the_memory_of_a_large_batch_is_given_back() {
        let mut heads = Heads::default();
        let mut lay_out = |count| {
            let key = [7; 1024];
            let operations = std::iter::repeat_n(Operation::Delete { key: &key }, count);
            heads.lay_out(operations, |_| ());
            heads.give_back();
            heads.0.capacity()
        };
        assert!((100 << 10..=KEPT_BYTES_MAX).contains(&lay_out(100)));
        assert_eq!(lay_out(10_000), 0);
    }
}
