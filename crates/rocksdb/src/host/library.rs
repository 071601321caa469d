//! Finding RocksDB's library, and ziptier's classes for it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::Error;
use super::calls::c_string;
use super::functions::Functions;

/// Names a file to load instead of looking for RocksDB.
pub const LIBRARY_VARIABLE: &str = "ZIPTIER_ROCKSDB_LIBRARY";

const LIBRARY_NAME: &str = "librocksdb.so";
/// The path at which `make setup-rocksdb` puts the library, from the folder of the executable.
const BESIDE_EXECUTABLE: &str = "../rocksdb/librocksdb.so";
/// ziptier's classes, beside the executable.
const PLUGIN_NAME: &str = "libziptier_rocksdb.so";
/// Room for a message of the library. If a text is longer, the call is repeated with more room.
const MESSAGE_BYTES: usize = 64 << 10;

/// RocksDB, loaded. It is never unloaded: its threads and its registered classes outlive every database.
pub struct Library {
    pub(super) functions: Functions,
    /// The path of the loaded file.
    path: PathBuf,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Library {
    /// The RocksDB of this process. It is the file `asked` (an empty name counts as none), else `librocksdb.so` as the
    /// system's loader finds it, else the file of `make setup-rocksdb`. The first call loads it. Later calls return the
    /// same library, whatever `asked` is.
    ///
    /// # Errors
    /// [`Error::Missing`], with the attempts. The next call tries again.
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

    /// Loads the file with local names first, so that an unsuitable library leaves no names behind.
    fn open(path: &Path) -> Result<Functions, String> {
        // SAFETY: the file is what the machine's owner installed or named as RocksDB, whose initialisers register its
        // classes.
        let loaded = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(in_words)?;
        let functions = Functions::of(&loaded).map_err(|reason| format!("{}: {reason}", path.display()))?;
        // SAFETY: it is loaded; this only lets libraries that come later find its C++ names, as ziptier's classes must.
        let global = unsafe { Loaded::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(in_words)?;
        // Kept for ever: see `Library`.
        std::mem::forget((loaded, global));
        Ok(functions)
    }

    /// The path from which RocksDB was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Registers ziptier's classes with this RocksDB, so that option strings can name them. Another call changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Plugin`] if `libziptier_rocksdb.so` is not beside the executable, or says why it does not go with this
    /// RocksDB.
    pub fn load_plugin(&self) -> Result<(), Error> {
        let plugin = Plugin::open()?;
        type Load = unsafe extern "C" fn(*mut c_char, usize) -> c_int;
        // SAFETY: the library exports the function with this type.
        let load: Load = unsafe { plugin.function(c"ziptier_rocksdb_load") }?;
        // SAFETY: the function writes at most as many bytes as it is told there are, and leaves one for the zero that
        // ends them.
        answered(|message, room| unsafe { load(message, room) })
            .map(|_| ())
            .map_err(|reason| Error::Plugin { path: plugin.path, reason })
    }

    /// Counters of ziptier's classes in this process, one `name value` to a line.
    ///
    /// # Errors
    /// As for [`Library::load_plugin`].
    pub fn counters(&self) -> Result<String, Error> {
        self.load_plugin()?;
        type Counters = unsafe extern "C" fn(*mut c_char, usize) -> usize;
        // SAFETY: the library exports the function with this type.
        let counters: Counters = unsafe { Plugin::open()?.function(c"ziptier_rocksdb_counters") }?;
        // SAFETY: the function writes at most as many bytes as it is told there are.
        Ok(whole(|text, room| unsafe { counters(text, room) }))
    }

    /// How the files of the database in `folder` are packed, by column family and compression. The database may be in
    /// use.
    ///
    /// # Errors
    /// As for [`Library::load_plugin`], and RocksDB's error.
    pub fn inspect(&self, folder: &Path) -> Result<Vec<Packing>, Error> {
        self.load_plugin()?;
        type Inspect = unsafe extern "C" fn(*const c_char, *mut c_char, usize, *mut usize) -> c_int;
        // SAFETY: the library exports the function with this type.
        let inspect: Inspect = unsafe { Plugin::open()?.function(c"ziptier_rocksdb_inspect") }?;
        let name = c_string(folder.as_os_str().as_bytes())?;
        let mut result = 0;
        let report = whole(|message, room| {
            let mut needed = 0;
            // SAFETY: the name is a C string, and `needed` may be written; for the rest see `load_plugin`.
            result = unsafe { inspect(name.as_ptr(), message, room, &raw mut needed) };
            needed
        });
        match result {
            0 => Ok(report.lines().filter_map(Packing::parse).collect()),
            _ => Err(Error::Status { action: "read the properties of the database", status: report }),
        }
    }

    /// Estimates other formats for the database in `folder`, from a sample of about `sample_bytes` of its records. Only
    /// reads the database. `tell` gets the amounts of done and of total work.
    ///
    /// # Errors
    /// As for [`Library::inspect`].
    pub fn estimate(
        &self,
        folder: &Path,
        sample_bytes: u64,
        mut tell: &mut dyn FnMut(u64, u64),
    ) -> Result<Estimate, Error> {
        self.load_plugin()?;
        unsafe extern "C" fn told(state: *mut c_void, done: u64, all: u64) {
            // SAFETY: the state is `tell`, which nobody else has meanwhile.
            unsafe { (*state.cast::<&mut dyn FnMut(u64, u64)>())(done, all) }
        }
        type Tell = unsafe extern "C" fn(*mut c_void, u64, u64);
        type Function = unsafe extern "C" fn(
            *const c_char,
            u64,
            Tell,
            *mut c_void,
            *mut c_char,
            usize,
            *mut usize,
        ) -> c_int;
        // SAFETY: the library exports the function with this type.
        let estimate: Function = unsafe { Plugin::open()?.function(c"ziptier_rocksdb_estimate") }?;
        let name = c_string(folder.as_os_str().as_bytes())?;
        let mut result = 0;
        let report = whole(|message, room| {
            let (mut needed, state) = (0, (&raw mut tell).cast());
            // SAFETY: the name is a C string, `told` takes this state, and `needed` may be written; for the rest see
            // `load_plugin`.
            result =
                unsafe { estimate(name.as_ptr(), sample_bytes, told, state, message, room, &raw mut needed) };
            needed
        });
        let failed = |status| Error::Status { action: "estimate what the database would take", status };
        match result {
            0 => Estimate::parse(&report).ok_or_else(|| failed(format!("its answer was `{report}`"))),
            _ => Err(failed(report)),
        }
    }

    /// Rewrites the database in `folder` so that it needs no plugin. RocksDB's own `compression`, by its name in
    /// options (`kZSTD`), replaces the private format. No process may have the database open. A database that needs no
    /// plugin stays as it is, and the answer says so.
    ///
    /// # Errors
    /// As for [`Library::load_plugin`], and RocksDB's error. With the plugin the database stays readable. A refused
    /// database is unchanged. If the rewrite stops halfway, the error says so.
    pub fn migrate_off(&self, folder: &Path, compression: &str) -> Result<Option<String>, Error> {
        let said = self.rewrite(c"ziptier_rocksdb_migrate_off", folder, compression)?;
        Ok((!said.is_empty()).then_some(said))
    }

    /// Rewrites the database in `folder`, which nobody has open, by `options` of a column family that name a
    /// compression manager and a compression.
    ///
    /// # Errors
    /// As for [`Library::migrate_off`].
    pub fn migrate_on(&self, folder: &Path, options: &str) -> Result<(), Error> {
        self.rewrite(c"ziptier_rocksdb_migrate_on", folder, options).map(drop)
    }

    fn rewrite(&self, function: &CStr, folder: &Path, by: &str) -> Result<String, Error> {
        self.load_plugin()?;
        type Rewrite = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int;
        // SAFETY: the library exports both functions with this type.
        let rewrite: Rewrite = unsafe { Plugin::open()?.function(function) }?;
        let (name, by) = (c_string(folder.as_os_str().as_bytes())?, c_string(by)?);
        // SAFETY: the names are C strings; for the rest see `load_plugin`.
        answered(|message, room| unsafe { rewrite(name.as_ptr(), by.as_ptr(), message, room) })
            .map_err(|status| Error::Status { action: "rewrite the database", status })
    }
}

/// How some files of a database are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// The column family.
    pub family: String,
    /// The name in the files: the manager's compatibility name and the types in hexadecimal, such as `ZiptierV1;80;`.
    pub compression: String,
    /// Files.
    pub files: u64,
    /// Bytes of their data blocks.
    pub data_bytes: u64,
    /// Bytes of the keys and values in them.
    pub raw_bytes: u64,
    /// Bytes of the files: data blocks, indexes, filters and dictionaries.
    pub file_bytes: u64,
}

impl Packing {
    fn parse(line: &str) -> Option<Packing> {
        let mut fields = line.split('\t');
        let (family, compression) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let mut number = || fields.next()?.parse().ok();
        Some(Packing {
            family,
            compression,
            files: number()?,
            data_bytes: number()?,
            raw_bytes: number()?,
            file_bytes: number()?,
        })
    }
}

/// Estimates of other formats for a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of all its SST files.
    pub bytes: u64,
    /// Bytes of the blocks that were sampled, before they are compressed.
    pub sample_bytes: u64,
    /// The formats.
    pub formats: Vec<EstimatedFormat>,
}

