//! Finding RocksDB's library, and ziptier's classes for it.

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::Error;
use super::functions::Functions;

/// Names a file to load instead of looking for RocksDB.
pub const LIBRARY_VARIABLE: &str = "ZIPTIER_ROCKSDB_LIBRARY";

const LIBRARY_NAME: &str = "librocksdb.so";
/// Where `make setup-rocksdb` puts it, seen from the folder of the executable.
const BESIDE_EXECUTABLE: &str = "../rocksdb/librocksdb.so";
/// ziptier's classes, beside the executable.
const PLUGIN_NAME: &str = "libziptier_rocksdb.so";
/// Bytes of the sentence that it may say.
const MESSAGE_BYTES: usize = 1024;

/// RocksDB, loaded. It is never unloaded: its threads and its registered classes outlive every database.
pub struct Library {
    pub(super) functions: Functions,
    /// Where it came from.
    path: PathBuf,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Library {
    /// The RocksDB of this process: the file `asked` for (an empty name counts as none), else `librocksdb.so` wherever the system's loader
    /// finds it, else where `make setup-rocksdb` puts it. Loaded by the first call; later ones return the same, whatever they ask for.
    ///
    /// # Errors
    /// [`Error::Missing`], with what was tried. The next call tries again.
    pub fn load(asked: Option<&Path>) -> Result<&'static Library, Error> {
        static LOADED: Mutex<Option<&Library>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(library) = *loaded {
            return Ok(library);
        }
        let library = Library::find(asked.filter(|path| !path.as_os_str().is_empty()))?;
        Ok(loaded.insert(Box::leak(Box::new(library))))
    }

    fn find(asked: Option<&Path>) -> Result<Library, Error> {
        let mut tried = Vec::new();
        let candidates = match asked {
            Some(path) => vec![path.to_owned()],
            None => std::iter::once(PathBuf::from(LIBRARY_NAME)).chain(beside(BESIDE_EXECUTABLE)).collect(),
        };
        for path in candidates {
            match Library::open(&path) {
                Ok(functions) => return Ok(Library { functions, path }),
                Err(reason) => tried.push(reason),
            }
        }
        Err(Error::Missing { tried: tried.join("; ") })
    }

    /// Loads the file for itself alone first, so that a library that does not serve leaves no names behind.
    fn open(path: &Path) -> Result<Functions, String> {
        // SAFETY: the file is what the machine's owner installed or named as RocksDB, whose initialisers register its classes.
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(in_words)?;
        let functions = Functions::of(&loaded).map_err(|reason| format!("{}: {reason}", path.display()))?;
        // SAFETY: it is loaded; this only lets libraries that come later find its C++ names, as ziptier's classes must.
        let global = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(in_words)?;
        // Kept for ever: see `Library`.
        std::mem::forget((loaded, global));
        Ok(functions)
    }

    /// Where RocksDB was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Registers ziptier's classes with this RocksDB, so that option strings can name them. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`Error::Plugin`] if `libziptier_rocksdb.so` is not beside the executable, or says why it does not go with this RocksDB.
    pub fn load_plugin(&self) -> Result<(), Error> {
        let path = beside(PLUGIN_NAME).unwrap_or_else(|| PLUGIN_NAME.into());
        let failed = |reason| Error::Plugin { path: path.clone(), reason };
        // SAFETY: the file is the one that is built and shipped with this program.
        let plugin = unsafe { Loaded::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| failed(in_words(error)))?;
        type Load = unsafe extern "C" fn(*mut c_char, usize) -> c_int;
        // SAFETY: that library exports the function with this type.
        let load: Load =
            *unsafe { plugin.get(b"ziptier_rocksdb_load\0") }.map_err(|error| failed(in_words(error)))?;
        // What is registered must stay.
        std::mem::forget(plugin);
        let mut message = [0u8; MESSAGE_BYTES];
        // SAFETY: the function writes at most as many bytes as it is told there are, and leaves one for the zero that ends them.
        match unsafe { load(message.as_mut_ptr().cast(), message.len()) } {
            0 => Ok(()),
            _ => Err(failed(sentence(&message))),
        }
    }
}

fn sentence(message: &[u8]) -> String {
    match CStr::from_bytes_until_nul(message) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(message).into_owned(),
    }
}

/// The loader's own words, which name the file and come as the cause.
fn in_words(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A path that begins in the folder of this executable.
fn beside(path: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(path))
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rocksdb_is_refused_in_one_sentence() {
        let refused = |path: &str| Library::find(Some(path.as_ref())).unwrap_err().to_string();
        assert!(refused("/no/such/librocksdb.so").contains("/no/such/librocksdb.so"));
        let other = refused("libc.so.6");
        assert!(
            other.contains("it has no function rocksdb_options_create: RocksDB 11.8 is needed"),
            "{other}"
        );
        assert_eq!(other.lines().count(), 1);
    }
}
