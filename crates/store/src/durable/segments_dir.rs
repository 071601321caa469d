//! The owner of a folder of segments: a file in it has the number of the store, and so has the store's manifest.
//!
//! The folder may lie on another disk than the store's, and may be moved. Segments of another store, or of none, are
//! refused before anything is changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::crc32c;
use ziptier_media::disk::{Caching, Disk, write_all_at};
use ziptier_media::segments::{SegmentError, SegmentOptions, Segments};
use ziptier_tree::fields::{FieldReader, FormatError};

use super::generation::read_whole;
use super::manifest::Manifest;
use crate::Error;

/// The folder of segments within a store's.
const DIR: &str = "segments";
/// The file that says whose a folder is.
pub(super) const NAME: &str = "STORE";
const SIGNATURE: &[u8; 8] = b"ziptrsto";
/// The format that is written, and the only one that is read.
const VERSION: u32 = 1;

/// The folder of the segments of the store in `dir`: `wanted`, or the folder where they were.
pub(crate) fn path_of(dir: &Path, remembered: Option<&PathBuf>, wanted: Option<&PathBuf>) -> PathBuf {
    wanted.or(remembered).cloned().unwrap_or_else(|| dir.join(DIR))
}

/// Passes `damage` of the file that says whose the folder at `path` is, if the manifest of the store in `dir` says that
/// its segments are there.
///
/// # Errors
/// The manifest names another folder: then nothing says that this one is the store's.
pub(crate) fn despite(
    damage: Error,
    path: &Path,
    dir: &Path,
    manifest: Option<&Manifest>,
) -> Result<Error, Error> {
    let Some(manifest) = manifest else { return Err(damage) };
    let remembered = path_of(dir, manifest.head.segments_dir.as_ref(), None);
    if is_same(path, &remembered) {
        return Ok(damage);
    }
    let remembered = remembered.display();
    let reason =
        format!("its file {NAME} is damaged, and they were in {remembered}; name that folder, or none");
    Err(refused(path, dir, &reason))
}

/// Whether two paths lead to one folder: a path may be relative, or lead over links.
fn is_same(path: &Path, other: &Path) -> bool {
    path == other
        || path.canonicalize().is_ok_and(|path| other.canonicalize().is_ok_and(|other| path == other))
}

/// The path that a manifest remembers of a folder of segments: none if the folder is within the store's.
pub(crate) fn remembered(dir: &Path, segments_dir: &Path) -> Option<PathBuf> {
    (segments_dir != dir.join(DIR)).then(|| segments_dir.to_path_buf())
}

/// Refuses a folder that is not that of the store in `dir`, which may have no manifest yet; changes nothing. Whether
/// the folder is to be given to it: it has nothing, and no image is missing.
pub(crate) fn is_new(
    disk: &dyn Disk,
    path: &Path,
    dir: &Path,
    manifest: Option<&Manifest>,
) -> Result<bool, Error> {
    let store = manifest.map(|manifest| manifest.head.store);
    match (owner(disk, path)?, manifest) {
        (Found::Store(found), _) if Some(found) == store => Ok(false),
        (Found::Store(_), _) => Err(refused(path, dir, "it holds those of another store")),
        (_, Some(manifest)) if !manifest.named.is_empty() => {
            let remembered = path_of(dir, manifest.head.segments_dir.as_ref(), None);
            let way_out = match remembered == path {
                true => "name the folder that they were moved to".to_owned(),
                false => {
                    let remembered = remembered.display();
                    format!(
                        "they were in {remembered}; name that folder, or move all of its files here first"
                    )
                }
            };
            let reason = format!("it holds none of this store; {way_out}");
            Err(refused(path, dir, &reason))
        }
        (Found::Segments, _) => {
            Err(refused(path, dir, "it holds segments that belong to no store; remove them"))
        }
        (Found::Nothing, _) => Ok(true),
    }
}

/// Refuses a folder that is not that of `store`, and changes nothing.
pub(crate) fn verify(disk: &dyn Disk, path: &Path, dir: &Path, store: u64) -> Result<(), Error> {
    match owner(disk, path)? {
        Found::Store(found) if found == store => Ok(()),
        Found::Store(_) => Err(refused(path, dir, "it holds those of another store")),
        _ => Err(refused(
            path,
            dir,
            "it does not hold them; name the folder that they were moved to (--segments)",
        )),
    }
}

/// Refuses a folder that a store keeps its segments in, or kept.
pub(crate) fn refuse_segments_of_a_store(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match owner(disk, path)? {
        Found::Store(_) => {
            let path = path.display();
            let reason = format!(
                "{path} holds the segments of a store with a folder; name that folder, too, or another place"
            );
            Err(Error::Ssd { reason })
        }
        _ => Ok(()),
    }
}

