//! The status that functions return, the sentence of a thread's last error, and the border that no panic crosses.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ziptier::{Error, ErrorKind};
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{self, BlockError};
use ziptier_codec::token;

/// The outcome of a call. The numbers never change. 0 and more are answers; below 0 are errors, and
/// ziptier_last_error() has the sentence.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ziptier_status {
    /// The call did what it says.
    ZIPTIER_OK = 0,
    /// There is no such key, or no further record.
    ZIPTIER_NOT_FOUND = 1,
    /// The output does not fit into the capacity. Nothing was written behind it.
    ZIPTIER_TOO_SMALL = 2,
    /// A condition of a batch does not hold. Nothing has changed.
    ZIPTIER_NOT_WRITTEN = 3,
    /// An argument is null, too long, out of range, or no UTF-8.
    ZIPTIER_INVALID_ARGUMENT = -1,
    /// An option has an unknown name or a wrong value, or options contradict each other.
    ZIPTIER_INVALID_OPTION = -2,
    /// The bytes are damaged, or were made with another format or dictionary.
    ZIPTIER_DAMAGED = -3,
    /// The store is at its memory limit and has refused a write. Nothing has changed.
    ZIPTIER_NO_ROOM = -4,
    /// An engine or a device cannot work, or gets no memory. This says nothing against the data.
    ZIPTIER_UNAVAILABLE = -5,
    /// A file, the log, or the system has failed.
    ZIPTIER_IO = -6,
    /// A fault of ziptier itself: please report the sentence.
    ZIPTIER_PANIC = -7,
}

pub(crate) use ziptier_status::*;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: ziptier_status,
    sentence: String,
}

impl Failure {
    pub(crate) fn new(status: ziptier_status, sentence: impl fmt::Display) -> Failure {
        Failure { status, sentence: sentence.to_string() }
    }

    pub(crate) fn argument(sentence: impl fmt::Display) -> Failure {
        Failure::new(ZIPTIER_INVALID_ARGUMENT, sentence)
    }

    pub(crate) fn option(sentence: impl fmt::Display) -> Failure {
        Failure::new(ZIPTIER_INVALID_OPTION, sentence)
    }

    pub(crate) fn status(&self) -> ziptier_status {
        self.status
    }

    /// The same failure of one job of several.
    pub(crate) fn of_job(self, at: usize) -> Failure {
        Failure { sentence: format!("job {at}: {}", self.sentence), ..self }
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Failure {
        let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
        let words = words.unwrap_or_else(|| "without a message".to_owned());
        Failure::new(ZIPTIER_PANIC, format_args!("ziptier met a fault of its own, please report it: {words}"))
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Failure {
        match error {
            BlockError::Engine { .. } => Failure::new(ZIPTIER_UNAVAILABLE, error),
            _ => Failure::new(ZIPTIER_DAMAGED, error),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Failure {
        match error {
            SettingError::Unavailable { .. } | SettingError::NotBuilt { .. } => {
                Failure::new(ZIPTIER_UNAVAILABLE, error)
            }
            _ => Failure::option(error),
        }
    }
}

impl From<block::dictionary::TrainError> for Failure {
    fn from(error: block::dictionary::TrainError) -> Failure {
        Failure::argument(error)
    }
}

impl From<block::dictionary::DictionaryError> for Failure {
    fn from(error: block::dictionary::DictionaryError) -> Failure {
        Failure::new(ZIPTIER_DAMAGED, error)
    }
}

impl From<token::TrainError> for Failure {
    fn from(error: token::TrainError) -> Failure {
        Failure::argument(error)
    }
}

impl From<token::DictionaryError> for Failure {
    fn from(error: token::DictionaryError) -> Failure {
        Failure::new(ZIPTIER_DAMAGED, error)
    }
}

impl From<token::DecodeError> for Failure {
    fn from(error: token::DecodeError) -> Failure {
        Failure::new(ZIPTIER_DAMAGED, error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match error.kind() {
            ErrorKind::Argument => ZIPTIER_INVALID_ARGUMENT,
            ErrorKind::NoRoom => ZIPTIER_NO_ROOM,
            ErrorKind::Damaged => ZIPTIER_DAMAGED,
            ErrorKind::Option => ZIPTIER_INVALID_OPTION,
            ErrorKind::Unavailable => ZIPTIER_UNAVAILABLE,
            _ => ZIPTIER_IO,
        };
        Failure::new(status, error)
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs the work of a function. An error and a panic become a status, and the sentence that goes with it.
pub(crate) fn call(work: impl FnOnce() -> Result<ziptier_status, Failure>) -> ziptier_status {
    guarded(work).unwrap_or_else(|status| status)
}

/// For another language's interface on top of this one: a panic of its own work becomes a status and a sentence.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, ziptier_status> {
    guarded(|| Ok(work()))
}

/// For the same: the status of memory that is refused, and its sentence. `what` says what the memory is for, and what
/// to do.
pub fn no_memory(what: impl fmt::Display) -> ziptier_status {
    call(|| Err(Failure::new(ZIPTIER_UNAVAILABLE, format_args!("there is no memory for {what}"))))
}

/// As [`call`], for work that gives a value.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, ziptier_status> {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(&*panic),
    };
    let sentence = CString::new(failure.sentence.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no sentence any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(sentence));
    Err(failure.status)
}

/// The sentence of the last error of the calling thread. It says what was tried, what was found and what to do. Empty
/// if no call of this thread has failed. A call that succeeds leaves it as it is.
///
/// Ownership: the string is the library's. It lasts until a call of the same thread fails, or the thread ends.
/// Threads: any; each has a sentence of its own.
/// Errors: none.
#[unsafe(no_mangle)]
pub extern "C" fn ziptier_last_error() -> *const c_char {
    let last = |last: &RefCell<Option<CString>>| last.borrow().as_deref().unwrap_or_default().as_ptr();
    LAST.try_with(last).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
pub(crate) fn last_error() -> String {
    // SAFETY: the string lasts until the next error of this thread.
    unsafe { std::ffi::CStr::from_ptr(ziptier_last_error()) }.to_str().expect("a sentence").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_with_its_words() {
        assert_eq!(last_error(), "");
        assert_eq!(call(|| panic!("an index is {}", 7)), ZIPTIER_PANIC);
        assert_eq!(last_error(), "ziptier met a fault of its own, please report it: an index is 7");
        assert_eq!(call(|| std::panic::panic_any(7)), ZIPTIER_PANIC);
        assert!(last_error().ends_with("without a message"));
    }

    #[test]
    fn a_success_keeps_the_sentence_and_each_thread_has_its_own() {
        assert_eq!(call(|| Err(Failure::argument("a\0b"))), ZIPTIER_INVALID_ARGUMENT);
        assert_eq!(call(|| Ok(ZIPTIER_OK)), ZIPTIER_OK);
        assert_eq!(last_error(), "a b");
        assert_eq!(std::thread::spawn(last_error).join().unwrap(), "");
    }
}
