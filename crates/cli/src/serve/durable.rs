//! The options of `ziptier serve` for its folder, and the lines that it prints about the folder.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ziptier::{Durability, DurableOptions, Recovery, Store};

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// The folder of the store, and when writes are durable in it.
#[derive(Debug, Args)]
pub(crate) struct DurableArguments {
    /// Folder that keeps the store beyond the process; the server makes it if it is missing [default: none, the store
    /// ends with the process]
    #[arg(long, env = "ZIPTIER_DIR", value_name = "DIR", help_heading = "Folder of the store")]
    dir: Option<PathBuf>,

    /// Moment at which a write is on the disk of --dir: always (before its reply), everysec (within a second) or no
    /// (when the system writes it) [default: everysec]
    #[arg(
        long,
        env = "ZIPTIER_DURABILITY",
        requires = "dir",
        value_name = "WHEN",
        help_heading = "Folder of the store"
    )]
    durability: Option<Durability>,

    /// Start with the whole parts of a damaged store in --dir, and list the damaged ones
    #[arg(long, env = "ZIPTIER_SALVAGE", requires_if("true", "dir"), help_heading = "Folder of the store")]
    salvage: bool,
}

impl DurableArguments {
    pub(crate) fn options(&self) -> Option<DurableOptions> {
        let mut options = DurableOptions::new(self.dir.as_ref()?);
        options.durability = self.durability.unwrap_or_default();
        options.salvage = self.salvage;
        Some(options)
    }

    /// The settings in force, and the findings of the start; `None` without a folder.
    pub(crate) fn found(&self, store: &Store) -> Option<String> {
        let (options, recovered) = (self.options()?, store.recovered()?);
        let sync = sync(options.durability, store.durable_stats()?.durable_after);
        let stop = match recovered.is_sealed {
            true => " after a clean stop",
            // A new folder has neither.
            false if recovered.images > 0 || recovered.records > 0 => " after a crash",
            false => "",
        };
        // Counting keys would read what lies on SSD, and telling expired ones apart would read every record.
        let leaves_on_ssd = store.ssd().map_or(0, |ssd| ssd.leaves);
        let keys = if leaves_on_ssd == 0 { store.len() } else { 0 };
        let found = match leaves_on_ssd {
            0 => format!("{keys} keys"),
            leaves => format!("{leaves} leaves on SSD"),
        };
        let mut line = format!(
            "folder {}: durability {} ({sync}), recovered {found}{stop}, {} records of {} bytes in the log",
            options.dir.display(),
            options.durability,
            recovered.records,
            recovered.log_bytes,
        );
        if let Some(torn) = &recovered.torn_tail {
            let (bytes, path, offset) = (torn.bytes, torn.path.display(), torn.offset);
            line += &format!(", dropped a torn tail of {bytes} bytes at byte {offset} of {path}");
        }
        if keys > 0 {
            line += "; expired keys count until they are swept";
        }
        if let Some(refusal) = store.durable_stats()?.refusal {
            line += &format!("; reads are served, and writes are refused until there is room: {refusal}");
        }
        Some(line)
    }
}

/// Says what makes the log durable, and when. On tmpfs nothing does.
fn sync(durability: Durability, after: String) -> String {
    match durability {
        _ if after.starts_with("tmpfs") => after,
        Durability::Always => format!("{after} before replies"),
        Durability::Everysec => format!("{after} once a second"),
        Durability::No => "nothing is waited for".to_owned(),
    }
}

/// Shows on a terminal how far a recovery has come.
#[derive(Default)]
pub(crate) struct Progress {
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn show(&mut self, recovery: Recovery) {
        let mut terminal = std::io::stderr();
        if recovery.all_bytes == 0 || !terminal.is_terminal() {
            return;
        }
        if self.shown.is_none_or(|shown| shown.elapsed() >= SHOWN_EVERY) {
            self.shown = Some(Instant::now());
            let (done, all) = (recovery.done_bytes >> 20, recovery.all_bytes >> 20);
            let _ = write!(terminal, "\rrecovering: {done} of {all} MiB");
        }
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Durability, sync};

    #[test]
    fn nothing_is_done_on_tmpfs_once_a_second() {
        let tmpfs = "tmpfs: survives the process, not the machine";
        assert_eq!(sync(Durability::Everysec, tmpfs.to_owned()), tmpfs);
        assert_eq!(sync(Durability::Everysec, "fdatasync".to_owned()), "fdatasync once a second");
        assert_eq!(sync(Durability::No, "fdatasync".to_owned()), "nothing is waited for");
    }
}
