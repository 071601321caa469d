//! Intel's Query Processing Library as it is installed: found at run time, its job interface declared here.
//!
//! The layout of a job is that of the library's header `qpl/c_api/job.h`. It is the same in releases 1.0 to 1.6. Other
//! major versions are refused.

#[cfg(test)]
pub(super) mod fake;

use libloading::Library;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The variable that names a file to load instead of the usual ones. It is ignored if the program has more rights than
/// its user.
pub const LIBRARY_VARIABLE: &str = "ZIPTIER_QPL";

const LIBRARY_NAMES: [&str; 2] = ["libqpl.so.1", "libqpl.so"];

/// Numbers of statuses that we tell apart (`qpl/c_api/status.h`).
pub(super) mod status {
    pub(in super::super) const OK: u32 = 0;
    pub(in super::super) const BEING_PROCESSED: u32 = 1;
    pub(in super::super) const MORE_OUTPUT_NEEDED: u32 = 2;
    pub(in super::super) const MORE_INPUT_NEEDED: u32 = 3;
    pub(in super::super) const QUEUES_ARE_BUSY: u32 = 5;
    /// Error codes of the device's interface that blame the data, from 1 on.
    pub(in super::super) const DATA_ERRORS: std::ops::RangeInclusive<u32> = 201..=236;
    pub(in super::super) const DESTINATION_IS_SHORT: u32 = 225;
    /// The data errors that in truth blame device or library: no progress, a bad engine state, a failed verification.
    pub(in super::super) const NOT_THE_DATA: [u32; 3] = [219, 222, 229];
}

/// Operations (`qpl_operation`).
pub(super) const DECOMPRESS: u32 = 0;
pub(super) const COMPRESS: u32 = 1;

/// Flags of a job.
pub(super) mod flag {
    pub(in super::super) const FIRST: u32 = 0x1;
    pub(in super::super) const LAST: u32 = 0x2;
    pub(in super::super) const DYNAMIC_HUFFMAN: u32 = 0x2000;
    pub(in super::super) const OMIT_VERIFY: u32 = 0x4000;
}

/// Compression levels: the only one of the device, and a denser one of the library's software.
pub(super) const LEVEL_DEFAULT: u32 = 1;
pub(super) const LEVEL_HIGH: u32 = 3;

/// The worker of a job (`qpl_path_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum JobPath {
    Hardware = 1,
    Software = 2,
}

/// The fields of `qpl_job` that we use; behind them lie more, and the library's own data.
#[repr(C)]
pub(super) struct Fields {
    pub(super) next_in: *const u8,
    pub(super) available_in: u32,
    pub(super) total_in: u32,
    pub(super) next_out: *mut u8,
    pub(super) available_out: u32,
    pub(super) total_out: u32,
    pub(super) operation: u32,
    pub(super) flags: u32,
    crc: u32,
    xor_checksum: u32,
    last_bit_offset: u32,
    pub(super) level: u32,
    statistics_mode: u32,
    huffman_table: *mut c_void,
    dictionary: *mut c_void,
    mini_block_size: u32,
}

const _: () = assert!(
    offset_of!(Fields, available_in) == 8
        && offset_of!(Fields, next_out) == 16
        && offset_of!(Fields, operation) == 32
        && offset_of!(Fields, flags) == 36
        && offset_of!(Fields, level) == 52
        && offset_of!(Fields, huffman_table) == 64
        && offset_of!(Fields, mini_block_size) == 80
);

/// Bytes of the library's own `qpl_job`: a job is never smaller.
const JOB_BYTES_MIN: usize = 240;

type OnJob = unsafe extern "C" fn(*mut Fields) -> u32;

/// The functions of the library. It is never unloaded: its threads' data and static state outlive everything.
pub(super) struct Functions {
    job_size: unsafe extern "C" fn(u32, *mut u32) -> u32,
    init: unsafe extern "C" fn(u32, *mut Fields) -> u32,
    execute: OnJob,
    submit: OnJob,
    check: OnJob,
    finish: OnJob,
    pub(super) version: String,
}

/// The library, loaded once for the process.
///
/// # Errors
/// The files that were tried, and the finding.
pub(super) fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, String> {
    let named = std::env::var(LIBRARY_VARIABLE).ok();
    // SAFETY: the function looks a number up.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let names = names(named.as_deref(), is_privileged);
    let mut tried = Vec::new();
    for name in &names {
        // SAFETY: the machine's owner installed or named the file as Intel's library. The initialisers of that library
        // only set up tables of functions.
        match unsafe { Library::new(*name) } {
            Ok(library) => return bind(library).map_err(|reason| format!("{name}: {reason}")),
            Err(error) => {
                // The loader's message names the file, and stands in the cause.
                let why = std::error::Error::source(&error)
                    .map_or_else(|| error.to_string(), |why| why.to_string());
                tried.push(why);
            }
        }
    }
    Err(format!(
        "libqpl is not installed ({}); install it (libqpl1), or name its file in {LIBRARY_VARIABLE}",
        tried.join("; ")
    ))
}

/// Files to try. A user must not choose the code of a program that has more rights than that user.
fn names(named: Option<&str>, is_privileged: bool) -> Vec<&str> {
    let named = named.filter(|name| !name.is_empty() && !is_privileged);
    named.map_or(LIBRARY_NAMES.to_vec(), |name| vec![name])
}

