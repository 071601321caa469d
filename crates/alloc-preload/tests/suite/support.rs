//! Processes that have the library: this program again, or any other.

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_alloc::page::SharedPage;
use ziptier_testing::until;

/// Says to this program that it has the library.
const CHILD: &str = "ZIPTIER_ALLOC_TEST_CHILD";

/// The library: `target/debug` of a test in `target/debug/deps`.
pub(crate) fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("libziptier_alloc.so");
    assert!(path.exists(), "{} is missing; cargo build --package ziptier-alloc-preload", path.display());
    path
}

/// A command that has the library, with options.
pub(crate) fn with_library(program: &str, options: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library()).env("ZIPTIER_ALLOC", options);
    command
}

/// Runs the test `name` again, in a process that has the library, whose part is `body`.
pub(crate) fn in_child(name: &str, options: &str, body: fn()) {
    in_child_with(name, options, |_| {}, body);
}

/// The same, where the process needs more than options.
///
/// The first thread of the process starts the thread of the test, and allocates once more before it waits for the end
/// of the test. A tick of the first thread would keep the thread of the test from ticking, so the body waits for it.
pub(crate) fn in_child_with(name: &str, options: &str, prepare: fn(&mut Command), body: fn()) {
    if env::var_os(CHILD).is_some() {
        until("the first thread waits for the test", is_first_thread_asleep);
        return body();
    }
    let test = env::current_exe().unwrap();
    let mut command = with_library(test.to_str().unwrap(), options);
    prepare(&mut command);
    // With one thread for tests, the harness waits without a time limit, after which it would allocate.
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(CHILD, "1").output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}{errors}");
    assert!(output.status.success(), "{:?}", output.status);
    assert!(said.contains("1 passed"), "the child did not run {name}");
}

/// Whether the first thread of this process sleeps. Nothing here allocates.
pub(crate) fn is_first_thread_asleep() -> bool {
    let mut text = [0; 256];
    // SAFETY: the path is a C string, and the buffer has as many bytes as the call says.
    let bytes = unsafe {
        let file = libc::open(c"/proc/self/stat".as_ptr(), libc::O_RDONLY);
        let bytes = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        bytes
    };
    // The state stands behind the name, which is in parentheses.
    let text = &text[..bytes.max(0) as usize];
    let name_end = text.iter().rposition(|&byte| byte == b')');
    name_end.and_then(|end| text.get(end + 2)) == Some(&b'S')
}

/// Threads that wait for each other must not wait for ever: a child of a test that was killed would stay.
pub(crate) fn end_after_five_minutes() {
    // SAFETY: the call takes a number.
    unsafe { libc::alarm(300) };
}

/// The page of a process that has the library. A forked child may have descriptors of its parent's page, too.
pub(crate) fn page_of(pid: u32) -> SharedPage {
    let folder = format!("/proc/{pid}/fd");
    let paths = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let is_page = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:ziptier-alloc"))
    };
    let attach = |path: PathBuf| {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        SharedPage::attach(file.into()).unwrap()
    };
    let mut pages = paths.filter(is_page).map(attach);
    pages.find(|page| page.pid.load(Relaxed) == pid).expect("the process has no page")
}

/// A forked child's part, and its parent's.
pub(crate) fn fork(child: impl FnOnce() -> bool, parent: impl FnOnce(i32)) {
    // SAFETY: the child ends without destructors.
    fork_by(|| unsafe { libc::fork() }, child, parent);
}

/// The same, where the child comes from a system call for which no handlers run.
pub(crate) fn fork_barely(child: impl FnOnce() -> bool) {
    // SAFETY: the child has a copy of all memory, and ends without destructors.
    fork_by(|| unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32, child, |_| {});
}

fn fork_by(fork: fn() -> i32, child: impl FnOnce() -> bool, parent: impl FnOnce(i32)) {
    let pid = fork();
    if pid == 0 {
        // After a panic, the thread of the test would end, and the process with it, as if all were well.
        let is_well = catch_unwind(AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: the call takes a number.
        unsafe { libc::_exit((!is_well).into()) };
    }
    parent(pid);
    let mut status = 0;
    // SAFETY: the pointer is to a local variable.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

/// A function of the process, by name.
pub(crate) fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "{} is missing", name.to_string_lossy());
    found
}

/// Reads a number by `mallctl`.
pub(crate) fn mallctl<T: Copy>(name: &CStr, value: T, given: Option<T>) -> T {
    exchange(name, value, given)
}

/// jemalloc's number of the arena of a live block.
pub(crate) fn arena_of(block: usize) -> u32 {
    exchange(c"arenas.lookup", 0, Some(block))
}

fn exchange<T: Copy, U: Copy>(name: &CStr, mut value: T, given: Option<U>) -> T {
    type Mallctl =
        unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *const c_void, usize) -> c_int;
    let mut len = size_of::<T>();
    let (new, new_len) =
        given.as_ref().map_or((std::ptr::null(), 0), |given| (std::ptr::from_ref(given), size_of::<U>()));
    // SAFETY: `mallctl` has this type, and reads and writes values of the sizes that it is told.
    let failed = unsafe {
        let mallctl = std::mem::transmute::<*mut c_void, Mallctl>(function(c"mallctl"));
        mallctl(name.as_ptr(), (&raw mut value).cast(), &mut len, new.cast(), new_len)
    };
    assert_eq!(failed, 0, "{}", name.to_string_lossy());
    value
}

/// The addresses of far memory: the largest mapping without access is what is left of 16 TiB.
pub(crate) fn far_range() -> std::ops::Range<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter(|line| line.contains("---p")).map(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split_once(' ').unwrap().0;
        usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
    });
    let rest = ranges.max_by_key(|range| range.len()).unwrap();
    rest.end - (16 << 40)..rest.end
}

/// One block by the `malloc` of the process. The compiler must not leave it out.
pub(crate) fn malloc(bytes: usize) -> usize {
    // SAFETY: nothing is given.
    unsafe { black_box(libc::malloc(black_box(bytes))) as usize }
}

/// Frees a block of [`malloc`].
pub(crate) fn free(block: usize) {
    // SAFETY: the tests give live blocks.
    unsafe { libc::free(block as *mut c_void) }
}

/// The usable bytes of a live block.
pub(crate) fn usable(block: usize) -> usize {
    // SAFETY: the tests give live blocks.
    unsafe { libc::malloc_usable_size(block as *mut c_void) }
}
