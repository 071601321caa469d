use std::boxed::Box;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::string::String;
use std::sync::atomic::Ordering::SeqCst;
use std::vec::Vec;
use std::{env, fs, println, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::configuration::{ClassName, FilePath, Ratio};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> FilePath {
        FilePath::new(self.0.path().join("classes").to_str().unwrap().as_bytes()).unwrap()
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("classes")
    }
}

fn name(text: &str) -> ClassName {
    ClassName::new(text.as_bytes()).unwrap()
}

fn class(folder: &Folder, limit_bytes: [u64; 2]) -> FilePath {
    let file = Locked::open_or_create(&folder.path()).unwrap();
    file.set(&name("gold"), Some(Ratio::of_word(3 << 32 | 1)), limit_bytes.map(Some)).unwrap();
    folder.path()
}

/// A member of the class.
fn joined(path: &FilePath) -> Result<Membership, ClassError> {
    let mut member = Membership::new(*path, name("gold"));
    member.join().map(|()| member)
}

const NONE: u64 = u64::MAX;

/// The test binary again, as another process that joins the class and ticks once a line.
fn member_process(path: &FilePath) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([
        "--exact",
        "classes::tests::other_process",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("ZIPTIER_TEST_CLASSES", path.as_c_str().to_str().unwrap());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "a process of other tests"]
fn other_process() {
    let Ok(path) = env::var("ZIPTIER_TEST_CLASSES") else { return };
    let mut member = joined(&FilePath::new(path.as_bytes()).unwrap()).unwrap();
    for line in std::io::stdin().lines().map(Result::unwrap) {
        if line == "exec" {
            // Longer than a test waits for it to be no member.
            panic!("{}", Command::new("sleep").arg("300").exec());
        }
        let bytes = line.parse().unwrap();
        let share = member.tick([bytes, 0], 1000).unwrap();
        println!("\ngranted {}", share.limit_bytes[0]);
    }
}

struct Dialogue {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Dialogue {
    fn with(mut child: Child) -> Dialogue {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        Dialogue { child, lines: Box::new(lines) }
    }

    fn tick(&mut self, bytes: u64) -> u64 {
        std::writeln!(self.child.stdin.as_mut().unwrap(), "{bytes}").unwrap();
        let granted =
            self.lines.find_map(|line| line.strip_prefix("granted ").map(|bytes| bytes.parse().unwrap()));
        granted.unwrap()
    }
}

#[test]
fn a_member_learns_the_ratio_and_its_room() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 30, NONE]);
    let mut member = joined(&path).unwrap();
    let share = member.tick([5, 7], 0).unwrap();
    assert_eq!(share.ratio, Some(Ratio { dram: 3, far: 1 }));
    assert_eq!(share.limit_bytes, [5 + (1 << 26), NONE]);
    let seen: Vec<_> = Locked::open(&path).unwrap().classes().collect();
    assert_eq!((seen.len(), seen[0].members, seen[0].live_bytes), (1, 1, [5, 7]));

    Locked::open(&path).unwrap().set(&name("gold"), Some(None), [Some(4), None]).unwrap();
    let share = member.tick([5, 7], 0).unwrap();
    assert_eq!(share, Share { ratio: None, limit_bytes: [5, NONE] }, "no room, and nothing to give back");
}

/// Members that grow as fast as their grants allow, on threads of their own.
#[test]
fn members_never_exceed_the_budget_and_use_it_up() {
    const LIMIT: u64 = 64 << 20;
    const MEMBERS: usize = 6;
    let folder = Folder::new();
    let path = class(&folder, [LIMIT, NONE]);
    let live: Vec<AtomicU64> = (0..MEMBERS).map(|_| AtomicU64::new(0)).collect();
    let ready = std::sync::Barrier::new(MEMBERS);
    thread::scope(|scope| {
        for index in 0..MEMBERS {
            let (live, ready, path) = (&live, &ready, &path);
            scope.spawn(move || {
                let mut member = joined(path).unwrap();
                ready.wait();
                for _ in 0..400 {
                    let share = member.tick([live[index].load(SeqCst), 0], 0).unwrap();
                    live[index].store(share.limit_bytes[0], SeqCst);
                    let sum: u64 = live.iter().map(|bytes| bytes.load(SeqCst)).sum();
                    assert!(sum <= LIMIT, "{sum} bytes of {LIMIT}");
                    thread::yield_now();
                }
            });
        }
    });
    let sum: u64 = live.iter().map(|bytes| bytes.load(SeqCst)).sum();
    assert!(sum > LIMIT / 10 * 9, "{sum} bytes of {LIMIT}");
}

