//! The manifest: the images that make up the last checkpoint, and the number at which the log goes on.
//! `docs/FORMATS.md` draws it.
//!
//! 1. The manifest is written whole to another name, made durable, and renamed. There is always one, of one checkpoint.
//! 2. It is a header, then chunks. The checksum of a chunk depends on its place and on the checkpoint, so damage is
//!    found where it is.
//! 3. The manifest of a store with much cold data is long. It is built chunk by chunk, in the bytes of the file, and
//!    read in the same way.
//! 4. No part of a store can be read without its manifest, so there is a copy.

mod read;
mod write;

use std::path::PathBuf;

use ziptier_codec::checksum::{crc32c, crc32c_append};
use ziptier_media::log::Lsn;
use ziptier_tree::below::Part;
use ziptier_tree::extent::Extent;

pub(crate) use read::{EntryReader, Manifest};
pub(crate) use write::Entries;

/// The manifest's name in a store's folder.
pub(crate) const NAME: &str = "MANIFEST";
/// Its copy's.
pub(crate) const COPY_NAME: &str = "MANIFEST.copy";
/// The suffix of the name of a manifest that is being written.
const NEW_SUFFIX: &str = ".new";

const SIGNATURE: &[u8; 8] = b"ziptrman";
/// The format that is written.
const VERSION: u32 = 3;
/// The oldest one that is read: it is the same, and names no dictionary with codes.
const VERSION_MIN: u32 = 2;
const HEADER_BYTES: usize = 64;
const CHUNK_HEADER_BYTES: usize = 12;
pub(super) const GENERATIONS_MAX: u32 = 1024;

const HAS_IMAGE: u8 = 1;
const HAS_PARTS: u8 = 1 << 1;
const IN_MEMORY: u8 = 1 << 2;

/// A leaf as a checkpoint found it. It owned the keys from `low` on, up to the next entry's. Without image and without
/// parts the leaf held nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) low: Box<[u8]>,
    /// The image of what lies above the parts, or of everything if there are none.
    pub(crate) image: Option<Extent>,
    pub(crate) below: Option<Listed>,
}

/// Images of bodies that a leaf's records lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The one part was in memory, too.
    pub(crate) in_memory: bool,
    /// Bytes of keys and values of all parts.
    pub(crate) logical_bytes: u64,
    /// The codings of the parts.
    pub(crate) generations: Vec<u32>,
    /// At least one; the first begins with the entry's key.
    pub(crate) parts: Vec<Part>,
}

/// The fields of a checkpoint besides its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its number, larger than that of each checkpoint before.
    pub(crate) number: u64,
    /// The store's, drawn when its folder was made; its folder of segments has it, too.
    pub(crate) store: u64,
    /// The first record of the log that may not be in the images.
    pub(crate) start_lsn: Lsn,
    /// The newest record of the log that may be in the images: the log was durable up to here.
    pub(crate) durable_lsn: Lsn,
    /// Generations that the images need.
    pub(crate) generations: Vec<u32>,
    /// The folder of the segments, if it is not within the store's folder.
    pub(crate) segments_dir: Option<PathBuf>,
}

