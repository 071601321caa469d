//! `libziptier_rocksdb.so`: finds the RocksDB of its process, checks its version, and loads the plugin that was made
//! for it.
//!
//! The plugin contains RocksDB's classes. The system cannot load it if RocksDB's symbols are missing, and it would
//! crash with the symbols of another version. This object needs none of these symbols, so it comes first.
//!
//! A program loads the object by `LD_PRELOAD`, by `dlopen` or by `System.load` in Java, or links with it:
//!
//! ```text
//! LD_PRELOAD=/usr/lib/libziptier_rocksdb.so ./application
//! ```
//!
//! 1. If the process already has RocksDB, the object loads the plugin at once. Otherwise [`ziptier_rocksdb_load`] loads
//!    the plugin later.
//! 2. Java loads RocksDB so that no other library sees its symbols. The object makes them visible.
//!
//! The crate has no doc tests. It is a library for C alone (`cdylib`), and no test program in Rust can link such a
//! library. The tests of `rocksdb-plugin` load the object into programs in C, C++ and Java.

#![deny(missing_docs)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The RocksDB that the plugin was made for.
const VERSION: &str = "11.8.1";

/// The plugin's file, which lies beside this one.
const PLUGIN_FILE: &str = "libziptier_rocksdb_plugin.so";

/// `rocksdb::GetRocksVersionAsString(bool)`.
const VERSION_SYMBOL: &CStr = c"_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb";

/// Room for a version, such as `11.8.1`.
const VERSION_BYTES: usize = 64;

unsafe extern "C" {
    fn zt_rocksdb_version(function: *mut c_void, out: *mut c_char, out_bytes: usize);
}

/// The plugin once it is loaded. It is never unloaded: RocksDB keeps pointers into it.
static PLUGIN: Mutex<Option<Plugin>> = Mutex::new(None);

/// A function that gets the progress of an estimate: the caller's state, the amount of done work, and the amount of all
/// work.
type Tell = unsafe extern "C" fn(state: *mut c_void, done: u64, all: u64);

#[derive(Clone, Copy)]
struct Plugin {
    counters: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    migrate_off: unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int,
    migrate_on: unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> c_int,
    inspect: unsafe extern "C" fn(*const c_char, *mut c_char, usize, *mut usize) -> c_int,
    estimate:
        unsafe extern "C" fn(*const c_char, u64, Tell, *mut c_void, *mut c_char, usize, *mut usize) -> c_int,
    persistent_cache: unsafe extern "C" fn(*const c_char, *mut c_void, *mut c_char, usize) -> c_int,
}

enum Failure {
    NoRocksdb,
    Other(String),
}

impl Failure {
    fn into_sentence(self) -> String {
        match self {
            Failure::NoRocksdb => format!(
                "looked for RocksDB {VERSION} in this process, found none; load it first (in Java: \
                 RocksDB.loadLibrary())"
            ),
            Failure::Other(sentence) => sentence,
        }
    }
}

/// Registers ziptier's classes with the RocksDB of the process. Returns 0; or 1, and one sentence in `message`, a C
/// string of at most `room` bytes (`message` may be null). After a success, further calls do nothing.
///
/// # Safety
///
/// `room` bytes may be written at `message`, or it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_load(message: *mut c_char, room: usize) -> c_int {
    let Err(failure) = load() else { return 0 };
    let sentence = failure.into_sentence();
    if !message.is_null() && room > 0 {
        let length = sentence.len().min(room - 1);
        // SAFETY: `length` and a zero are `room` at most, which the caller promises.
        unsafe {
            message.cast::<u8>().copy_from_nonoverlapping(sentence.as_ptr(), length);
            *message.add(length) = 0;
        }
    }
    1
}

/// Writes the counters of this process, one `name value` to a line, as a C string cut to `room` bytes. Returns the
/// bytes that the whole takes, the final zero included; 0 if the plugin is not loaded.
///
/// # Safety
///
/// `room` bytes may be written at `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_counters(target: *mut c_char, room: usize) -> usize {
    let plugin = PLUGIN.lock().ok().and_then(|plugin| *plugin);
    // SAFETY: the caller's promise, passed on.
    plugin.map_or(0, |plugin| unsafe { (plugin.counters)(target, room) })
}

/// Runs `work` with the plugin; without it the sentence is that.
///
/// # Safety
///
/// `room` bytes, at least one, may be written at `message`.
unsafe fn with_plugin(message: *mut c_char, room: usize, work: impl FnOnce(Plugin) -> c_int) -> c_int {
    // SAFETY: the caller's promise, passed on.
    if unsafe { ziptier_rocksdb_load(message, room) } != 0 {
        return 1;
    }
    PLUGIN.lock().ok().and_then(|plugin| *plugin).map_or(1, work)
}

