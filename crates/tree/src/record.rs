//! A record: key, value or tombstone, optional expiry, optional flags, and how each lies in bytes.
//!
//! A record begins with a [`Tag`] that says what follows; absent fields take no bytes. Landing and body share the
//! tag and the fields behind it and differ only in how they store keys.

use crate::Error;
use crate::blocks::PackedValue;
use crate::large::LargeHandle;
use crate::numbers::array;
use crate::sizes::KEY_BYTES_MAX;
use std::sync::Arc;
use ziptier_codec::token::Dictionary;

/// The fields that a key carries beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutMeta {
    /// When the key ceases to exist, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Opaque to the store.
    pub flags: u32,
}

/// The properties of a stored value, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Bytes of the value.
    pub len: u64,
    /// When the key ceases to exist, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// As given when the value was put.
    pub flags: u32,
}

/// The kind of record that a tag announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The value's bytes.
    Raw = 0,
    /// The value coded by the body's dictionary.
    Coded = 1,
    /// A reference to a value outside the leaf.
    Large = 2,
    /// The key does not exist.
    Tombstone = 3,
    /// A new expiry for the value below.
    Touch = 4,
    /// The value is in one of the body's blocks.
    Packed = 5,
    /// The value's block was damaged when the body was packed anew, or the value when a store was salvaged, and its
    /// bytes are lost.
    Lost = 6,
    /// The value coded by the body's dictionary, its token numbers by entropy.
    Recoded = 7,
}

impl Kind {
    /// Whether the value is coded by the body's dictionary.
    #[inline]
    pub(crate) fn is_coded(self) -> bool {
        matches!(self, Self::Coded | Self::Recoded)
    }
}

/// First byte of a record: kind and which optional fields follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u8);

const KIND_BITS: u8 = 0b111;
const HAS_EXPIRY: u8 = 1 << 3;
const HAS_FLAGS: u8 = 1 << 4;
const HAS_BATCH: u8 = 1 << 5;

/// Bytes of an expiry: 48 bits of milliseconds reach the year 10889.
const EXPIRY_BYTES: usize = 6;
/// The latest expiry that can be stored; later ones never come.
pub const EXPIRES_AT_MS_MAX: u64 = (1 << (8 * EXPIRY_BYTES)) - 1;

impl Tag {
    /// Of a settled tombstone.
    pub(crate) const TOMBSTONE: Self = Self(3);

    /// The tag of a record of this kind with these fields.
    pub(crate) fn new(kind: Kind, fields: &Fields) -> Self {
        let mut tag = kind as u8;
        if fields.expires_at_ms.is_some() {
            tag |= HAS_EXPIRY;
        }
        if fields.flags != 0 {
            tag |= HAS_FLAGS;
        }
        if fields.batch.is_some() {
            tag |= HAS_BATCH;
        }
        Self(tag)
    }

    /// The kind that it announces.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 & KIND_BITS {
            0 => Kind::Raw,
            1 => Kind::Coded,
            2 => Kind::Large,
            3 => Kind::Tombstone,
            4 => Kind::Touch,
            5 => Kind::Packed,
            6 => Kind::Lost,
            _ => Kind::Recoded,
        }
    }

    /// Whether a settled record may have this tag: a kind of value, and nothing of batches.
    pub(crate) fn is_settled(self) -> bool {
        self.0 & !(KIND_BITS | HAS_EXPIRY | HAS_FLAGS) == 0
            && !matches!(self.kind(), Kind::Tombstone | Kind::Touch)
    }

    /// Whether a record that is yet to settle may have this tag, its batch being committed.
    pub fn is_landed(self) -> bool {
        self.0 & !(KIND_BITS | HAS_EXPIRY | HAS_FLAGS) == 0 && matches!(self.0 & KIND_BITS, 0 | 2 | 3 | 4)
    }

    /// Bytes of the optional fields behind this tag.
    #[inline]
    pub fn field_bytes(self) -> usize {
        if self.0 <= KIND_BITS {
            return 0;
        }
        let mut bytes = 0;
        if self.0 & HAS_EXPIRY != 0 {
            bytes += EXPIRY_BYTES;
        }
        if self.0 & HAS_FLAGS != 0 {
            bytes += 4;
        }
        if self.0 & HAS_BATCH != 0 {
            bytes += 8;
        }
        bytes
    }
}