/// The seed of a chunk's checksum: a chunk of another manifest, or at another place, fails.
fn seed(number: u64, index: u64) -> u32 {
    crc32c_append(crc32c(&number.to_le_bytes()), &index.to_le_bytes())
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::Error;
    use ziptier_media::disk::{Disk, DiskError};
    use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

    const DIR: &str = "/d";

    fn entry(n: usize) -> Entry {
        let key = |n: usize| format!("key:{n:09}").into_bytes();
        let place = |n: usize| Extent { segment: 3 + n as u64 / 100, offset: n as u32 * 8, bytes: 8000 };
        let part = |n: usize| Part { low: key(n), place: place(n), records: n as u16 };
        let low: Box<[u8]> = if n == 0 { Box::default() } else { key(10 * n).into() };
        let first = Part { low: low.to_vec(), ..part(10 * n) };
        let below = match n % 5 {
            0 | 1 => None,
            2 => {
                Some(Listed { in_memory: true, logical_bytes: 77, generations: vec![2], parts: vec![first] })
            }
            _ => Some(Listed {
                in_memory: false,
                logical_bytes: n as u64,
                generations: vec![1, 7],
                parts: [first].into_iter().chain((1..n % 7).map(|at| part(10 * n + at))).collect(),
            }),
        };
        Entry { low, image: matches!(n % 5, 0 | 3).then(|| place(n)), below }
    }

    fn head() -> Head {
        Head {
            number: 9,
            store: 0x1234_5678_9abc_def0,
            start_lsn: 1000,
            durable_lsn: 1005,
            generations: vec![1, 2, 7],
            segments_dir: Some("/mnt/ssd/\u{e9}".into()),
        }
    }

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// One without a copy.
    fn alone(bytes: Vec<u8>) -> Result<Option<Manifest>, Error> {
        let disk = RecordingDisk::new();
        disk.put(&path(NAME), bytes);
        Manifest::load(&disk, Path::new(DIR))
    }

    fn stored(entries: usize) -> (RecordingDisk, Vec<u8>) {
        let disk = RecordingDisk::new();
        let mut made = Entries::default();
        (0..entries).for_each(|n| made.push(&entry(n)));
        let written = head().store(&made, &disk, Path::new(DIR)).unwrap();
        let bytes = disk.contents(&path(NAME)).unwrap();
        assert_eq!(disk.contents(&path(COPY_NAME)).unwrap(), bytes);
        assert_eq!(2 * bytes.len() as u64, written);
        (disk, bytes)
    }

    #[test]
    fn a_manifest_comes_back() {
        for entries in [0, 1, 2, 10_000] {
            let (disk, _) = stored(entries);
            let manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
            assert_eq!(manifest.head, head());
            let found: Result<Vec<Entry>, Error> = manifest.entries().collect();
            assert!(found.unwrap() == (0..entries).map(entry).collect::<Vec<_>>());
            assert_eq!(manifest.has_cold, entries > 3);
            assert_eq!(manifest.named.is_empty(), entries == 0);
        }
        assert!(Manifest::load(&RecordingDisk::new(), Path::new(DIR)).unwrap().is_none());
    }

    #[test]
    fn entries_are_taken_back_by_chunks() {
        let mut entries = Entries::default();
        let mut lows: Vec<Vec<u8>> = Vec::new();
        let mut add = |entries: &mut Entries, from: usize| {
            lows.truncate(from);
            (from..8000).for_each(|n| {
                entries.push(&entry(n));
                lows.push(entry(n).low.into());
            });
            lows.clone()
        };
        let mut lows = add(&mut entries, 0);
        for key in [lows[7999].clone(), b"key:000040005".to_vec(), lows[1].clone(), Vec::new()] {
            let low = entries.back_to(&key);
            assert!(low <= key, "{low:?}");
            let at = lows.iter().position(|known| *known == low).unwrap();
            assert_eq!(entries.len(), at as u64);
            lows = add(&mut entries, at);
        }
        let disk = RecordingDisk::new();
        head().store(&entries, &disk, Path::new(DIR)).unwrap();
        let manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
        assert!(manifest.entries().map(Result::unwrap).eq((0..8000).map(entry)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (disk, bytes) = stored(400);
        let entries: Vec<Entry> = (0..400).map(entry).collect();
        assert!(bytes.len() > 16 << 10, "{} bytes are one chunk", bytes.len());
        for bit in (0..8 * bytes.len()).step_by(37) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = alone(damaged.clone()).err().unwrap();
            let named = matches!(&error, Error::FileDamaged { .. } | Error::FileForeign { .. });
            assert!(named, "bit {bit}: {error}");
            // The other one has it all.
            let name = if bit % 2 == 0 { NAME } else { COPY_NAME };
            let disk = disk.copy();
            disk.put(&path(name), damaged);
            let mut manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
            assert_eq!(manifest.damage().unwrap().to_string().contains(COPY_NAME), name == COPY_NAME);
            assert!(manifest.entries().map(Result::unwrap).eq(entries.iter().cloned()));
            manifest.mend(&disk, Path::new(DIR)).unwrap();
            assert!(disk.contents(&path(name)).unwrap() == bytes);
        }
        for end in (0..bytes.len()).step_by(37) {
            assert!(alone(bytes[..end].to_vec()).is_err(), "{end}");
        }
        assert!(alone([&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_copy_that_is_missing_or_of_another_checkpoint_is_no_damage_and_is_made_anew() {
        let (disk, bytes) = stored(10);
        let other = RecordingDisk::new();
        Head { number: 8, ..head() }.store(&Entries::default(), &other, Path::new(DIR)).unwrap();
        for copy in [None, other.contents(&path(COPY_NAME))] {
            let _there_or_not = disk.remove(&path(COPY_NAME));
            copy.into_iter().for_each(|copy| disk.put(&path(COPY_NAME), copy));
            let mut manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
            assert_eq!((manifest.head.number, manifest.damage()), (9, None));
            assert_eq!(manifest.mend(&disk, Path::new(DIR)), Ok(None));
            assert!(disk.contents(&path(COPY_NAME)).unwrap() == bytes);
            let mut manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
            disk.remove(&path(COPY_NAME)).unwrap();
            assert_eq!(manifest.mend(&disk, Path::new(DIR)), Ok(None));
            assert!(disk.contents(&path(COPY_NAME)).is_none(), "there was nothing to mend");
        }
        let (disk, _) = stored(10);
        disk.remove(&path(NAME)).unwrap();
        assert_eq!(Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap().head, head());
    }

    /// The copy is opened first.
    #[test]
    fn a_copy_that_cannot_be_opened_is_told_and_not_the_damage_of_the_other_file() {
        let (disk, mut bytes) = stored(10);
        bytes[100] ^= 1;
        disk.put(&path(NAME), bytes);
        let disk = FailingDisk::new(Arc::new(disk), Fault::TooManyFiles, 0);
        let refused = Manifest::load(&disk, Path::new(DIR)).err();
        let told = Error::from(DiskError::TooManyFiles { operation: "open", path: path(COPY_NAME) });
        assert_eq!(refused, Some(told));
        let manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
        assert!(manifest.damage().is_some());
    }

    #[test]
    fn a_copy_that_has_no_room_at_its_sync_was_refused() {
        let (disk, _) = stored(10);
        disk.remove(&path(COPY_NAME)).unwrap();
        let disk = FailingDisk::new(Arc::new(disk), Fault::FullAtSync, 0);
        let mut manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
        assert!(manifest.mend(&disk, Path::new(DIR)).is_err_and(|error| error.is_refusal()));
    }

    #[test]
    fn another_version_is_named() {
        let (_, mut bytes) = stored(3);
        for version in [1, 4] {
            bytes[8] = version;
            let error = alone(bytes.clone()).err().unwrap().to_string();
            let sentence = format!("it has version {version}, and this program reads versions 2 to 3");
            assert!(error.ends_with(&sentence), "{error}");
        }
    }
}