/// The estimate of one format for a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EstimatedFormat {
    /// Its name.
    pub name: String,
    /// Bytes of all SST files.
    pub bytes: u64,
    /// CPU time to compress the sample, without making dictionaries.
    pub compress: Duration,
    /// CPU time to decompress the sample.
    pub read: Duration,
}

impl Estimate {
    fn parse(report: &str) -> Option<Estimate> {
        let mut lines = report.lines();
        let (bytes, sample_bytes) = lines.next()?.split_once('\t')?;
        let formats = lines.map(|line| {
            let mut fields = line.split('\t');
            let name = fields.next()?.to_owned();
            let mut number = || fields.next()?.parse().ok();
            Some(EstimatedFormat {
                name,
                bytes: number()?,
                compress: Duration::from_nanos(number()?),
                read: Duration::from_nanos(number()?),
            })
        });
        Some(Estimate {
            bytes: bytes.parse().ok()?,
            sample_bytes: sample_bytes.parse().ok()?,
            formats: formats.collect::<Option<_>>()?,
        })
    }
}

/// `libziptier_rocksdb.so`, beside the executable. It is never unloaded, because its registered classes must stay.
struct Plugin {
    loaded: std::mem::ManuallyDrop<Loaded>,
    path: PathBuf,
}

impl Plugin {
    fn open() -> Result<Plugin, Error> {
        let path = beside(PLUGIN_NAME).unwrap_or_else(|| PLUGIN_NAME.into());
        // SAFETY: the file is the one that is built and shipped with this program.
        match unsafe { Loaded::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(loaded) => Ok(Plugin { loaded: std::mem::ManuallyDrop::new(loaded), path }),
            Err(error) => Err(Error::Plugin { path, reason: in_words(error) }),
        }
    }