/// Rewrites the database in the folder `dir` so that it needs no plugin. RocksDB's own `compression`, by its name in
/// options (`kZSTD`), replaces ziptier's private format. No process may have the database open. Returns 0; or 1, and
/// the reason in `message`, a C string cut to `room` bytes. A database that needs no plugin stays as it is: 0, and
/// `message` says so.
///
/// # Safety
///
/// The first two are C strings, and `room` bytes, at least one, may be written at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_migrate_off(
    dir: *const c_char,
    compression: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { with_plugin(message, room, |plugin| (plugin.migrate_off)(dir, compression, message, room)) }
}

/// Rewrites the database in the folder `dir`, which nobody has open, by `options` of a column family that name a
/// compression manager and a compression:
/// `compression_manager={id=ziptier;format=token};compression=kCustomCompression80`
/// for example. 0, or 1 and the reason in `message`, a C string cut to `room` bytes.
///
/// # Safety
///
/// As for [`ziptier_rocksdb_migrate_off`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_migrate_on(
    dir: *const c_char,
    options: *const c_char,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { with_plugin(message, room, |plugin| (plugin.migrate_on)(dir, options, message, room)) }
}

/// Writes into `message` how the files of the database in the folder `dir` are packed. There is a line for each column
/// family and compression. It has their names, the number of files, the bytes of data, the raw bytes of keys and
/// values, and the bytes of the files, separated by tabs. Returns 0; or 1, and the reason in `message`, a C string cut
/// to `room` bytes. `needed` gets the bytes that the whole takes, the final zero included, unless it is null or the
/// plugin is not loaded.
///
/// # Safety
///
/// As for [`ziptier_rocksdb_migrate_off`]; `needed` may be written, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_inspect(
    dir: *const c_char,
    message: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { with_plugin(message, room, |plugin| (plugin.inspect)(dir, message, room, needed)) }
}

/// Writes into `message` an estimate of other formats for the database in the folder `dir`, from a sample of about
/// `sample_bytes` of its records. The first line has the bytes of all files, and those of the sampled blocks. The other
/// lines have a format, the bytes of the files in it, and the nanoseconds of CPU time to compress and to decompress the
/// sample. Tabs separate them. The database is only read. Returns 0; or 1, and the reason, as for
/// [`ziptier_rocksdb_inspect`].
///
/// # Safety
///
/// As for [`ziptier_rocksdb_inspect`]; `tell` may be called with `state` until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_estimate(
    dir: *const c_char,
    sample_bytes: u64,
    tell: Tell,
    state: *mut c_void,
    message: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    let estimate =
        // SAFETY: the caller's promise, passed on.
        |plugin: Plugin| unsafe { (plugin.estimate)(dir, sample_bytes, tell, state, message, room, needed) };
    // SAFETY: as above.
    unsafe { with_plugin(message, room, estimate) }
}

/// Makes a cache for RocksDB's option `persistent_cache` from the options of the secondary cache `ziptier`. Puts it
/// into the `std::shared_ptr<rocksdb::PersistentCache>` at `cache`. Returns 0; or 1, and the reason in `message`.
///
/// # Safety
///
/// As for [`ziptier_rocksdb_migrate_off`]; `cache` is such a pointer of C++.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_rocksdb_persistent_cache(
    options: *const c_char,
    cache: *mut c_void,
    message: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    unsafe { with_plugin(message, room, |plugin| (plugin.persistent_cache)(options, cache, message, room)) }
}

