//! Checks the owner of a folder, so that a folder named by mistake loses nothing.
//!
//! A file with a name of the cache belongs to the cache if it begins with the signature. Such a file may be overwritten
//! or removed. A crash may leave files without any written bytes. They belong to the cache if the folder has another
//! proof. The proof is the mark in `LOCK`, durable before any other file, or a file with a signature if an older
//! version made the folder.

use super::open::restrict;
use super::settings::CacheError;
use super::{format, snapshot};
use std::path::Path;
use ziptier_media::disk::{Caching, DirLock, Disk, DiskError, read_full_at, write_all_at};

/// The file that [`Disk::lock_dir`] locks.
const LOCK_NAME: &str = "LOCK";
const MARK: Signature = *b"ziptrlck";

/// The first bytes of every file of the cache.
pub(super) type Signature = [u8; 8];

/// The owner of a file, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Cache,
    /// It is empty, or has zeros where the signature should be.
    Nobody,
    Other,
}

/// Locks a folder for the cache. Refuses a folder that does not belong to the cache, and changes nothing in it.
pub(super) fn take(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DirLock>, CacheError> {
    let names = disk.list(dir)?;
    if names.iter().any(|name| name == "CURRENT") {
        return Err(CacheError::Database { path: dir.to_path_buf() });
    }
    let is_marked = check(disk, dir, &names)?;
    let lock = disk.lock_dir(dir)?;
    restrict(&dir.join(LOCK_NAME), 0o600);
    if !is_marked {
        // A full disk is no reason to refuse the cache: the first written segment is also a proof.
        let _ = mark(disk, dir);
    }
    Ok(lock)
}

/// Whether the folder has the mark. An error if a file with a name of the cache does not belong to the cache.
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

/// The owner of a file; `None` if there is no file.
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