/// The optional fields of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// When the key ceases to exist, in milliseconds since the Unix epoch; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// Opaque to the store; 0 takes no bytes.
    pub flags: u32,
    /// The batch that wrote the record: it exists once that batch is committed.
    pub batch: Option<u64>,
}

impl Fields {
    /// The fields of a put that is in no batch. An expiry above [`EXPIRES_AT_MS_MAX`] becomes that.
    pub fn of(meta: PutMeta) -> Self {
        Self {
            expires_at_ms: meta.expires_at_ms.map(|at| at.min(EXPIRES_AT_MS_MAX)),
            flags: meta.flags,
            batch: None,
        }
    }

    /// Whether the record has ceased to exist by `now_ms`.
    #[inline]
    pub(crate) fn has_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at| at <= now_ms)
    }

    /// Appends the fields to `out`, as [`Fields::read`] reads them. Absent ones take no bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(at) = self.expires_at_ms {
            out.extend_from_slice(&at.to_le_bytes()[..EXPIRY_BYTES]);
        }
        if self.flags != 0 {
            out.extend_from_slice(&self.flags.to_le_bytes());
        }
        if let Some(batch) = self.batch {
            out.extend_from_slice(&batch.to_le_bytes());
        }
    }

    /// Reads the fields that `tag` announces and returns what lies behind them.
    #[inline]
    pub fn read(tag: Tag, bytes: &[u8]) -> (Self, &[u8]) {
        if tag.0 <= KIND_BITS {
            return (Self::default(), bytes);
        }
        Self::read_present(tag, bytes)
    }

    fn read_present(tag: Tag, mut bytes: &[u8]) -> (Self, &[u8]) {
        let mut fields = Self::default();
        if tag.0 & HAS_EXPIRY != 0 {
            let mut at = [0; 8];
            at[..EXPIRY_BYTES].copy_from_slice(&bytes[..EXPIRY_BYTES]);
            fields.expires_at_ms = Some(u64::from_le_bytes(at));
            bytes = &bytes[EXPIRY_BYTES..];
        }
        if tag.0 & HAS_FLAGS != 0 {
            fields.flags = u32::from_le_bytes(array(bytes));
            bytes = &bytes[4..];
        }
        if tag.0 & HAS_BATCH != 0 {
            fields.batch = Some(u64::from_le_bytes(array(bytes)));
            bytes = &bytes[8..];
        }
        (fields, bytes)
    }
}

/// The bytes of a value, where they lie.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// The value's bytes.
    Raw(&'a [u8]),
    /// The value coded by the body's dictionary, and that dictionary.
    Coded(&'a [u8], &'a Arc<Dictionary>),
    /// The same, its token numbers by entropy.
    Recoded(&'a [u8], &'a Arc<Dictionary>),
    /// The value is in one of the body's blocks.
    Packed(PackedValue<'a>),
    /// The bytes are lost. See [`Kind::Lost`].
    Lost,
    /// A value outside the leaf.
    Large(LargeHandle<'a>),
}

/// A value that a look-up found.
#[derive(Clone, Copy)]
pub struct Found<'a> {
    /// The bytes of the value.
    pub payload: Payload<'a>,
    /// When the key ceases to exist, in milliseconds since the Unix epoch; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// As given when the value was put.
    pub flags: u32,
}

impl Found<'_> {
    /// What the key carries, without the length of the value.
    #[inline]
    pub fn meta(&self) -> Meta {
        Meta { len: 0, expires_at_ms: self.expires_at_ms, flags: self.flags }
    }
}

/// The outcome of looking a key up in a leaf.
pub enum Lookup<'a> {
    /// A value, which may have expired.
    Found(Found<'a>),
    /// A tombstone: nothing below counts.
    Deleted,
    /// Nothing here.
    Absent,
}

/// Refuses keys that are no keys.
#[inline]
pub fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        0 => Err(Error::EmptyKey),
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(Error::KeyTooLong { len }),
    }
}

/// Hash of a key: it selects fingerprints in landings and bodies, and is part of no promise outside them.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
