//! The image of a leaf: its body as it is, and the newest records of its landings. `docs/FORMATS.md` draws it.
//!
//! A reference to a large value is the value's number in a list of the image. The list has the places of the pieces of
//! all large values of the image.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ziptier_tree::body::{Body, Builder, Entry as BodyEntry};
use ziptier_tree::extent::Extent;
use ziptier_tree::fields::{FieldReader, FormatError};
use ziptier_tree::form::Form;
use ziptier_tree::landing::RecordBytes;
use ziptier_tree::large::{Large, LargeHandle, LargePieces, REFERENCE_BYTES};
use ziptier_tree::leaf::LeafState;
use ziptier_tree::numbers::array;
use ziptier_tree::packing::{settled, upper_records};
use ziptier_tree::pending::{Newest, Pending};
use ziptier_tree::read::{Copied, copy_found};
use ziptier_tree::record::{Fields, Kind, Payload, Tag};
use ziptier_tree::sizes::{INLINE_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::image_files::OwnedImage;

/// The format that is written.
const VERSION: u8 = 2;
/// The oldest one that is read: it is the same, and its body has no values coded by entropy.
const VERSION_MIN: u8 = 1;

const HAS_GENERATION: u8 = 1;
const IS_HEATED: u8 = 1 << 1;

/// A leaf as it was at one moment, copied; its large values are shared.
#[derive(Default)]
pub(crate) struct Capture {
    pub(crate) form: Form,
    records: u16,
    logical_bytes: u64,
    low: Vec<u8>,
    body: Vec<u8>,
    landing: Vec<u8>,
    landing_records: u32,
    pub(crate) larges: Vec<Arc<Large>>,
}

/// The places of a large value, and the coding of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLarge {
    pub(crate) len: u64,
    pub(crate) generation: Option<u32>,
    pub(crate) pieces: Arc<[Extent]>,
}

impl Capture {
    /// Copies what the landings say. The caller holds the leaf's writer lock.
    pub(crate) fn landings(newest: &Newest<'_>) -> Self {
        let mut capture = Self::default();
        let mut record = RecordBytes::default();
        for pending in &newest.pending {
            let number;
            let value = if pending.kind == Kind::Large {
                // SAFETY: the record that owns the reference is part of a state that the caller's guard keeps readable.
                let large = unsafe { LargeHandle::borrow(pending.value) };
                number = capture.number_of(large);
                &number[..]
            } else {
                pending.value
            };
            record.lay_out(pending.kind, &pending.fields, pending.key, value);
            capture.landing.extend_from_slice(record.bytes());
            capture.landing_records += 1;
        }
        capture
    }

    /// Copies the rest; `state` is the one whose landings were copied.
    pub(crate) fn settled(&mut self, low: &[u8], state: &LeafState) {
        self.form = state.form.clone();
        self.logical_bytes =
            if state.below.is_some() { upper_records(state) } else { settled(state) }.1.max(0) as u64;
        self.records = state.body.len() as u16;
        self.low = low.to_vec();
        if state.body.is_empty() {
            return;
        }
        // References are replaced where they lie, in the order of the records that own them.
        let mut handles =
            (0..state.body.len()).filter_map(|index| match state.body.found(index, &state.form).payload {
                Payload::Large(large) => Some(large),
                _ => None,
            });
        let replaced = state.body.with_references(|_| {
            let large = handles.next().expect("a body has as many large values as references");
            self.number_of(large)
        });
        self.body = replaced.unwrap_or_else(|| state.body.bytes().to_vec());
    }

    fn number_of(&mut self, large: LargeHandle<'_>) -> [u8; REFERENCE_BYTES] {
        let known = self.larges.iter().position(|known| std::ptr::eq(&**known, &*large));
        let number = known.unwrap_or_else(|| {
            self.larges.push(large.share());
            self.larges.len() - 1
        });
        (number as u64).to_le_bytes()
    }