#[test]
fn a_killed_member_gives_its_room_to_the_others() {
    const LIMIT: u64 = 1 << 20;
    let folder = Folder::new();
    let path = class(&folder, [LIMIT, NONE]);
    let mut member = joined(&path).unwrap();
    let mut other = Dialogue::with(member_process(&path));
    assert!(other.tick(0) > 0);
    assert_eq!(other.tick(LIMIT), LIMIT);
    assert_eq!(member.tick([0, 0], 1000).unwrap().limit_bytes[0], 0, "the other member holds all");
    assert_eq!(member.tick([0, 0], 5000).unwrap().limit_bytes[0], 0, "and may be idle");
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    assert_eq!(member.tick([0, 0], 5999).unwrap().limit_bytes[0], 0, "nobody looks twice in a second");
    assert_eq!(member.tick([0, 0], 6000).unwrap().limit_bytes[0], LIMIT / 16);
    assert_eq!(Locked::open(&path).unwrap().members(&name("gold")).count(), 1);
}

#[test]
fn a_dead_member_that_its_parent_has_not_reaped_holds_nothing() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    let mut other = Dialogue::with(member_process(&path));
    other.tick(1 << 20);
    other.child.kill().unwrap();
    let file = Locked::open(&path).unwrap();
    ziptier_testing::until("its slot is free", || file.members(&name("gold")).count() == 1);
    assert_eq!(member.tick([0, 0], 5000).unwrap().limit_bytes[0], 1 << 16);
    other.child.wait().unwrap();
}

#[test]
fn a_member_that_runs_another_program_holds_nothing() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    let mut other = Dialogue::with(member_process(&path));
    other.tick(1 << 20);
    std::writeln!(other.child.stdin.as_mut().unwrap(), "exec").unwrap();
    let file = Locked::open(&path).unwrap();
    ziptier_testing::until("its slot is free", || file.members(&name("gold")).count() == 1);
    assert_eq!(member.tick([0, 0], 5000).unwrap().limit_bytes[0], 1 << 16);
    other.child.kill().unwrap();
    other.child.wait().unwrap();
}

#[test]
fn slots_of_dead_members_are_taken_again() {
    let folder = Folder::new();
    let path = class(&folder, [NONE, NONE]);
    let mut members: Vec<_> = (1..MEMBERS_MAX).map(|_| joined(&path).unwrap()).collect();
    let mut other = Dialogue::with(member_process(&path));
    other.tick(1);
    assert_eq!(joined(&path).unwrap_err(), ClassError::Full);
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    members.push(joined(&path).unwrap());
    assert_eq!(joined(&path).unwrap_err(), ClassError::Full);
}

#[test]
fn a_process_with_the_number_of_a_dead_one_is_not_taken_for_it() {
    let own = process::Identity::own();
    assert!(own.is_alive());
    let started = if own.to_word() >> 22 & 0xFFFF == 7 { 8 } else { 7 };
    let earlier = own.to_word() & !(0xFFFF << 22) | started << 22;
    assert!(!process::Identity::of_word(earlier).unwrap().is_alive());
    let other_program = own.to_word() ^ 1 << 63;
    assert!(!process::Identity::of_word(other_program).unwrap().is_alive());
    assert!(!process::Identity::of_word(1 << 22).unwrap().is_alive(), "no process number");
}

/// Its bytes would count for no budget otherwise.
#[test]
fn a_process_that_cannot_read_its_own_status_counts_as_living() {
    let unknown = u64::from(std::process::id());
    assert!(process::Identity::of_word(unknown).unwrap().is_alive());
}

