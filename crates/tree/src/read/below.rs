//! Look-ups that go on below memory: the reader ends its guard, reads and checks one image, and takes the record from
//! it.
//!
//! Not for reads that need a fixed list. The places of a list may be released while they are read, when a segment is
//! cleaned or removed. That is no damage. The leaf has another list then, and a failed read is repeated with it.

use std::sync::Arc;

use super::{Copied, Looked, Reads, copy_found};
use crate::Error;
use crate::below::{Below, Image};
use crate::leaf::LeafState;
use crate::record::{Found, Meta};
use crate::tree::Tree;

/// Images that a look-up of many keys holds at a time.
pub const IMAGES_MAX: usize = 64;

#[cfg(any(test, feature = "testing"))]
std::thread_local! {
    /// The most images that this thread has read at the same time.
    pub static IMAGES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A key that memory knows nothing of.
struct KeyBelow {
    list: Arc<Below>,
    /// The image of the list that owns the key.
    image: usize,
    /// The index of the key.
    index: usize,
}

impl KeyBelow {
    /// The image among those of all lists.
    fn owner(&self) -> (*const Below, usize) {
        (Arc::as_ptr(&self.list), self.image)
    }
}

impl Tree {
    /// Reads image `index` of `below`. The caller holds no guard.
    pub fn read_image(&self, below: &Below, index: usize) -> Result<Image, String> {
        self.count_read(below, index);
        below.files().read(below, index)
    }

    /// Reads several images at once; they come in the order in which they were asked for.
    pub fn read_images(&self, wanted: &[(Arc<Below>, usize)]) -> Vec<Result<Image, String>> {
        #[cfg(any(test, feature = "testing"))]
        IMAGES_READ.set(IMAGES_READ.get().max(wanted.len()));
        let Some((first, _)) = wanted.first() else { return Vec::new() };
        wanted.iter().for_each(|(below, index)| self.count_read(below, *index));
        first.files().read_several(wanted)
    }

    fn count_read(&self, below: &Below, index: usize) {
        self.stats.own().image_bytes.add(u64::from(below.place(index).bytes));
    }

    /// Whether memory says nothing of `key`, and `below` is what lies below.
    pub(crate) fn lies_below(&self, state: &LeafState, key: &[u8], hash: u64, below: &Arc<Below>) -> bool {
        state.below.as_ref().is_some_and(|now| Arc::ptr_eq(now, below))
            && state.is_only_below(key, hash, &self.commits)
    }
}

impl Reads<'_> {
    /// Goes on below, and in memory again if the leaf was changed meanwhile.
    #[cold]
    pub(super) fn find_below<R>(
        &self,
        key: &[u8],
        mut below: Arc<Below>,
        mut take: impl FnMut(Found<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        loop {
            self.tree.stats.own().ssd_reads.raise();
            let failed = match self.tree.read_image(&below, below.image_of(key)) {
                Ok(image) => {
                    let found = image.find(key).filter(|found| !self.tree.is_over(found.expires_at_ms));
                    let taken = found.map(take);
                    self.host.note_read_below(key, found, &below);
                    return Ok(taken);
                }
                Err(reason) => reason,
            };
            let guard = self.tree.pin();
            match self.tree.look_up(key, &guard, &self.tree.commits, &mut take) {
                Looked::Found(taken) => return Ok(Some(taken)),
                Looked::Absent => return Ok(None),
                Looked::Below(now) if Arc::ptr_eq(&now, &below) => return Err(self.tree.unread(key, failed)),
                Looked::Below(now) => below = now,
            }
        }
    }

    /// Looks up keys that memory knows nothing of, each given by its index, and hands on their values in any order. Of
    /// a large value above `len_max` it hands on the meta alone. Each image is read once, and several at the same time.
    /// Returns whether all of them lay there; keys of other images were looked up once more.
    pub fn find_all_below<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        below: Vec<(usize, Arc<Below>)>,
        len_max: u64,
        mut each: impl FnMut(usize, Option<(Option<&[u8]>, Meta)>),
    ) -> Result<bool, Error> {
        let keys_below = below.into_iter().map(|(index, list)| {
            let image = list.image_of(keys[index].as_ref());
            KeyBelow { list, image, index }
        });
        let mut keys_below: Vec<KeyBelow> = keys_below.collect();
        // In key order, keys of one image stand beside each other, and images are read in the order of their keys.
        keys_below.sort_unstable_by(|a, b| keys[a.index].as_ref().cmp(keys[b.index].as_ref()));
        let by_image: Vec<&[KeyBelow]> = keys_below.chunk_by(|a, b| a.owner() == b.owner()).collect();
        let (mut lay_there, mut bytes) = (true, Vec::new());
        for group in by_image.chunks(IMAGES_MAX) {
            let wanted: Vec<_> = group.iter().map(|keys| (keys[0].list.clone(), keys[0].image)).collect();
            self.tree.stats.own().ssd_reads.add(wanted.len() as u64);
            let images = self.tree.read_images(&wanted);
            lay_there &= images.iter().all(Result::is_ok);
            for (of_image, image) in group.iter().zip(&images) {
                for KeyBelow { list, index, .. } in *of_image {
                    bytes.clear();
                    let (key, image) = (keys[*index].as_ref(), image.as_ref().ok());
                    let copied = self.copy_below(key, list, image, len_max, &mut bytes)?;
                    let value = |is_copied: bool| is_copied.then_some(bytes.as_slice());
                    each(*index, copied.map(|(is_copied, meta)| (value(is_copied), meta)));
                }
            }
        }
        Ok(lay_there)
    }

    /// Copies the value of `key` from its image, or from elsewhere if that could not be read. Returns whether it was
    /// copied, and its meta.
    fn copy_below(
        &self,
        key: &[u8],
        list: &Arc<Below>,
        image: Option<&Image>,
        len_max: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(bool, Meta)>, Error> {
        let copied = match image {
            Some(image) => {
                let found = image.find(key).filter(|found| !self.tree.is_over(found.expires_at_ms));
                let copied = found.map(|found| copy_found(found, bytes));
                self.host.note_read_below(key, found, list);
                copied
            }
            None => self.find_value(key, |found| copy_found(found, bytes))?,
        };
        match copied {
            None => Ok(None),
            Some(Copied::Inline(meta)) => Ok(Some((true, Meta { len: bytes.len() as u64, ..meta }))),
            Some(Copied::Large(_, meta)) if meta.len > len_max => Ok(Some((false, meta))),
            Some(Copied::Large(large, meta)) => {
                self.tree.read_large(key, &large, bytes).map(|()| Some((true, meta)))
            }
            Some(Copied::Damaged(reason)) => Err(self.tree.damaged(key, reason)),
        }
    }
}