    /// The coding of the body.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.form.generation()
    }

    /// Records and bytes of the body, if there is nothing else.
    pub(crate) fn plain(&self) -> Option<Plain> {
        let is_plain = self.records > 0 && self.landing_records == 0 && self.larges.is_empty();
        is_plain.then_some(Plain { records: self.records, logical_bytes: self.logical_bytes })
    }

    /// Writes the image in place of what is in `out`; `larges` tells of each of [`Capture::larges`] where it lies.
    pub(crate) fn write(&self, larges: &[StoredLarge], out: &mut Vec<u8>) {
        let image = LeafImage {
            heated: self.form.is_hot(),
            loose: self.form.loose(),
            generation: self.generation(),
            logical_bytes: self.logical_bytes,
            low: &self.low,
            larges: larges.to_vec(),
            body: &self.body,
            landing: &self.landing,
            landing_records: self.landing_records,
        };
        image.write(out);
    }
}

/// An image as it lies in bytes. Body and landing are checked when they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafImage<'a> {
    pub(crate) heated: bool,
    pub(crate) loose: u16,
    /// The coding of the body.
    pub(crate) generation: Option<u32>,
    /// Bytes of the body's keys and values.
    pub(crate) logical_bytes: u64,
    /// The key at which the leaf began.
    pub(crate) low: &'a [u8],
    pub(crate) larges: Vec<StoredLarge>,
    /// Nothing if it has no records.
    pub(crate) body: &'a [u8],
    pub(crate) landing: &'a [u8],
    pub(crate) landing_records: u32,
}

/// Bytes that large values may take in the list of an image. A longer one is no list.
const PIECES_MAX: usize = (VALUE_BYTES_MAX as usize).div_ceil(1 << 20);

impl<'a> LeafImage<'a> {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.push(VERSION);
        out.push(
            if self.generation.is_some() { HAS_GENERATION } else { 0 }
                | if self.heated { IS_HEATED } else { 0 },
        );
        out.extend_from_slice(&self.loose.to_le_bytes());
        out.extend_from_slice(&self.generation.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.logical_bytes.to_le_bytes());
        for count in [self.low.len(), self.larges.len(), self.body.len(), self.landing_records as usize] {
            out.extend_from_slice(&u32::try_from(count).expect("a leaf is far below 4 GiB").to_le_bytes());
        }
        out.extend_from_slice(self.low);
        for large in &self.larges {
            out.extend_from_slice(&large.len.to_le_bytes());
            out.push(u8::from(large.generation.is_some()));
            out.extend_from_slice(&large.generation.unwrap_or(0).to_le_bytes());
            for place in large.pieces.iter() {
                write_place(*place, out);
            }
        }
        out.extend_from_slice(self.body);
        out.extend_from_slice(self.landing);
    }

    /// Reads an image; `bytes` may be anything.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (version, rest) = bytes.split_first().ok_or("an image is empty")?;
        if !(VERSION_MIN..=VERSION).contains(version) {
            return Err(FormatError::Version(format!(
                "an image has version {version}, and this program reads versions {VERSION_MIN} to {VERSION}"
            )));
        }
        Self::read_fields(FieldReader(rest)).ok_or_else(|| "an image ends too early".into())
    }

    fn read_fields(mut reader: FieldReader<'a>) -> Option<Self> {
        let flags = reader.u8().filter(|flags| flags & !(HAS_GENERATION | IS_HEATED) == 0)?;
        let loose = reader.u16()?;
        let generation = number(flags & HAS_GENERATION, reader.u32()?)?;
        let logical_bytes = reader.u64()?;
        let [low_len, large_count, body_len, landing_records] =
            [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let low = reader.bytes(low_len as usize).filter(|low| low.len() <= KEY_BYTES_MAX)?;
        let mut larges = Vec::new();
        for _ in 0..large_count {
            larges.push(read_large(&mut reader)?);
        }
        let body = reader.bytes(body_len as usize)?;
        let heated = flags & IS_HEATED != 0;
        let landing = reader.0;
        Some(Self { heated, loose, generation, logical_bytes, low, larges, body, landing, landing_records })
    }

    /// Its contents, if that is a body of so many records and nothing else.
    pub(crate) fn plain(&self, records: usize) -> Option<Plain> {
        let is_plain = records > 0 && self.landing_records == 0 && self.larges.is_empty();
        is_plain.then_some(Plain { records: records as u16, logical_bytes: self.logical_bytes })
    }

    /// Every generation that the image needs.
    pub(crate) fn generations(&self) -> impl Iterator<Item = u32> {
        self.generation.into_iter().chain(self.larges.iter().filter_map(|large| large.generation))
    }

    /// The newest records of the landings, in key order.
    pub(crate) fn landing(&self) -> Result<Vec<Pending<'a>>, &'static str> {
        let mut reader = FieldReader(self.landing);
        let mut records: Vec<Pending<'a>> = Vec::new();
        for _ in 0..self.landing_records {
            let record = read_record(&mut reader, self.larges.len()).ok_or("a record of an image is none")?;
            if records.last().is_some_and(|before| before.key >= record.key) {
                return Err("the records of an image are not in order");
            }
            records.push(record);
        }
        if reader.is_empty() { Ok(records) } else { Err("bytes lie behind an image's records") }
    }
}