fn bind(library: Library) -> Result<Functions, String> {
    // Kept for ever: see `Functions`.
    let library: &'static Library = Box::leak(Box::new(library));
    macro_rules! symbol {
        ($name:literal) => {
            // SAFETY: the library's header declares the function with the type that the field has.
            *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|error| error.to_string())?
        };
    }
    let version: unsafe extern "C" fn() -> *const c_char = symbol!("qpl_get_library_version");
    // SAFETY: it returns a constant string.
    let version = unsafe { CStr::from_ptr(version()) }.to_string_lossy().into_owned();
    if version.trim_start_matches('v').split('.').next() != Some("1") {
        return Err(format!("it is version {version}, and jobs are known to be alike in versions 1 only"));
    }
    Ok(Functions {
        job_size: symbol!("qpl_get_job_size"),
        init: symbol!("qpl_init_job"),
        execute: symbol!("qpl_execute_job"),
        submit: symbol!("qpl_submit_job"),
        check: symbol!("qpl_check_job"),
        finish: symbol!("qpl_fini_job"),
        version,
    })
}

/// An initialised job, which codes one block at a time. It belongs to no thread.
pub(super) struct Job {
    functions: &'static Functions,
    at: NonNull<Fields>,
    layout: Layout,
    /// Bytes of the target: the library changes its own figure.
    room: u32,
}

// SAFETY: the library keeps nothing of a job in the thread that made it, and only its owner uses a job.
unsafe impl Send for Job {}

impl Job {
    /// A job for a path, or the reason why the library cannot make one.
    pub(super) fn new(functions: &'static Functions, path: JobPath) -> Result<Job, String> {
        let mut bytes = 0;
        // SAFETY: the function writes one integer.
        let result = unsafe { (functions.job_size)(path as u32, &mut bytes) };
        if result != status::OK {
            return Err(in_words(result));
        }
        let layout = Layout::from_size_align((bytes as usize).max(JOB_BYTES_MIN), 64);
        let layout = layout.map_err(|error| error.to_string())?;
        // SAFETY: the layout has a size.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Fields>());
        let job = Job { functions, at: at.ok_or("no memory for a job")?, layout, room: 0 };
        // SAFETY: the job has as many bytes as the library asked for.
        match unsafe { (functions.init)(path as u32, job.at.as_ptr()) } {
            status::OK => Ok(job),
            other => Err(in_words(other)),
        }
    }

    /// Sets the job up for one block, as a whole.
    ///
    /// # Safety
    /// Until the job is done, source and target stay valid, and no other code touches the target or writes to the
    /// source.
    pub(super) unsafe fn prepare(
        &mut self,
        operation: u32,
        flags: u32,
        level: u32,
        source: (*const u8, u32),
        target: (*mut u8, u32),
    ) {
        // SAFETY: the job was initialised, and nobody else has it.
        let fields = unsafe { self.at.as_mut() };
        fields.operation = operation;
        fields.flags = flag::FIRST | flag::LAST | flags;
        fields.level = level;
        (fields.next_in, fields.available_in) = source;
        (fields.next_out, fields.available_out) = target;
        self.room = target.1;
        (fields.total_in, fields.total_out) = (0, 0);
    }

    /// Does the job.
    ///
    /// # Safety
    /// The job has been [prepared](Job::prepare), and the promises made there hold.
    pub(super) unsafe fn execute(&mut self) -> u32 {
        // SAFETY: the job is initialised and prepared.
        unsafe { (self.functions.execute)(self.at.as_ptr()) }
    }

    /// Begins the job; [`Job::check`] says when it is done.
    ///
    /// # Safety
    /// As [`Job::execute`]. The promises hold until the job is done.
    pub(super) unsafe fn submit(&mut self) -> u32 {
        // SAFETY: the job is initialised and prepared.
        unsafe { (self.functions.submit)(self.at.as_ptr()) }
    }

    /// How the job stands that was submitted.
    pub(super) fn check(&mut self) -> u32 {
        // SAFETY: the job is initialised; one that was not submitted is an error that the library returns.
        unsafe { (self.functions.check)(self.at.as_ptr()) }
    }

    /// Bytes consumed and produced according to the library, and the room of the target.
    pub(super) fn totals(&self) -> (usize, usize, usize) {
        // SAFETY: the job is initialised, and done when this is asked.
        let fields = unsafe { self.at.as_ref() };
        (fields.total_in as usize, fields.total_out as usize, self.room as usize)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // SAFETY: `new` made the job with this layout, and the job is not used afterwards. A job that could not be
        // initialised is zero or marked as software. For such a job the library does nothing here.
        unsafe {
            (self.functions.finish)(self.at.as_ptr());
            dealloc(self.at.as_ptr().cast(), self.layout);
        }
    }
}

/// A status as people need it.
pub(super) fn in_words(number: u32) -> String {
    let what = match number {
        status::QUEUES_ARE_BUSY => "all work queues are busy",
        8 => "the work queue is not configured for the operation",
        500 => "this build of the library or this machine has no hardware path",
        501 => "libaccel-config, through which it finds devices, is missing or too old",
        502 => "libaccel-config failed",
        503 => "no enabled work queue of type user on this NUMA node, or no permission to use one",
        303 | 431 => "a page fault",
        336 => "the device's watchdog ended the job",
        _ => return format!("QPL status {number}"),
    };
    format!("{what} (QPL status {number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_no_code_for_a_privileged_program() {
        assert_eq!(names(Some("/home/user/own.so"), false), ["/home/user/own.so"]);
        assert_eq!(names(Some("/home/user/own.so"), true), LIBRARY_NAMES);
        assert_eq!(
            (names(Some(""), false), names(None, false)),
            (LIBRARY_NAMES.to_vec(), LIBRARY_NAMES.to_vec())
        );
    }
}