/// Runs in a forked child of the calling process. Returns the child's number.
fn in_fork(run: impl FnOnce()) -> i32 {
    // SAFETY: the child ends without destructors.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let failed = catch_unwind(AssertUnwindSafe(run)).is_err();
            libc::_exit(failed.into());
        }
        child
    }
}

fn reap(child: i32) {
    let mut status = 1;
    // SAFETY: the pointer is to a local variable.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
}

#[test]
fn bytes_from_before_a_fork_count_once_while_the_parent_lives() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    let file = Locked::open(&path).unwrap();
    reap(in_fork(|| {
        member.fork([1000, 0]).unwrap();
        let share = member.tick([1500, 0], 0).unwrap();
        assert_eq!(file.members(&name("gold")).map(|member| member.live_bytes[0]).sum::<u64>(), 500);
        assert_eq!(share.limit_bytes[0], 1500 + (1 << 16));
    }));
}

/// A bare system call may make the child while a thread of the parent joins.
#[test]
fn a_child_joins_whether_its_parent_is_a_member_or_not() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    for mut member in [Membership::new(path, name("gold")), joined(&path).unwrap()] {
        reap(in_fork(|| {
            member.forget_file();
            member.fork([1000, 0]).unwrap();
            let share = member.tick([1500, 0], 0).unwrap();
            assert_eq!(share.limit_bytes[0], 1500 + (1 << 16));
        }));
    }
}

/// The bytes of the parent would count twice otherwise.
#[test]
fn a_child_that_joins_again_keeps_what_it_inherited() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    fs::remove_file(folder.file()).unwrap();
    reap(in_fork(|| {
        assert_eq!(member.fork([1000, 0]), Err(ClassError::NoFile));
        assert!(member.tick([1500, 0], 0).is_err());
        assert_eq!(member.join(), Err(ClassError::NoFile));
        class(&folder, [1 << 20, NONE]);
        member.join().unwrap();
        let share = member.tick([1500, 0], 0).unwrap();
        assert_eq!(share.limit_bytes[0], 1500 + (1 << 16));
    }));
}

/// A slot that stayed taken would be lost with each class that is made again.
#[test]
fn a_member_that_joins_again_has_one_slot() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    for _ in 0..=MEMBERS_MAX {
        Locked::open(&path).unwrap().delete(&name("gold"), true).unwrap();
        assert_eq!(member.tick([5, 7], 0), Err(ClassError::NoClass));
        class(&folder, [1 << 20, NONE]);
        member.join().unwrap();
    }
    assert_eq!(Locked::open(&path).unwrap().members(&name("gold")).count(), 1);
}

/// Another process could have the last slot otherwise when the class is made again.
#[test]
fn a_member_keeps_its_slot_while_its_class_is_deleted() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    (1..MEMBERS_MAX).for_each(|_| drop(joined(&path).unwrap()));
    Locked::open(&path).unwrap().delete(&name("gold"), true).unwrap();
    assert_eq!(member.join(), Err(ClassError::NoClass));
    Locked::open(&path).unwrap().set(&name("silver"), None, [None, None]).unwrap();
    assert_eq!(Membership::new(path, name("silver")).join(), Err(ClassError::Full));
    class(&folder, [1 << 20, NONE]);
    member.join().unwrap();
}

/// The parent ends before the child has ticked, as that of a daemon does.
#[test]
fn bytes_from_before_a_fork_count_for_an_orphan() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let member_of = |pid: u32| {
        let file = Locked::open(&path).unwrap();
        file.members(&name("gold")).find(|member| member.pid == pid).map(|member| member.live_bytes[0])
    };
    reap(in_fork(|| {
        let mut member = joined(&path).unwrap();
        let own = std::process::id();
        in_fork(|| {
            // SAFETY: the call takes nothing.
            ziptier_testing::until("it is an orphan", || unsafe { libc::getppid() } as u32 != own);
            member.fork([1000, 0]).unwrap();
            member.tick([1500, 0], 0).unwrap();
            let told = folder.0.path().join("orphan");
            fs::write(&told, std::format!("{}", std::process::id())).unwrap();
            ziptier_testing::until("the test ends", || !told.exists());
        });
    }));
    let mut bytes = None;
    ziptier_testing::until("the orphan has ticked", || {
        let text = fs::read_to_string(folder.0.path().join("orphan")).unwrap_or_default();
        bytes = text.parse().ok().and_then(&member_of);
        bytes.is_some()
    });
    assert_eq!(bytes, Some(1500));
}