fn number(present: u8, value: u32) -> Option<Option<u32>> {
    match (present, value) {
        (0, 0) => Some(None),
        (0, _) => None,
        _ => Some(Some(value)),
    }
}

fn read_large(reader: &mut FieldReader<'_>) -> Option<StoredLarge> {
    let len = reader.u64().filter(|len| (1..=VALUE_BYTES_MAX).contains(len))?;
    let generation = number(reader.u8().filter(|present| *present < 2)?, reader.u32()?)?;
    let count = LargePieces::count(len);
    debug_assert!(count <= PIECES_MAX);
    let pieces: Option<Vec<Extent>> = (0..count).map(|_| read_place(reader)).collect();
    Some(StoredLarge { len, generation, pieces: pieces?.into() })
}

fn read_record<'a>(reader: &mut FieldReader<'a>, larges: usize) -> Option<Pending<'a>> {
    let tag = Tag(reader.u8()?);
    let (key_len, value_len) = (reader.varint()? as usize, reader.varint()? as usize);
    if !tag.is_landed() || !(1..=KEY_BYTES_MAX).contains(&key_len) {
        return None;
    }
    let (fields, _) = Fields::read(tag, reader.bytes(tag.field_bytes())?);
    let (key, value) = (reader.bytes(key_len)?, reader.bytes(value_len)?);
    let is_sound = match tag.kind() {
        Kind::Large => value.len() == REFERENCE_BYTES && u64::from_le_bytes(array(value)) < larges as u64,
        Kind::Tombstone | Kind::Touch => value.is_empty(),
        _ => value.len() <= INLINE_BYTES_MAX,
    };
    let fingerprint = ziptier_tree::body::fingerprint(ziptier_tree::record::key_hash(key));
    is_sound.then_some(Pending { key, fingerprint, kind: tag.kind(), fields, value })
}

/// Appends a place: segment, offset and bytes.
pub(crate) fn write_place(place: Extent, out: &mut Vec<u8>) {
    out.extend_from_slice(&place.segment.to_le_bytes());
    out.extend_from_slice(&place.offset.to_le_bytes());
    out.extend_from_slice(&place.bytes.to_le_bytes());
}

pub(crate) fn read_place(reader: &mut FieldReader<'_>) -> Option<Extent> {
    Some(Extent { segment: reader.u64()?, offset: reader.u32()?, bytes: reader.u32()? })
}