/// Opens the segments of a manifest that names those of `named`. Passes over files that the medium does not even open,
/// and returns their faults. An image that needs one all the same, for a large value, cannot be read.
///
/// # Errors
/// Such a file of `named`, any other damage, and the disk's.
pub(crate) fn open_needed(
    disk: Arc<dyn Disk>,
    path: &Path,
    layout: SegmentOptions,
    named: &BTreeSet<u64>,
) -> Result<(Segments, Vec<SegmentError>), SegmentError> {
    let (segments, damaged) = Segments::salvage(disk, path, layout)?;
    let opened = segments.numbers();
    let mut unopened = Vec::new();
    for (number, fault) in damaged {
        let is_unopened = matches!(fault, SegmentError::Damaged { .. }) && !opened.contains(&number);
        if !is_unopened || named.contains(&number) {
            return Err(fault);
        }
        unopened.push(fault);
    }
    Ok((segments, unopened))
}

/// Says durably that a folder, which is made if it is missing, is that of `store`.
pub(crate) fn give(disk: &dyn Disk, path: &Path, store: u64) -> Result<(), Error> {
    write(disk, path, NAME, store)
}

/// Whether a folder says that it is that of `store`.
pub(crate) fn is_given(disk: &dyn Disk, path: &Path, store: u64) -> Result<bool, Error> {
    Ok(matches!(owner(disk, path)?, Found::Store(found) if found == store))
}

/// Writes the number of a store durably to a file in a folder, which is made if it is missing.
pub(crate) fn write(disk: &dyn Disk, path: &Path, name: &str, store: u64) -> Result<(), Error> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&store.to_le_bytes());
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    disk.create_dir(path)?;
    let new = path.join(format!("{name}.new"));
    match disk.remove(&new) {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => {}
    }
    let file = disk.create(&new, Caching::Cached)?;
    write_all_at(&*file, 0, &bytes)?;
    file.sync_data()?;
    disk.rename(&new, &path.join(name))?;
    Ok(disk.sync_dir(path)?)
}

/// The owner that a folder of segments names.
enum Found {
    Store(u64),
    /// Segments, and nothing of a store.
    Segments,
    Nothing,
}

fn owner(disk: &dyn Disk, path: &Path) -> Result<Found, Error> {
    let names = match disk.list(path) {
        Err(error) if error.is_not_found() => return Ok(Found::Nothing),
        names => names?,
    };
    if names.iter().any(|name| name == NAME) {
        return Ok(Found::Store(read(disk, path.join(NAME))?));
    }
    let has_segments = names.iter().any(|name| name.starts_with("segment-"));
    Ok(if has_segments { Found::Segments } else { Found::Nothing })
}

/// The number that a file has.
pub(crate) fn read(disk: &dyn Disk, path: PathBuf) -> Result<u64, Error> {
    let bytes = read_whole(disk, &path).map_err(|error| Error::of_read(error, &path, 0))?;
    parse(&bytes).map_err(|fault| Error::of_bytes(fault, path, 0))
}

fn parse(bytes: &[u8]) -> Result<u64, FormatError> {
    let mut reader = FieldReader(bytes);
    if reader.bytes(SIGNATURE.len()) != Some(SIGNATURE) {
        return Err("it has not the signature of a folder of segments".into());
    }
    // Every version ends with its checksum, so a damaged number is no version.
    let is_whole =
        bytes.split_last_chunk().is_some_and(|(rest, sum)| u32::from_le_bytes(*sum) == crc32c(rest));
    let version = reader.u32().ok_or("it ends too early")?;
    if is_whole && version != VERSION {
        return Err(FormatError::Version(format!(
            "it has version {version}, and this program reads version {VERSION}"
        )));
    }
    let mut fields = || -> Option<_> {
        let store = reader.u64()?;
        reader.u32().filter(|_| reader.is_empty()).map(|_| store)
    };
    let store = fields().ok_or("it has another length than such a file")?;
    if is_whole { Ok(store) } else { Err("it fails its check".into()) }
}

fn refused(path: &Path, dir: &Path, reason: &str) -> Error {
    let (path, dir) = (path.display(), dir.display());
    Error::Ssd { reason: format!("{path} is not the folder of the segments of {dir}: {reason}") }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use ziptier_media::testing::RecordingDisk;

    #[test]
    fn a_folder_says_whose_it_is() {
        let disk = RecordingDisk::new();
        let path = Path::new("/ssd");
        assert!(matches!(owner(&disk, path), Ok(Found::Nothing)));
        refuse_segments_of_a_store(&disk, path).unwrap();
        disk.put(&path.join("segment-1"), vec![1]);
        assert!(matches!(owner(&disk, path), Ok(Found::Segments)));
        give(&disk, path, 77).unwrap();
        verify(&disk, path, Path::new("/d"), 77).unwrap();
        let refused = verify(&disk, path, Path::new("/d"), 78).unwrap_err().to_string();
        assert!(refused.contains("/ssd") && refused.contains("another store"), "{refused}");
        let refused = refuse_segments_of_a_store(&disk, path).unwrap_err().to_string();
        assert!(refused.contains("with a folder"), "{refused}");
        let bytes = disk.contents(&path.join(NAME)).unwrap();
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&damaged).is_err(), "bit {bit}");
        }
        (0..bytes.len()).for_each(|len| assert!(parse(&bytes[..len]).is_err(), "{len}"));
    }
}
