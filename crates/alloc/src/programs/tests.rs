use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::string::{String, ToString};
use std::{format, fs, vec};

use super::*;

/// A program of one line of C, linked as the flags say; nothing without a compiler.
fn compiled(folder: &Path, source: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let (input, output) = (folder.join("program.c"), folder.join("program"));
    fs::write(&input, source).unwrap();
    let compiler = Command::new("cc").args(flags).arg("-o").arg(&output).arg(&input).status();
    if !compiler.is_ok_and(|status| status.success()) {
        ziptier_testing::not_run("a C compiler", "install gcc and libc6-dev");
        return None;
    }
    Some(output)
}

fn linkage(path: &Path) -> Linkage {
    Linkage::read(&mut File::open(path).unwrap()).unwrap()
}

const PLAIN: &str = "#include <stdlib.h>\nint main(void) { return malloc(1) == 0; }\n";

#[test]
fn executables_tell_how_they_come_to_their_allocator() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), PLAIN, &[]) else { return };
    assert_eq!(linkage(&program), Linkage::Dynamic);
    let program = compiled(folder.path(), PLAIN, &["-static"]).unwrap();
    assert_eq!(linkage(&program), Linkage::Static);
    let own =
        "static char heap[9]; void *malloc(unsigned long n) { return heap; }\nint main(void) { return 0; }\n";
    let program = compiled(folder.path(), own, &[]).unwrap();
    assert_eq!(linkage(&program), Linkage::OwnAllocator("malloc".into()));
    let prefixed = "void *je_malloc(unsigned long n) { return 0; }\nint main(void) { return 0; }\n";
    let program = compiled(folder.path(), prefixed, &[]).unwrap();
    assert_eq!(linkage(&program), Linkage::OwnAllocator("je_malloc".into()));
    let stripped = "#include <stdio.h>\nint main(void) { return puts(\"<jemalloc>: out of memory\") < 0; }\n";
    let program = compiled(folder.path(), stripped, &["-s"]).unwrap();
    assert_eq!(linkage(&program), Linkage::OwnAllocator("jemalloc".into()));
}

#[test]
fn damaged_executables_are_errors() {
    let whole = fs::read("/proc/self/exe").unwrap();
    let read = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        Linkage::read(&mut file)
    };
    assert!(read(b"").is_err());
    assert!(read(b"#!/bin/sh\n").is_err());
    assert!(read(&whole[..64]).is_err());
    let mut other = whole[..64].to_vec();
    other[4] = 1;
    assert_eq!(read(&other).unwrap(), Linkage::OtherMachine);
    // Rows of no bytes.
    for at in [54, 58] {
        let mut head = whole.clone();
        head[at..at + 2].fill(0);
        assert!(read(&head).is_err(), "{at}");
    }
    // Wherever the tables are said to lie, nothing panics.
    let mut random = fastrand(7);
    for _ in 0..300 {
        let mut head = whole[..4096.min(whole.len())].to_vec();
        for _ in 0..4 {
            let at = 32 + random() as usize % 32;
            head[at] = random() as u8;
        }
        let _ = read(&head);
    }
}

fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        state >> 33
    }
}

fn sentence(pid: u32) -> String {
    Program::of(pid).unwrap_err().to_string()
}

#[test]
fn a_process_that_cannot_be_shown_has_its_sentence() {
    assert_eq!(sentence(u32::MAX), "process 4294967295: there is no such process");
    let mut sleep = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = sleep.id();
    // Until the child has become that program.
    ziptier_testing::until("the program runs", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n"
    });
    let expected =
        format!("process {pid} (sleep) runs without the library: start it again with LD_PRELOAD set to ");
    let said = sentence(pid);
    sleep.kill().unwrap();
    assert!(said.starts_with(&expected), "{said}");
    ziptier_testing::until("the program has ended", || fs::read_link(format!("/proc/{pid}/exe")).is_err());
    assert_eq!(
        sentence(pid),
        format!("process {pid} (sleep) runs no program: it is a thread of the kernel, or has ended")
    );
    sleep.wait().unwrap();
    assert_eq!(sentence(pid), format!("process {pid}: there is no such process"));
}

#[test]
fn a_library_that_the_loader_refused_is_told() {
    let mut command = Command::new("sleep");
    command.arg("100").env("LD_PRELOAD", "/none/libziptier_alloc.so").stderr(Stdio::null());
    let mut sleep = command.spawn().unwrap();
    let pid = sleep.id();
    // The kernel gives a program its name before its environment. The environment is looked at last: until the name is
    // there, it is that of this program.
    ziptier_testing::until("the program runs", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n"
            && !fs::read(format!("/proc/{pid}/environ")).unwrap().is_empty()
    });
    let said = sentence(pid);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(said.contains("has LD_PRELOAD set to the library, and the loader did not load it"), "{said}");
}

#[test]
fn a_static_program_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <unistd.h>\nint main(void) { return sleep(100); }\n";
    let Some(program) = compiled(folder.path(), source, &["-static"]) else { return };
    let mut child = Command::new(program).spawn().unwrap();
    let pid = child.id();
    ziptier_testing::until("the program runs", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "program\n"
    });
    let said = sentence(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        said.ends_with(
            "cannot be served: the executable is linked statically, so no library can be loaded before it"
        ),
        "{said}"
    );
}

/// A child that a bare system call made has its parent's page, too.
#[test]
fn the_page_of_a_process_is_its_own_one() {
    let _pages = [1, std::process::id()].map(|pid| {
        let page = SharedPage::create().unwrap();
        page.publish(pid, "1.2.3", &Configuration::DEFAULT);
        page
    });
    assert_eq!(Program::of(std::process::id()).unwrap().pid, std::process::id());
}

#[test]
fn each_reason_has_its_sentence() {
    let say = |reason| Obstacle { pid: 7, name: "redis-server".into(), reason }.to_string();
    let sentences: Vec<String> = vec![
        say(Reason::NoPermission),
        say(Reason::FileClosed),
        say(Reason::PageOfParent(3)),
        say(Reason::Page(AttachError::Version { found: 2 })),
        say(Reason::CannotPreload(Linkage::OwnAllocator("je_malloc".into()))),
    ];
    let expected = [
        "process 7 (redis-server) belongs to another user: run this command as that user, or as root",
        "process 7 (redis-server) runs with the library and has closed the file by which the command finds its page, \
         or was forked and has allocated too little since: run this command as root",
        "process 7 (redis-server) was forked and shares the page of process 3 until it has allocated some memory: ask \
         for that process",
        "process 7 (redis-server) cannot be shown: its library has version 2 of the shared page, and this command \
         version 1; use the command of the same release as the library, or start the program again with the library \
         of this one",
        "process 7 (redis-server) cannot be served: the executable has an allocator of its own (je_malloc), which a \
         preloaded library does not replace; use a build that takes malloc from a shared library (for Redis and \
         Valkey: that of Debian, or MALLOC=libc)",
    ];
    assert_eq!(sentences, expected);
}