    /// # Safety
    ///
    /// `T` is the type of the function of this name.
    unsafe fn function<T: Copy>(&self, name: &CStr) -> Result<T, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.loaded.get::<T>(name.to_bytes_with_nul()) }
            .map(|function| *function)
            .map_err(|error| Error::Plugin { path: self.path.clone(), reason: in_words(error) })
    }
}

/// The text that a function wrote: its result, or the reason if it did not return 0.
fn answered(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<String, String> {
    let mut message = vec![0u8; MESSAGE_BYTES];
    match call(message.as_mut_ptr().cast(), message.len()) {
        0 => Ok(sentence(&message)),
        _ => Err(sentence(&message)),
    }
}

/// The whole text of a function that returns the length of the text, however long.
fn whole(mut write: impl FnMut(*mut c_char, usize) -> usize) -> String {
    let mut text = vec![0u8; MESSAGE_BYTES];
    loop {
        let needed = write(text.as_mut_ptr().cast(), text.len());
        if needed <= text.len() {
            return sentence(&text);
        }
        // It may have become longer by the next time.
        text.resize(needed * 2, 0);
    }
}

fn sentence(message: &[u8]) -> String {
    match CStr::from_bytes_until_nul(message) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(message).into_owned(),
    }
}

/// The loader's message, which names the file and stands in the cause.
fn in_words(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A path that begins in the folder of this executable.
fn beside(path: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_sentence_is_asked_for_again() {
        for length in [0, 10, MESSAGE_BYTES - 1, MESSAGE_BYTES, 3 * MESSAGE_BYTES] {
            let answer = "x".repeat(length);
            let told = whole(|target, room| {
                // SAFETY: `room` bytes may be written at the target.
                let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), room) };
                let count = length.min(room - 1);
                target[..count].copy_from_slice(&answer.as_bytes()[..count]);
                target[count] = 0;
                length + 1
            });
            assert!(told == answer, "{length}");
        }
    }

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