/// The same records with raw values; what is damaged is lost, and says so.
pub(crate) fn with_raw_values(body: &Body, form: &Form) -> Body {
    let mut raw = Vec::new();
    let mut values: Vec<(Kind, Option<Range<usize>>)> = Vec::with_capacity(body.len());
    for index in 0..body.len() {
        let found = body.found(index, form);
        let start = raw.len();
        values.push(match found.payload {
            Payload::Coded(..) | Payload::Recoded(..) | Payload::Packed(_) => {
                match copy_found(found, &mut raw) {
                    Copied::Inline(_) => (Kind::Raw, Some(start..raw.len())),
                    _ => (Kind::Lost, Some(start..start)),
                }
            }
            _ => (body.record(index).tag.kind(), None),
        });
    }
    let entries = values.iter().enumerate().map(|(index, (kind, value))| {
        let entry = body.entry(index);
        let payload = value.clone().map_or(entry.payload, |value| &raw[value]);
        BodyEntry { kind: *kind, payload, ..entry }
    });
    Builder::default().build(&entries.collect::<Vec<_>>(), None)
}

/// The image that a leaf remembers.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Appends of the leaf when the image was taken.
    appends: u64,
    /// The place of the image, once a checkpoint with it is in force.
    at: OnceLock<StoredAt>,
}

/// The place of an image, which this owns, and everything else that the image needs.
#[derive(Debug)]
pub(crate) struct StoredAt {
    image: OwnedImage,
    generation: Option<u32>,
    /// Segments and generations of its large values.
    large_segments: Box<[u64]>,
    large_generations: Box<[u32]>,
    plain: Option<Plain>,
}

/// An image that is a body and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) records: u16,
    /// Bytes of its keys and values.
    pub(crate) logical_bytes: u64,
}

impl Stored {
    /// Of an image that is being taken: the caller holds the leaf's writer lock.
    pub(crate) fn pending(appends: u64) -> Arc<Self> {
        Arc::new(Self { appends, at: OnceLock::new() })
    }

    /// What `state` remembers.
    pub(crate) fn of(state: &LeafState) -> Option<&Self> {
        state.stored.as_deref()?.downcast_ref()
    }

    /// A share of that.
    pub(crate) fn shared(state: &LeafState) -> Option<Arc<Self>> {
        state.stored.clone()?.downcast().ok()
    }

    /// A checkpoint with the image is in force.
    pub(crate) fn set(&self, at: StoredAt) {
        let is_first = self.at.set(at).is_ok();
        debug_assert!(is_first, "an image is in one checkpoint first");
    }

    /// The place of the image, if a checkpoint with it is or was in force.
    pub(crate) fn at(&self) -> Option<&StoredAt> {
        self.at.get()
    }

    /// The place of the image, if the leaf still says the same. The form of its records may have changed meanwhile.
    pub(crate) fn current(&self, appends: u64, generation: Option<u32>) -> Option<&StoredAt> {
        self.at.get().filter(|at| self.appends == appends && at.generation == generation)
    }
}

impl StoredAt {
    pub(crate) fn new(
        image: OwnedImage,
        generation: Option<u32>,
        larges: &[StoredLarge],
        plain: Option<Plain>,
    ) -> Self {
        let pieces = larges.iter().flat_map(|large| large.pieces.iter());
        let segments: BTreeSet<u64> = pieces.map(|place| place.segment).collect();
        let generations: BTreeSet<u32> = larges.iter().filter_map(|large| large.generation).collect();
        let large_segments = segments.into_iter().collect();
        Self {
            image,
            generation,
            large_segments,
            large_generations: generations.into_iter().collect(),
            plain,
        }
    }

    pub(crate) fn place(&self) -> Extent {
        self.image.places()[0]
    }

    /// Somebody else owns the image now.
    pub(crate) fn hand_on(&self) {
        self.image.hand_on();
    }

    /// The contents of the image, if that is a body and nothing else.
    pub(crate) fn plain(&self) -> Option<Plain> {
        self.plain
    }

    /// The coding of its body.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// Generations that the image needs.
    pub(crate) fn generations(&self) -> impl Iterator<Item = u32> {
        self.generation.into_iter().chain(self.large_generations.iter().copied())
    }

    /// Segments of the image and of its large values.
    pub(crate) fn segments(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.place().segment).chain(self.large_segments.iter().copied())
    }
}
