//! The list of images below a cold leaf: their places in key order, compact.
//!
//! Not for the files that hold them, nor for the bytes of an image: a list asks [`Images`].
//!
//! The index of the SSD is at most 1 % of it. An image costs 20 bytes, and the part of its lowest key that differs from
//! its neighbours'. A leaf of eight images costs about as much besides.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::body::Body;
use crate::coding::Coding;
use crate::extent::Extent;
use crate::form::Form;
use crate::memory::allocated_bytes;
use crate::record::{Found, key_hash};

/// The files of all images.
pub trait Images: Send + Sync {
    /// Reads image `index` of `below`. The caller holds no guard.
    ///
    /// # Errors
    /// Why there is none: the file cannot be read, the image is damaged, or its place was released meanwhile.
    fn read(&self, below: &Below, index: usize) -> Result<Image, String>;

    /// Reads several images at once; they come in the order in which they were asked for.
    fn read_several(&self, wanted: &[(Arc<Below>, usize)]) -> Vec<Result<Image, String>>;

    /// Nobody names the place any more.
    fn release(&self, place: Extent);

    /// Counts a list that came or went, with its leaf: the bytes that its allocations ask for, and what these hold.
    fn count(&self, asked: &[usize], held_bytes: u64, came: bool);
}

/// An image that was read.
pub struct Image {
    /// Its records.
    pub body: Body,
    /// The form of its body.
    pub form: Form,
}

impl Image {
    /// The record of `key` in it.
    pub fn find(&self, key: &[u8]) -> Option<Found<'_>> {
        let index = self.body.find(key, key_hash(key))?;
        Some(self.body.found(index, &self.form))
    }
}

/// The place of one image.
#[derive(Clone, Copy)]
struct Listed {
    segment: u32,
    offset: u32,
    bytes: u32,
    /// The end of the rest of its lowest key in `lows`.
    low_end: u32,
    records: u16,
}

/// An image on its way into a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The lowest key that it owns; the first one's is not looked at: it is the leaf's.
    pub low: Vec<u8>,
    /// The place of the image in the files.
    pub place: Extent,
    /// Records of the image.
    pub records: u16,
}

/// The images of a leaf, in key order. It owns their places, which are released with it unless they were handed on.
///
/// A reader may hold a share longer than the places last: then its read fails, and the leaf has another list.
pub struct Below {
    files: Arc<dyn Images>,
    images: Box<[Listed]>,
    /// The prefix of all lowest keys but the first, and then their rests.
    lows: Box<[u8]>,
    prefix_len: u32,
    logical_bytes: u64,
    /// The codings of the images: images of one generation share one.
    codings: Box<[Coding]>,
    is_handed_on: AtomicBool,
}

impl Below {
    /// A list of `parts`, at least one, whose records have `logical_bytes`.
    pub fn new(
        files: Arc<dyn Images>,
        parts: &[Part],
        codings: Vec<Coding>,
        logical_bytes: u64,
    ) -> Arc<Self> {
        let rest = &parts[1..];
        let prefix = match (rest.first(), rest.last()) {
            (Some(first), Some(last)) => first.low.iter().zip(&last.low).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let mut lows = rest.first().map_or_else(Vec::new, |first| first.low[..prefix].to_vec());
        let images = parts.iter().enumerate().map(|(index, part)| {
            if index > 0 {
                lows.extend_from_slice(&part.low[prefix..]);
            }
            Listed {
                segment: u32::try_from(part.place.segment).expect("segments are numbered one by one"),
                offset: part.place.offset,
                bytes: part.place.bytes,
                low_end: u32::try_from(lows.len()).expect("a leaf has few images"),
                records: part.records,
            }
        });
        let images = images.collect();
        let below = Self {
            files,
            images,
            lows: lows.into_boxed_slice(),
            prefix_len: prefix as u32,
            logical_bytes,
            codings: codings.into_boxed_slice(),
            is_handed_on: AtomicBool::new(false),
        };
        below.count(true);
        Arc::new(below)
    }

    /// The same images in other places.
    pub fn elsewhere(&self, parts: &[Part]) -> Arc<Self> {
        Self::new(self.files.clone(), parts, self.codings.to_vec(), self.logical_bytes)
    }

    /// Images.
    #[expect(clippy::len_without_is_empty, reason = "it has an image at least")]
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Records of all images, those included that something above shadows.
    pub fn records(&self) -> u32 {
        self.images.iter().map(|image| u32::from(image.records)).sum()
    }

    /// About the bytes of their keys and values as the user sees them: exact in the sum over all lists.
    pub fn logical_bytes(&self) -> u64 {
        self.logical_bytes
    }

    /// The place of image `index`.
    pub fn place(&self, index: usize) -> Extent {
        let Listed { segment, offset, bytes, .. } = self.images[index];
        Extent { segment: segment.into(), offset, bytes }
    }

    /// The lowest key that image `index` owns; of the first one nothing is known here, and behind the last one there is
    /// none.
    pub fn low(&self, index: usize) -> Option<Vec<u8>> {
        (1..self.len()).contains(&index).then(|| [self.prefix(), self.rest(index)].concat())
    }

    /// The image that owns `key`.
    pub fn image_of(&self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        let shared = key.len().min(prefix.len());
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len() - 1,
            Ordering::Equal if key.len() < prefix.len() => return 0,
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.rest(middle) <= rest { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// The image that owns the keys just below `key`, which is above the leaf's lowest.
    pub(crate) fn image_below(&self, key: &[u8]) -> usize {
        let image = self.image_of(key);
        if self.low(image).is_some_and(|low| low == key) { image - 1 } else { image }
    }

    /// All images as parts, for another list; the first one's lowest key is `low`.
    pub fn parts(&self, low: &[u8]) -> Vec<Part> {
        let low_of = |index| self.low(index).unwrap_or_else(|| low.to_vec());
        (0..self.len())
            .map(|index| Part {
                low: low_of(index),
                place: self.place(index),
                records: self.images[index].records,
            })
            .collect()
    }

    /// The codings of all images: images of one generation share one.
    pub fn codings(&self) -> &[Coding] {
        &self.codings
    }

    /// The coding of the images of a generation.
    pub fn coding(&self, generation: u32) -> Option<&Coding> {
        self.codings.iter().find(|coding| coding.generation() == generation)
    }

    /// The files that hold the images.
    pub fn files(&self) -> &Arc<dyn Images> {
        &self.files
    }

    /// Another list owns the places now.
    pub fn hand_on(&self) {
        self.is_handed_on.store(true, Relaxed);
    }

    fn prefix(&self) -> &[u8] {
        &self.lows[..self.prefix_len as usize]
    }

    /// The lowest key of image `index`, which is not the first, behind the prefix.
    fn rest(&self, index: usize) -> &[u8] {
        let start = if index == 1 { self.prefix_len } else { self.images[index - 1].low_end };
        &self.lows[start as usize..self.images[index].low_end as usize]
    }

    /// Counts what it holds in memory in (or out).
    fn count(&self, add: bool) {
        let asked = [
            size_of::<Self>() + 2 * size_of::<usize>(),
            size_of_val(&*self.images),
            self.lows.len(),
            size_of_val(&*self.codings),
        ];
        let held: usize = asked.iter().map(|bytes| allocated_bytes(*bytes)).sum();
        self.files.count(&asked, held as u64, add);
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        self.count(false);
        if !self.is_handed_on.load(Relaxed) {
            (0..self.len()).for_each(|index| self.files.release(self.place(index)));
        }
    }
}
