//! "Why is the hardware not used?" is what users of such devices ask most. Here are whole screens of `ziptier doctor`
//! on recorded machines, from one that has nothing to one where all is well. `ZIPTIER_WRITE_SCREENS=1` writes them
//! anew, for a human to read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A machine of the fourth generation Xeon, beside what the trees of the driver's tests hold.
const CPUINFO: &str = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8490H\nflags\t\t: fpu avx2 \
                       avx512f avx512bw avx512_vbmi waitpkg movdiri movdir64b enqcmd\n\nprocessor\t: 1\n";
const PLAIN_CPUINFO: &str = "processor\t: 0\nmodel name\t: Some Processor\nflags\t\t: fpu avx2 hypervisor\n";

/// Lays out the tree of that name from the driver's tests.
fn tree(name: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let listing = format!("{}/../accel/tests/trees/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    for line in fs::read_to_string(listing).unwrap().lines() {
        if let Some((path, content)) = line.split_once(": ") {
            write(root.path(), path, &format!("{content}\n"));
        } else if let Some((path, target)) = line.split_once(" -> ") {
            symlink(target, made(root.path(), path)).unwrap();
        } else {
            let (path, mode) = line.split_once(' ').unwrap();
            write(root.path(), path, "");
            let mode = fs::Permissions::from_mode(u32::from_str_radix(mode, 8).unwrap());
            fs::set_permissions(root.path().join(path), mode).unwrap();
        }
    }
    write(root.path(), "proc/sys/kernel/osrelease", "6.8.0-51-generic\n");
    write(root.path(), "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  263951236 kB\n");
    write(root.path(), "usr/lib/x86_64-linux-gnu/libz.so.1", "");
    root
}

/// The same with the processor and the boot options of a machine that is meant to have the device.
fn xeon(name: &str) -> tempfile::TempDir {
    let root = tree(name);
    write(root.path(), "proc/cpuinfo", CPUINFO);
    write(root.path(), "proc/cmdline", "quiet intel_iommu=on,sm_on secret=x\n");
    for number in 0..4 {
        write(root.path(), &format!("sys/class/iommu/dmar{number}/intel-iommu/version"), "7:0\n");
    }
    root
}

