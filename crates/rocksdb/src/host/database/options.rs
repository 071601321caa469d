//! The options of an open database, as RocksDB wrote them down.

use std::path::{Path, PathBuf};

use super::Database;
use crate::host::Error;

impl Database {
    /// Compares the compression manager that was asked for with the one that the database wrote down.
    pub(super) fn check_manager(&self, asked: &str) -> Result<(), Error> {
        let Some(asked) = manager(asked) else { return Ok(()) };
        let options = self.options()?;
        match manager(&options) {
            Some(found) if found == asked => Ok(()),
            found => {
                let found = found.unwrap_or("nothing of one");
                Err(Error::Ignored { asked: asked.into(), found: found.into() })
            }
        }
    }

    /// The newest OPTIONS file of the database: the options in force, and the version of RocksDB (`rocksdb_version`).
    ///
    /// # Errors
    /// The folder or the file cannot be read.
    pub fn options(&self) -> Result<String, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| Error::Io { path, source }
        };
        let mut newest: Option<(u64, PathBuf)> = None;
        for entry in std::fs::read_dir(&self.folder).map_err(failed(&self.folder))? {
            let path = entry.map_err(failed(&self.folder))?.path();
            if let Some(number) = options_number(&path) {
                newest = newest.max(Some((number, path)));
            }
        }
        let path = newest.map_or_else(|| self.folder.join("OPTIONS-000000"), |(_, path)| path);
        std::fs::read_to_string(&path).map_err(failed(&path))
    }
}

/// The number of an OPTIONS file: six digits, or more where six do not suffice. A file that is being written, or one
/// that somebody else put there, has none.
fn options_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("OPTIONS-")?.parse().ok()
}

/// The name of the compression manager that a string of options has: `compression_manager=NAME` or
/// `compression_manager={id=NAME;...}`.
fn manager(options: &str) -> Option<&str> {
    let (_, value) = options.split_once("compression_manager=")?;
    let value = value.trim_start();
    let value = value.strip_prefix('{').map_or(value, str::trim_start);
    let name = value.strip_prefix("id=").unwrap_or(value);
    let name = &name[..name.find([';', '}', '\n']).unwrap_or(name.len())];
    Some(name.trim()).filter(|name| !name.is_empty() && *name != "nullptr")
}

#[cfg(test)]
mod tests {
    use super::manager;

    #[test]
    fn managers_are_found_in_option_strings() {
        for (options, name) in [
            ("a=1;compression_manager={id=ziptier;format=token};b=2", Some("ziptier")),
            ("compression_manager=ziptier;b=2", Some("ziptier")),
            ("compression_manager=ziptier", Some("ziptier")),
            ("  compression_manager={ id=ziptier}\n", Some("ziptier")),
            ("compression_manager=nullptr\n", None),
            ("compression=kZSTD", None),
        ] {
            assert_eq!(manager(options), name, "{options}");
        }
    }
}