/// Runs when the object is loaded. A process without RocksDB, such as a shell on the way to a tool, is none of its
/// business.
extern "C" fn at_load() {
    if let Err(Failure::Other(sentence)) = load() {
        // Not `eprintln!`, which would end the process where nothing can be written there.
        let _ = writeln!(std::io::stderr(), "ziptier: {sentence}");
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

fn load() -> Result<(), Failure> {
    let Ok(mut plugin) = PLUGIN.lock() else {
        return Err(Failure::Other("an earlier attempt to load the plugin panicked".into()));
    };
    if plugin.is_some() {
        return Ok(());
    }
    let rocksdb = rocksdb()?;
    let version = version_of(rocksdb.version);
    if version != VERSION {
        return Err(Failure::Other(format!(
            "the plugin was made for RocksDB {VERSION}, and this process has {version}; nothing was registered"
        )));
    }
    if let Some(name) = &rocksdb.hidden_in {
        publish(name);
    }
    *plugin = Some(open(&beside_this()?)?);
    Ok(())
}

/// The RocksDB of the process.
struct Rocksdb {
    /// Its function that tells the version.
    version: *mut c_void,
    /// The object, if its symbols are not yet visible to others.
    hidden_in: Option<CString>,
}

/// Finds the only RocksDB. Privately loaded copies stay private. If several copies were made visible, one would call
/// functions of the other.
fn rocksdb() -> Result<Rocksdb, Failure> {
    // SAFETY: the name is a C string.
    let visible = unsafe { libc::dlsym(libc::RTLD_DEFAULT, VERSION_SYMBOL.as_ptr()) };
    if !visible.is_null() {
        return Ok(Rocksdb { version: visible, hidden_in: None });
    }
    let mut found = Vec::<Rocksdb>::new();
    for name in loaded_objects().into_iter().filter(|name| is_rocksdb(name)) {
        // An object may find the function in another one that it needs.
        if let Some(version) = version_function_in(&name)
            && found.iter().all(|other| other.version != version)
        {
            found.push(Rocksdb { version, hidden_in: Some(name) });
        }
    }
    match found.len() {
        0 => Err(Failure::NoRocksdb),
        1 => Ok(found.remove(0)),
        count => {
            let describe = |copy: &Rocksdb| {
                let name = copy.hidden_in.as_deref().unwrap_or_default().to_string_lossy();
                format!("{} in {name}", version_of(copy.version))
            };
            let copies: Vec<String> = found.iter().map(describe).collect();
            Err(Failure::Other(format!(
                "this process has {count} copies of RocksDB ({}), which the plugin cannot tell apart; nothing was \
                 registered; load ziptier before the second one",
                copies.join(", ")
            )))
        }
    }
}

/// The function in an object that is loaded, whoever may see its symbols.
fn version_function_in(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; nothing is loaded that was not there, and nothing becomes visible.
    let handle =
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is open, the name a C string. The handle stays open, so that the object does.
    let found = unsafe { libc::dlsym(handle, VERSION_SYMBOL.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn version_of(function: *mut c_void) -> String {
    let mut version = [0; VERSION_BYTES];
    // SAFETY: the address is that of RocksDB's function of this name and signature, and the array has this many bytes.
    unsafe { zt_rocksdb_version(function, version.as_mut_ptr(), version.len()) };
    // SAFETY: what was written ends with a zero.
    unsafe { CStr::from_ptr(version.as_ptr()) }.to_string_lossy().into_owned()
}

/// Whether a shared object may be RocksDB under whichever name: Java unpacks it to a temporary file.
fn is_rocksdb(name: &CStr) -> bool {
    let name = name.to_string_lossy();
    let file = name.rsplit('/').next().unwrap_or_default();
    file.starts_with("librocksdb")
}

/// The names of all shared objects of the process.
fn loaded_objects() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, whose name is a C string or null, and the pointer given below.
        let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: see above.
            names.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut names = Vec::<CString>::new();
    // SAFETY: the function is called back before this returns, with the list.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut names).cast()) };
    names
}

/// Makes the symbols of an object that is loaded already visible to all others.
fn publish(name: &CStr) {
    // SAFETY: the name is a C string; nothing is loaded that was not there.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL) };
}

/// The plugin's path: where this object lies.
fn beside_this() -> Result<PathBuf, Failure> {
    // SAFETY: a record of integers and pointers, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address lies in this object, and the record may be written.
    let found = unsafe { libc::dladdr(at_load as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return Err(Failure::Other("the loader does not tell where libziptier_rocksdb.so lies".into()));
    }
    // SAFETY: the loader's name of an object is a C string.
    let this = OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes());
    Ok(Path::new(this).with_file_name(PLUGIN_FILE))
}

/// Loads the plugin and lets it register its classes.
fn open(path: &Path) -> Result<Plugin, Failure> {
    let failed = |what: &str| Failure::Other(format!("{what} {}: {}", path.display(), loader_error()));
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| failed("cannot name"))?;
    // SAFETY: the path is a C string; the plugin's initialisers do nothing that needs care.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(failed("cannot load"));
    }
    let find = |name: &CStr| {
        // SAFETY: the handle is open, the name a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() { Err(failed("a function is missing in")) } else { Ok(found) }
    };
    /// A function of the plugin.
    ///
    /// # Safety
    ///
    /// `T` is the type of the plugin's function of this name.
    unsafe fn bind<T: Copy>(address: *mut c_void) -> T {
        const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
        // SAFETY: a function pointer is as large as an address, and the type is what the caller promises.
        unsafe { std::mem::transmute_copy(&address) }
    }
    // SAFETY: these are the types of the plugin's functions.
    unsafe {
        bind::<extern "C" fn()>(find(c"zt_register_classes")?)();
        Ok(Plugin {
            counters: bind(find(c"zt_counters")?),
            migrate_off: bind(find(c"zt_plugin_migrate_off")?),
            migrate_on: bind(find(c"zt_plugin_migrate_on")?),
            inspect: bind(find(c"zt_plugin_inspect")?),
            estimate: bind(find(c"zt_plugin_estimate")?),
            persistent_cache: bind(find(c"zt_plugin_persistent_cache")?),
        })
    }
}

fn loader_error() -> String {
    // SAFETY: the message is a C string or null, and valid until the next call of the loader in this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "no reason given".into();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
