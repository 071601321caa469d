//! The environment, the set-up before `main`, and fork.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tikv_jemalloc_sys as jemalloc;
use ziptier_alloc::configuration::{Configuration, FarMemory, NodeSet, Variables};
use ziptier_alloc::fixed_text::FixedText;
use ziptier_alloc::page::{FarKind, SharedPage};

use crate::{far, forked, nodes, thread, tick};

/// The exit status of a program that must not start after a mistake: that of a program that cannot be loaded.
const NOT_STARTED: i32 = 127;

/// The dynamic linker calls it before `main`.
// SAFETY: the section holds pointers to functions of this type.
#[unsafe(link_section = ".init_array")]
#[used]
static START: unsafe extern "C" fn() = start;

/// Options of jemalloc that a user can add to by `_RJEM_MALLOC_CONF`. Huge pages stay off. Background threads start
/// when the program asks for them, as a stock Redis does by its option `jemalloc-bg-thread`.
// SAFETY: it is the name and the type that jemalloc documents for its configuration, and nothing else defines it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: Options = Options(c"background_thread:false".as_ptr());

/// A C string for jemalloc.
#[repr(transparent)]
struct Options(*const c_char);

// SAFETY: it points at a constant string that no code writes.
unsafe impl Sync for Options {}

unsafe extern "C" fn start() {
    thread::prepare();
    forked::prepare();
    let variables = Variables::from(variable);
    let (configuration, mistake) = match Configuration::read(&variables) {
        Ok(configuration) => (configuration, None),
        Err(mistake) if mistake.strict => {
            say(format_args!("{mistake}"));
            // SAFETY: the call takes a number and ends the process.
            unsafe { libc::_exit(NOT_STARTED) }
        }
        Err(mistake) => {
            say(format_args!("{mistake}; everything lies in DRAM"));
            (Configuration::DRAM_ONLY, Some(mistake))
        }
    };
    let page = SharedPage::create().ok();
    let (kind, nodes, is_bound) = prepare_far(&configuration);
    if let Some(page) = &page {
        if let Some(mistake) = mistake {
            page.mistake.set(text(format_args!("{mistake}")).as_bytes());
        }
        page.told.failed_bindings.store((!is_bound).into(), Relaxed);
        tick::publish(page, kind, &nodes, &configuration);
    }
    tick::start(&configuration, page);
    register_for_forks();
}

/// Registers the handlers of fork, once. The first allocation calls this, as early as jemalloc registers its handlers.
/// Handlers that are registered later run before ours: a library that holds a lock of its own in a fork, and with that
/// lock gives jemalloc a command, has the lock before this library has the ticker.
pub(crate) fn register_for_forks() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the block is live until it is freed. The handlers do what they must to be called around a fork.
    unsafe {
        // jemalloc sets itself up first: in a fork, the ticker must be taken before jemalloc's locks.
        jemalloc::free(jemalloc::malloc(1));
        libc::pthread_atfork(
            Some(tick::before_fork),
            Some(tick::after_fork_in_parent),
            Some(tick::after_fork_in_child),
        );
    }
}

/// Reserves far memory: what it is, on which nodes, and whether the kernel has bound it to them.
fn prepare_far(configuration: &Configuration) -> (FarKind, NodeSet, bool) {
    if !far::prepare() {
        say(format_args!("the system grants no addresses for far memory; everything lies in DRAM"));
        return (FarKind::Unknown, NodeSet::default(), true);
    }
    let nodes = match configuration.far {
        FarMemory::Nodes(nodes) => nodes,
        FarMemory::Auto => nodes::without_processors(),
        FarMemory::Simulated => NodeSet::default(),
    };
    if nodes.is_empty() {
        return (FarKind::Simulated, nodes, true);
    }
    let is_bound = far::bind(&nodes);
    if !is_bound {
        say(format_args!(
            "memory cannot be bound to the nodes of far memory, which is simulated now; see by ziptier doctor that \
             they exist, and allow the system call in a service by SystemCallFilter=mbind"
        ));
    }
    (if is_bound { FarKind::Nodes } else { FarKind::Simulated }, nodes, is_bound)
}

/// A variable of the environment. Its text lives as long as the program does not change it.
fn variable(name: &str) -> Option<&'static [u8]> {
    let name = text(format_args!("{name}"));
    // SAFETY: the name is a C string. No other thread runs yet that could change the environment.
    unsafe {
        let value = libc::getenv(name.as_c_str().as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

/// Writes a line to the standard error, without an allocation.
pub(crate) fn say(message: fmt::Arguments) {
    let line = text(format_args!("libziptier_alloc: {message}\n"));
    // SAFETY: the buffer has as many bytes as the call says.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_bytes().as_ptr().cast(), line.as_bytes().len()) };
}

fn text(message: fmt::Arguments) -> FixedText<1024> {
    let mut text = FixedText::new();
    // Never fails: what has no room is cut off.
    let _ = text.write_fmt(message);
    text
}