#[test]
fn commands_that_make_the_file_at_the_same_time_make_one() {
    for _ in 0..20 {
        let folder = Folder::new();
        thread::scope(|scope| {
            for index in 0..6 {
                let path = folder.path();
                scope.spawn(move || {
                    let file = Locked::open_or_create(&path).unwrap();
                    file.set(&name(&std::format!("class{index}")), None, [None, None]).unwrap();
                });
            }
        });
        assert_eq!(Locked::open(&folder.path()).unwrap().classes().count(), 6);
        assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "no temporary file is left");
    }
}

#[test]
fn a_file_has_room_for_so_many_classes() {
    let folder = Folder::new();
    let file = Locked::open_or_create(&folder.path()).unwrap();
    for index in 0..CLASSES_MAX {
        file.set(&name(&std::format!("c{index}")), None, [None, None]).unwrap();
    }
    assert_eq!(file.set(&name("more"), None, [None, None]), Err(ClassError::Full));
    file.set(&name("c3"), None, [Some(1), None]).unwrap();
    file.delete(&name("c4"), false).unwrap();
    assert_eq!(file.delete(&name("c4"), false), Err(ClassError::NoClass));
    file.set(&name("more"), None, [None, None]).unwrap();
    let more = file.classes().find(|class| class.name == name("more")).unwrap();
    assert_eq!((more.ratio, more.limit_bytes), (None, [NONE, NONE]));
}

#[test]
fn a_class_with_members_is_deleted_by_force_alone_and_its_members_learn_it() {
    let folder = Folder::new();
    let path = class(&folder, [NONE, NONE]);
    let mut member = joined(&path).unwrap();
    let file = Locked::open(&path).unwrap();
    assert_eq!(file.delete(&name("gold"), false), Err(ClassError::HasMembers));
    file.delete(&name("gold"), true).unwrap();
    assert_eq!(member.tick([0, 0], 0), Err(ClassError::NoClass));
    assert_eq!(joined(&path).unwrap_err(), ClassError::NoClass);
    file.set(&name("gold"), None, [None, None]).unwrap();
    assert_eq!(member.tick([0, 0], 0), Err(ClassError::NoClass), "a class of the same name is another one");
}

#[test]
fn foreign_and_damaged_files_are_refused() {
    let folder = Folder::new();
    let path = folder.path();
    let open = || ClassFile::open(&path).and_then(|file| file.read().map(|_| ())).unwrap_err();
    assert_eq!(open(), ClassError::NoFile);
    fs::write(folder.file(), b"short").unwrap();
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open(), ClassError::Damaged);
    fs::write(folder.file(), std::vec![0; size_of::<Table>()]).unwrap();
    assert_eq!(open(), ClassError::Damaged);
    fs::remove_file(folder.file()).unwrap();
    fs::create_dir(folder.file()).unwrap();
    assert_eq!(open(), ClassError::Damaged);
    fs::remove_dir(folder.file()).unwrap();

    class(&folder, [NONE, NONE]);
    ClassFile::open(&path).unwrap();
    for mode in [0o662, 0o664] {
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(open(), ClassError::Foreign, "mode {mode:o}");
    }
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o660)).unwrap();
    ClassFile::open(&path).unwrap();
    fs::rename(folder.file(), folder.0.path().join("elsewhere")).unwrap();
    symlink("elsewhere", folder.file()).unwrap();
    assert_eq!(open(), ClassError::Damaged, "a link may lead to the file of another user");
}

