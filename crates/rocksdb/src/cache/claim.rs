//! Whose a folder is: one that is named by mistake keeps all it has.
//!
//! A file with a name of the cache's is taken for the cache's, and removed when its turn comes, if it begins with its
//! signature. A crash leaves files of which nothing was written; they are the cache's in a folder that has another
//! proof: its mark in `LOCK`, made durable before any other file is, or a file with a signature, where an older version
//! made the folder.

use super::open::restrict;
use super::settings::CacheError;
use super::{format, snapshot};
use std::path::Path;
use ziptier_media::disk::{Caching, DirLock, Disk, DiskError, read_full_at, write_all_at};

/// The file that [`Disk::lock_dir`] locks.
const LOCK_NAME: &str = "LOCK";
const MARK: Signature = *b"ziptrlck";

/// What every file of the cache begins with.
pub(super) type Signature = [u8; 8];

/// Whose a file is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Cache,
    /// It is empty, or has zeros where the signature should be.
    Nobody,
    Other,
}

/// Locks a folder for the cache. One that is not the cache's is refused, and nothing in it is changed.
pub(super) fn take(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DirLock>, CacheError> {
    let names = disk.list(dir)?;
    if names.iter().any(|name| name == "CURRENT") {
        return Err(CacheError::Database { path: dir.to_path_buf() });
    }
    let is_marked = check(disk, dir, &names)?;
    let lock = disk.lock_dir(dir)?;
    restrict(&dir.join(LOCK_NAME), 0o600);
    if !is_marked {
        // A disk without room for it is no reason to do without the cache: the first segment that is written proves as
        // much.
        let _ = mark(disk, dir);
    }
    Ok(lock)
}

/// Whether the folder has the mark, if every file with a name of the cache's is the cache's.
fn check(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<bool, CacheError> {
    let foreign = |name: &str| CacheError::Foreign { path: dir.join(name) };
    let lock = whose(disk, &dir.join(LOCK_NAME), MARK)?;
    if lock == Some(Whose::Other) {
        return Err(foreign(LOCK_NAME));
    }
    let is_marked = lock == Some(Whose::Cache);
    let segments = names.iter().filter(|name| format::slot_of(name).is_some());
    let segments = segments.map(|name| (name.as_str(), format::SIGNATURE));
    let (mut is_proven, mut unwritten) = (is_marked, None);
    for (name, signature) in
        snapshot::NAMES.map(|name| (name, snapshot::SIGNATURE)).into_iter().chain(segments)
    {
        match whose(disk, &dir.join(name), signature)? {
            Some(Whose::Cache) => is_proven = true,
            Some(Whose::Nobody) => unwritten = Some(name),
            Some(Whose::Other) => return Err(foreign(name)),
            None => {}
        }
    }
    match unwritten.filter(|_| !is_proven) {
        Some(name) => Err(foreign(name)),
        None => Ok(is_marked),
    }
}

/// Whose a file is; `None` if there is none.
fn whose(disk: &dyn Disk, path: &Path, signature: Signature) -> Result<Option<Whose>, DiskError> {
    let file = match disk.open(path, Caching::Cached) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let mut found = Signature::default();
    read_full_at(&*file, 0, &mut found)?;
    Ok(Some(match found {
        found if found == signature => Whose::Cache,
        found if found == Signature::default() => Whose::Nobody,
        _ => Whose::Other,
    }))
}

fn mark(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let lock = disk.open(&dir.join(LOCK_NAME), Caching::Cached)?;
    write_all_at(&*lock, 0, &MARK)?;
    lock.sync_data()?;
    disk.sync_dir(dir)
}