fn made(root: &Path, path: &str) -> PathBuf {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

fn write(root: &Path, path: &str, content: &str) {
    fs::write(made(root, path), content).unwrap();
}

fn doctor(root: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
    command.arg("doctor").arg("--root").arg(root).args(more).output().unwrap()
}

fn screen(root: &Path) -> String {
    let output = doctor(root, &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The words of a screen, whose lines end where a terminal does.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn compare(name: &str, root: &Path) {
    let shown = screen(root);
    let (findings, remedies) = shown.split_once("\nWhat to do\n").unwrap();
    // Commands are lines to be given as they are.
    let mut text = findings.lines().chain(remedies.lines().filter(|line| !line.starts_with("       ")));
    assert!(text.all(|line| line.chars().count() <= 80), "{name}: {shown}");
    let path = format!("{}/tests/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("ZIPTIER_WRITE_SCREENS").is_some() {
        fs::write(path, &shown).unwrap();
        return;
    }
    assert_eq!(shown, fs::read_to_string(path).unwrap(), "{name}");
}

#[test]
fn nothing_there() {
    let root = tree("none");
    write(root.path(), "proc/cpuinfo", PLAIN_CPUINFO);
    compare("nothing_there", root.path());
}

#[test]
fn driver_missing() {
    let root = tree("driver_missing");
    write(root.path(), "proc/cpuinfo", CPUINFO);
    compare("driver_missing", root.path());
}

#[test]
fn queue_disabled() {
    compare("queue_disabled", xeon("queue_disabled").path());
    compare("device_disabled", xeon("device_disabled").path());
}

#[test]
fn queue_disabled_with_accel_config() {
    let root = xeon("device_disabled");
    write(root.path(), "usr/bin/accel-config", "");
    compare("device_disabled_accel_config", root.path());
}

#[test]
fn wrong_type_and_no_engine() {
    compare("wrong_type", xeon("wrong_type").path());
    compare("no_engine", xeon("no_engine").path());
}

#[test]
fn wrong_mode_for_libqpl() {
    let root = xeon("dedicated");
    write(root.path(), "usr/lib/x86_64-linux-gnu/libqpl.so.1", "");
    compare("dedicated", root.path());
}

#[test]
fn no_permission_and_no_node() {
    compare("no_permission", xeon("no_permission").path());
    compare("no_node", xeon("no_node").path());
}

#[test]
fn no_shared_addresses() {
    let root = tree("queue_disabled");
    write(root.path(), "proc/cpuinfo", CPUINFO);
    write(root.path(), "sys/bus/dsa/devices/iax1/pasid_enabled", "0\n");
    compare("no_shared_addresses", root.path());
}

#[test]
fn all_well() {
    let root = xeon("two_sockets");
    write(root.path(), "proc/sys/kernel/osrelease", "6.12.8\n");
    write(root.path(), "proc/self/status", "Name:\tziptier\nCapEff:\t0000000000000000\n");
    let folder = "usr/lib/x86_64-linux-gnu";
    write(root.path(), &format!("{folder}/libqpl.so.1.9.0"), "");
    symlink("libqpl.so.1.9.0", made(root.path(), &format!("{folder}/libqpl.so.1"))).unwrap();
    write(root.path(), &format!("{folder}/libaccel-config.so.1"), "");
    write(root.path(), "proc/self/maps", "7f30-7f40 r-xp 0 08:01 43  /usr/local/lib/libzlib-accel.so\n");
    write(root.path(), "etc/zlib-accel.conf", "# by hand\nuse_iaa_compress = 1\nuse_iaa_uncompress = 1\n");
    write(root.path(), "sys/devices/system/node/node2/cpulist", "\n");
    write(root.path(), "sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:  134217728 kB\n");
    write(root.path(), "proc/mounts", "/dev/pmem0 /mnt/pmem0 xfs rw,relatime,dax=always 0 0\n");
    compare("all_well", root.path());
}

#[test]
fn a_queue_that_is_not_used_hinders_nobody() {
    compare("shared", xeon("shared").path());
}

#[test]
fn libqpl_finds_no_device_without_its_library() {
    let root = xeon("shared");
    write(root.path(), "usr/lib/x86_64-linux-gnu/libqpl.so.1", "");
    let shown = screen(root.path());
    let expected = "CPU: libqpl finds devices through libaccel-config, which is not installed";
    assert!(words(&shown).contains(expected), "{shown}");
    write(root.path(), "usr/lib64/libaccel-config.so.1", "");
    let shown = screen(root.path());
    assert!(!words(&shown).contains("libqpl finds"), "{shown}");
}

#[test]
fn machines_read_the_same_as_json() {
    let root = xeon("no_permission");
    let output = doctor(root.path(), &["--json"]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let screen = words(&screen(root.path()));
    assert!(screen.starts_with(&words(report["headline"].as_str().unwrap())));
    for section in report["sections"].as_array().unwrap() {
        assert!(screen.contains(section["title"].as_str().unwrap()));
        for finding in section["findings"].as_array().unwrap() {
            assert!(screen.contains(&words(finding["text"].as_str().unwrap())));
            assert!(["good", "bad", "note"].contains(&finding["mark"].as_str().unwrap()));
        }
    }
    let commands = &report["remedies"][0]["commands"];
    assert_eq!(commands[0], "sudo chown \"$USER\" /dev/iax/wq1.0");
}

/// A recorded tree that people send must give the same report, and must hold no other files.
fn records(root: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("recorded");
    let recorded = doctor(root, &["--record", target.to_str().unwrap()]);
    assert!(recorded.status.success(), "{recorded:?}");
    let said = String::from_utf8(recorded.stdout).unwrap();
    assert_eq!(said, format!("recorded; read it by: ziptier doctor --root {}\n", target.display()));
    assert_eq!(screen(&target), screen(root));
    let grep = Command::new("grep").args(["-r", "secret"]).arg(&target).output().unwrap();
    assert_eq!(String::from_utf8(grep.stdout).unwrap(), "");
    assert!(!target.join("home").exists());
    // A folder that is there already may hold another machine.
    let again = doctor(root, &["--record", target.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("cannot record in") && said.contains("name a folder to be made"), "{said}");
    let both = doctor(root, &["--json", "--record", folder.path().join("other").to_str().unwrap()]);
    assert_eq!(both.status.code(), Some(2));
    assert!(!folder.path().join("other").exists());
}

#[test]
fn what_was_recorded_reads_the_same() {
    for name in ["driver_missing", "device_disabled", "no_permission", "shared", "two_sockets"] {
        let root = xeon(name);
        write(root.path(), "proc/self/status", "Name:\tsecret\nCapEff:\t0000000000020000\n");
        write(
            root.path(),
            "proc/self/maps",
            "7f-7f r-xp 0 08:01 43  /usr/lib/libzlib-accel.so\n55-55 r-xp /secret\n",
        );
        write(root.path(), "etc/zlib-accel.conf", "# secret\nuse_iaa_compress = 1\n");
        write(root.path(), "usr/lib/libqpl.so.1.9.0", "secret");
        symlink("libqpl.so.1.9.0", root.path().join("usr/lib/libqpl.so.1")).unwrap();
        write(root.path(), "usr/bin/accel-config", "secret");
        write(
            root.path(),
            "proc/mounts",
            "//secret/share /mnt cifs rw 0 0\n/dev/pmem0 /mnt/a ext4 rw,dax 0 0\n",
        );
        write(root.path(), "sys/block/pmem1/size", "2097152\n");
        write(root.path(), "sys/block/sda/serial", "secret\n");
        write(root.path(), "sys/bus/dax/devices/dax0.0/size", "1073741824\n");
        write(root.path(), "sys/bus/dax/drivers/kmem/module", "");
        symlink("../../drivers/kmem", root.path().join("sys/bus/dax/devices/dax0.0/driver")).unwrap();
        write(root.path(), "home/user/.ssh/id", "secret\n");
        records(root.path());
    }
    let this_machine = tempfile::tempdir().unwrap();
    let target = this_machine.path().join("recorded");
    let recorded = doctor(Path::new("/"), &["--record", target.to_str().unwrap()]);
    assert!(recorded.status.success() && screen(&target).contains("\nProcessor\n"), "{recorded:?}");
}

#[test]
fn this_machine_can_be_looked_at_and_a_wrong_root_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_ziptier")).arg("doctor").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let output = doctor(Path::new("/nowhere"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "error: /nowhere is no folder; give the root of a recorded tree\n");
    let other = tempfile::tempdir().unwrap();
    let output = doctor(other.path(), &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
    assert!(said.ends_with(" has neither proc nor sys; give the root of a recorded tree\n"), "{said}");
}

#[test]
fn odd_files_are_named_and_never_reach_a_command() {
    let root = xeon("queue_disabled");
    write(root.path(), "sys/bus/dsa/devices/wq1.0/state", "enabled\n");
    write(root.path(), "sys/bus/dsa/devices/wq1.0/type", "kernel\n");
    write(root.path(), "sys/bus/dsa/devices/wq1.0/driver_name", "x; reboot\n");
    write(root.path(), "sys/bus/dsa/devices/iax1/version", "new\n");
    let shown = screen(root.path());
    assert!(words(&shown).contains("sys/bus/dsa/devices/iax1/version is not a number: \"new\""), "{shown}");
    let commands = shown.split("What to do").nth(1).unwrap();
    assert!(!commands.contains("reboot"), "{shown}");
}

#[test]
fn no_file_of_a_tree_can_break_it() {
    let listing = format!("{}/../accel/tests/trees/two_sockets.txt", env!("CARGO_MANIFEST_DIR"));
    let listing = fs::read_to_string(listing).unwrap();
    let files: Vec<&str> = listing.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    for content in ["", "4294967295", "-1", "99999999999999999999", "\u{1b}[2J; reboot", "0x"] {
        let root = xeon("two_sockets");
        for name in &files {
            let path = root.path().join(name);
            let before = fs::read(&path).unwrap();
            fs::write(&path, content).unwrap();
            let shown = screen(root.path());
            let commands = shown.split("What to do").nth(1).unwrap();
            assert!(!commands.contains("reboot") && !shown.contains('\u{1b}'), "{name}: {shown}");
            // Some stay as they are, for what several do together.
            if !name.ends_with("size") && !name.ends_with("wq1.0/state") {
                fs::write(&path, before).unwrap();
            }
        }
    }
}