#[test]
fn a_member_learns_that_its_file_was_deleted_replaced_or_damaged() {
    let folder = Folder::new();
    let path = class(&folder, [NONE, NONE]);
    let mut member = joined(&path).unwrap();
    fs::remove_file(folder.file()).unwrap();
    assert_eq!(member.tick([0, 0], 0), Err(ClassError::NoFile));
    class(&folder, [NONE, NONE]);
    assert_eq!(member.tick([0, 0], 0), Err(ClassError::NoFile), "another file");
    let mut member = joined(&path).unwrap();
    let file = fs::File::options().write(true).open(folder.file()).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(member.tick([0, 0], 0), Err(ClassError::Damaged));
    // All of it is zeros now.
    file.set_len(size_of::<Table>() as u64).unwrap();
    assert!(member.tick([0, 0], 0).is_err());
}

/// The system ends a process that looks into a mapping behind the end of its file.
#[test]
fn a_member_outlives_a_file_that_is_shortened_while_it_looks() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    let whole = fs::read(folder.file()).unwrap();
    let file = fs::File::options().write(true).open(folder.file()).unwrap();
    let child = in_fork(|| {
        for _ in 0..100_000 {
            let _ = member.tick([5, 7], 0);
        }
    });
    let mut status = 0;
    // SAFETY: the pointer is to a local variable.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        file.set_len(0).unwrap();
        file.write_all_at(&whole, 0).unwrap();
    }
    assert_eq!(status, 0, "the child's status");
}

/// A tick may run between a call of the program and its look at `errno`.
#[test]
fn a_tick_that_fails_leaves_errno_as_it_is() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let mut member = joined(&path).unwrap();
    let file = ClassFile::open(&path).unwrap();
    let copy = file.read().unwrap();
    fs::File::options().write(true).open(folder.file()).unwrap().set_len(0).unwrap();
    reap(in_fork(|| {
        let leaves_errno = |failure: &mut dyn FnMut() -> Option<ClassError>| {
            // SAFETY: `errno` is this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOTTY };
            let failure = failure();
            // SAFETY: as above.
            let errno = unsafe { *libc::__errno_location() };
            assert_eq!((failure, errno), (Some(ClassError::Damaged), libc::ENOTTY));
        };
        leaves_errno(&mut || member.tick([5, 7], 0).err());
        // Here the kernel finds that the file is short: a tick asks for the length before.
        leaves_errno(&mut || file.write(&copy.classes[0]).err());
    }));
}

/// The kernel finds no memory by the number of such a process.
#[test]
fn a_member_ticks_after_its_first_thread_has_ended() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    // It stays a member while the child ticks.
    let member = Box::leak(Box::new(joined(&path).unwrap()));
    reap(in_fork(|| {
        thread::spawn(move || {
            let has_ended = || fs::read_to_string("/proc/self/stat").unwrap().contains(") Z ");
            while !has_ended() {
                thread::yield_now();
            }
            // SAFETY: the child ends without destructors.
            unsafe { libc::_exit(member.tick([5, 7], 0).is_err().into()) };
        });
        // SAFETY: it ends this thread alone, whose memory stays.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }));
}

/// A program may close each descriptor at any time, also one of a file that a member opens again and again.
#[test]
fn a_process_waits_for_its_class_without_a_descriptor() {
    let folder = Folder::new();
    let path = class(&folder, [1 << 20, NONE]);
    let before = getrlimit(Resource::Nofile);
    let allow_descriptors = |current| {
        setrlimit(Resource::Nofile, Rlimit { current, maximum: before.maximum }).unwrap();
    };
    reap(in_fork(|| {
        let mut member = Membership::new(path, name("silver"));
        assert_eq!(member.join(), Err(ClassError::NoClass));
        allow_descriptors(Some(0));
        assert_eq!(member.join(), Err(ClassError::NoClass));
        allow_descriptors(before.current);
        Locked::open(&path).unwrap().set(&name("silver"), None, [None, None]).unwrap();
        allow_descriptors(Some(0));
        member.join().unwrap();
        member.tick([0, 0], 0).unwrap();
    }));
}
