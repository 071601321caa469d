//! Recovery: it makes a store of a folder, from the last checkpoint and the log behind it.
//!
//! | module | claim |
//! |---|---|
//! | `loading` | from the images of a checkpoint to leaves |
//! | `replay`, `redo` | doing again the operations of the log |

#[cfg(any(test, fuzzing))]
mod hostile;
pub(crate) mod loading;
mod redo;
mod replay;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::{Log, LogOptions};

use crate::Error;
use crate::core::Core;
use crate::durable::{
    BACKUP_DIR, Checkpointer, DurableOptions, Folder, GENERATIONS_DIR, GenerationFiles, Head, InForce,
    LOG_DIR, Manifest, Recovered, Recovery, WriteLog,
};
use crate::image_files::ImageFiles;
use crate::options::Options;
#[cfg(fuzzing)]
pub use hostile::fuzz_image;
use loading::{Loaded, Loading};
use replay::replay;

/// Bytes of images between two calls for progress.
const BYTES_PER_REPORT: u64 = 4 << 20;

/// Fills an empty store from its folder, and opens the log that its writes go to. Lifts the memory limit for that if
/// nothing can go elsewhere or be evicted. Otherwise the store keeps to its limit at the end, which may take a
/// checkpoint. A salvage that left something out makes none.
pub(crate) fn recover(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    folder: Folder,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    if !core.room().can_make_room() {
        core.tree.gauges.set_limit(None);
    }
    let Folder { disk, locks, manifest, has_both_manifests, files, skipped, .. } = folder;
    let log_options = LogOptions { salvage: options.salvage, first_lsn: 1, ..options.log };
    let mut log = Log::open(disk.clone(), &options.dir.join(LOG_DIR), log_options)?;
    log.expect_durable(manifest.head.durable_lsn);
    log.start_at(manifest.head.start_lsn)?;
    let (image_bytes, (_, log_bytes)) = (manifest.image_bytes, log.progress());
    let mut loads = |done_bytes| progress(Recovery { done_bytes, all_bytes: image_bytes + log_bytes });
    let (mut generations, loaded) =
        load(core, store_options, options, &disk, &manifest, &files, skipped, &mut loads)?;
    core.loading.store(false, Ordering::Release);
    let limit_bytes = store_options.memory_limit_bytes;
    let mut replays = |log: Recovery| {
        let (done_bytes, all_bytes) = (image_bytes + log.done_bytes, image_bytes + log.all_bytes);
        progress(Recovery { done_bytes, all_bytes });
    };
    let mut recovered = replay(core, &mut log, options.salvage, limit_bytes, &mut replays)?;
    // Everything that can be refused was read. The folder changes from here on.
    if !options.salvage && has_both_manifests {
        remove_unneeded(&*disk, &options.dir, &manifest.head, &files, &mut generations)?;
    }
    let log = log.into_log()?;
    if !recovered.skipped.is_empty() {
        files.keep_all();
    }
    let keeps_all = files.keeps_all();
    recovered.images = loaded.images;
    recovered.image_bytes = loaded.bytes;
    recovered.skipped.splice(..0, loaded.skipped);
    // The next start may find the bytes that a salvage left out, so no checkpoint is made of the replayed records
    // alone.
    let log_bytes = if keeps_all { 0 } else { recovered.log_bytes };
    let in_force = InForce { files, generations, head: manifest.head };
    let checkpointer = Checkpointer::new(
        disk,
        &options.dir,
        options.checkpoint_log_bytes,
        options.stop_time_max,
        in_force,
        log_bytes,
    )?;
    run(core, WriteLog::start(log, options.durability, options.waits, locks)?, checkpointer);
    if !keeps_all {
        // Other threads may have had the leaves that would have made room. What cannot go stays.
        let _ = core.reclaimer().make_room(0);
    }
    Ok(recovered)
}

/// Ends the recovery: from here on writes are logged.
fn run(core: &Core, journal: WriteLog, checkpointer: Checkpointer) {
    core.reclaimer().pack_beyond_limit();
    core.tree.recovering.store(false, Ordering::Relaxed);
    let is_first = core.journal.set(journal).is_ok();
    assert!(is_first && core.checkpointer.set(checkpointer).is_ok(), "a store recovers once");
}

/// Fills the store with what the last checkpoint holds.
#[expect(clippy::too_many_arguments, reason = "the parts of a folder, each used once")]
fn load(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    files: &Arc<ImageFiles>,
    mut skipped: Vec<String>,
    progress: &mut dyn FnMut(u64),
) -> Result<(GenerationFiles, Loaded), Error> {
    let mut generations = GenerationFiles::open(disk.clone(), &options.dir.join(GENERATIONS_DIR))?;
    let first = core.tree.dictionaries.current();
    let mut codings = BTreeMap::new();
    for number in &manifest.head.generations {
        match generations.read(*number, &store_options.codecs(), first.as_ref()) {
            Ok(found) => {
                // The other copy is whole: nothing is lost, and there are two again, unless the disk is full.
                generations.mend(*number, &found).or_else(|error| error.pass_refusal())?;
                skipped.extend(found.damage.as_ref().map(Error::mended));
                codings.insert(*number, found.coding);
            }
            // These bytes are sound: a program with their format, or a newer one, reads them.
            Err(error @ (Error::EngineUnavailable { .. } | Error::FileForeign { .. })) => return Err(error),
            Err(error) if options.salvage => skipped.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let restored = core.tree.dictionaries.restore(codings.values(), generations.left_out());
    if let Some(cold) = &core.cold {
        cold.tier.set_foreign(restored.foreign.clone());
    }
    let loading =
        Loading { core, files, codings: &codings, foreign: &restored.foreign, salvage: options.salvage };
    let mut reported = 0;
    let mut loaded = loading.run(manifest, |done_bytes| {
        if done_bytes - reported >= BYTES_PER_REPORT {
            reported = done_bytes;
            progress(done_bytes);
        }
    })?;
    if restored.has_own {
        core.tree.dictionaries.loaded(core.tree.gauges.logical.get());
    }
    loaded.skipped.splice(..0, skipped);
    Ok((generations, loaded))
}

/// Removes what the checkpoint in force does not need. Files that another process may be reading are removed after the
/// next checkpoint.
fn remove_unneeded(
    disk: &dyn Disk,
    dir: &Path,
    head: &Head,
    files: &ImageFiles,
    generations: &mut GenerationFiles,
) -> Result<(), Error> {
    files.remove_dead()?;
    let _nobody_reads = match disk.lock_dir(&dir.join(BACKUP_DIR)) {
        Err(DiskError::Locked { .. }) => return Ok(()),
        lock => lock?,
    };
    generations.keep_only(&head.generations.iter().copied().collect())
}
