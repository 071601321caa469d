//! What a restart costs a cache in a folder: hit ratios of the requests behind it, by a store that goes on instead, one
//! that was stopped and opened anew, one that was killed, and an empty one.

use std::path::Path;
use std::time::Duration;

use ziptier::{Durability, DurableOptions, Options, Store};

use crate::{Asked, ask, limit_for, options};

/// Requests behind the restart, per record that the cache holds.
const REQUESTS_PER_RECORD: usize = 2;

pub(crate) fn print_head() {
    println!(
        "{:<18}{:>9}{:>9} | {:>8}{:>8}{:>8}{:>8} | {:>8}{:>8}{:>8}",
        "requests",
        "records",
        "behind",
        "goes on",
        "stopped",
        "killed",
        "empty",
        "before",
        "stopped",
        "killed"
    );
}

/// Prints the row of a series for a cache of about `records` records, which is restarted in the middle.
pub(crate) fn print_row(name: &str, requests: &[u64], records: usize) {
    let limit_bytes = limit_for(requests, records);
    let (before, behind) = requests.split_at(requests.len() / 2);
    let behind = &behind[..behind.len().min(REQUESTS_PER_RECORD * records)];
    let hit_pct = |store: &Store| {
        let Asked { hits, .. } = ask(store, behind, |_| {});
        100.0 * hits as f64 / behind.len() as f64
    };

    let kept = Store::open(options(Some(limit_bytes))).expect("the limit is above the least");
    ask(&kept, before, |_| {});
    let goes_on = hit_pct(&kept);

    let folder = tempfile::tempdir().expect("there is a folder for files of a moment");
    let (own, copied) = (folder.path().join("own"), folder.path().join("copied"));
    let store = open(&own, limit_bytes);
    ask(&store, before, |_| {});
    let keys_before = store.len();
    while store.checkpoint_stats().is_some_and(|stats| stats.is_running) {
        std::thread::sleep(Duration::from_millis(1));
    }
    copy(&own, &copied);
    store.close().expect("the disk takes it");

    let stopped = open(&own, limit_bytes);
    let keys_stopped = stopped.len();
    let killed = open(&copied, limit_bytes);
    let keys_killed = killed.len();
    let empty = Store::open(options(Some(limit_bytes))).expect("the limit is above the least");
    println!(
        "{name:<18}{records:>9}{:>9} | {goes_on:>8.2}{:>8.2}{:>8.2}{:>8.2} | \
         {keys_before:>8}{keys_stopped:>8}{keys_killed:>8}",
        behind.len(),
        hit_pct(&stopped),
        hit_pct(&killed),
        hit_pct(&empty),
    );
}

/// A cache in a folder. Its log grows to as many bytes as it may hold before there is a checkpoint, as that of a large
/// one does.
fn open(dir: &Path, limit_bytes: u64) -> Store {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::No;
    durable.checkpoint_log_bytes = Some(limit_bytes);
    Store::open(Options { durable: Some(durable), ..options(Some(limit_bytes)) })
        .expect("the folder is new or its own")
}

/// What a kill leaves of a folder: everything that was acknowledged is in its files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let target = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).expect("there is room for it");
        }
    }
}
