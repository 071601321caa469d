//! If the plugin cannot work, it says so in one sentence, and leaves the database unchanged.
//!
//! The failures to guard against: a plugin crashes the process of another RocksDB, whose classes have another layout.
//! Files are rewritten without settings that only their application knows. A device that went away takes data along.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

use crate::support::{
    compiled, compiled_alone, complaint, plugin, printed, rocksdb, stock, with_plugin, ziptier,
};

const PRIVATE: &str = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";

fn in_folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The program without RocksDB.
fn loader(library: &Path, rocksdb: &[&Path]) -> Command {
    let mut command = Command::new(compiled_alone("loader.cc", &["-ldl"]));
    command.arg(library).args(rocksdb);
    command
}

/// A RocksDB of another version, as far as the loader looks.
fn other_version(name: &str) -> PathBuf {
    let made = compiled_alone("other_version.cc", &["-shared", "-fPIC"]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("other-version");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::copy(made, &path).unwrap();
    path
}

/// Checks the answers of each function of the loader: the same sentence, cut to the given room, and no counters.
fn is_told(answers: &str, sentence: &str) {
    let start = &sentence[..7];
    let expected = format!("1 {sentence}\n{start}\n1 {sentence}\n1 {sentence}\n0\nprivate\n");
    assert_eq!(answers, expected);
}

#[test]
fn another_version_is_named() {
    let sentence =
        "the plugin was made for RocksDB 11.8.1, and this process has 9.2.1; nothing was registered";
    // Loaded privately, as Java does, under a name of its own.
    let mut command = loader(&plugin(), &[&other_version("librocksdbjni123.so")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    is_told(&String::from_utf8(output.stdout).unwrap(), sentence);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("ziptier: {sentence}\n"));
    // A full disk behind stderr is no reason to end.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.stderr(full).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    is_told(&String::from_utf8(output.stdout).unwrap(), sentence);
}

/// A path may have any bytes, and the plugin lies beside the object that is loaded.
#[test]
fn a_folder_whose_name_is_no_text_has_the_plugin() {
    let (folder, dir) = (in_folder(), in_folder());
    let named = folder.path().join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&named).unwrap();
    for file in ["libziptier_rocksdb.so", "libziptier_rocksdb_plugin.so"] {
        symlink(plugin().with_file_name(file), named.join(file)).unwrap();
    }
    let mut program = Command::new(compiled("database.cc"));
    program.args(["fill", text(dir.path()), PRIVATE, "100"]);
    printed(program.env("LD_PRELOAD", named.join("libziptier_rocksdb.so")).output().unwrap());
}

/// As in a JVM with two applications: were both made visible, calls of one would end in the other.
#[test]
fn two_private_copies_stay_private() {
    let (other, right) = (other_version("librocksdbjni456.so"), rocksdb().join("librocksdbjni.so"));
    for copies in [[&*other, &*right], [&right, &other]] {
        let output = loader(&plugin(), &copies).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let version = |path: &Path| if path == right { "11.8.1" } else { "9.2.1" };
        let found = copies.map(|path| format!("{} in {}", version(path), path.display())).join(", ");
        is_told(
            &String::from_utf8(output.stdout).unwrap(),
            &format!(
                "this process has 2 copies of RocksDB ({found}), which the plugin cannot tell apart; nothing was \
                 registered; load ziptier before the second one"
            ),
        );
    }
}

#[test]
fn a_process_without_rocksdb_is_left_alone() {
    let output = loader(&plugin(), &[]).output().unwrap();
    let sentence = "looked for RocksDB 11.8.1 in this process, found none; load it first (in Java: \
                    RocksDB.loadLibrary())";
    is_told(&printed(output), sentence);
    // A shell on the way to a tool.
    let shell = Command::new("sh").args(["-c", "echo well"]).env("LD_PRELOAD", plugin()).output().unwrap();
    assert_eq!(printed(shell), "well\n");
}

#[test]
fn a_missing_plugin_is_named_and_the_database_works() {
    let (folder, dir) = (in_folder(), in_folder());
    let alone = folder.path().join("libziptier_rocksdb.so");
    fs::copy(plugin(), &alone).unwrap();
    let arguments = |command, options| [command, text(dir.path()), options, "3000"];
    let run = |arguments: &[&str]| {
        Command::new(compiled("database.cc")).args(arguments).env("LD_PRELOAD", &alone).output().unwrap()
    };
    let output = run(&arguments("fill", "compression=kZSTD"));
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("ziptier: cannot load ") && told.lines().count() == 1, "{told}");
    assert!(told.contains("libziptier_rocksdb_plugin.so"), "{told}");
    printed(stock(&compiled("database.cc"), &arguments("read", "")));
    // Asked for the manager, RocksDB does not know it.
    let refused = complaint(run(&arguments("fill", PRIVATE)));
    assert!(refused.contains("ziptier"), "{refused}");
    printed(stock(&compiled("database.cc"), &arguments("read", "")));
}

#[test]
fn what_still_runs_while_the_process_ends_finds_its_options() {
    printed(with_plugin(&compiled("late.cc"), &[text(in_folder().path())]));
}

fn tables(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut tables: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "sst")).collect();
    tables.sort();
    tables.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_private_database_survives_those_who_cannot_read_it() {
    let dir = in_folder();
    let arguments = |command, options| [command, text(dir.path()), options, "20000"];
    printed(with_plugin(&compiled("database.cc"), &arguments("fill", PRIVATE)));
    let before = tables(dir.path());
    for (command, options) in
        [("read", ""), ("fill", "compression=kZSTD"), ("reopen", "-"), ("read", PRIVATE)]
    {
        let complaint = complaint(stock(&compiled("database.cc"), &arguments(command, options)));
        let is_clear =
            complaint.contains("Could not load CompressionManager") || complaint.contains("ziptier");
        assert!(is_clear && complaint.lines().count() == 1, "{command}: {complaint}");
    }
    assert!(tables(dir.path()) == before && !before.is_empty());
    printed(with_plugin(&compiled("database.cc"), &arguments("read", PRIVATE)));
}

#[test]
fn a_database_with_classes_of_its_application_leaves_in_its_process_alone() {
    let application = |command: &str, dir: &TempDir, kind: &str| {
        with_plugin(&compiled("application.cc"), &[command, text(dir.path()), kind])
    };
    for (kind, class) in [
        ("merge", "application.Joining"),
        ("filter", "application.KeepingAll"),
        ("factory", "application.KeepingAllFactory"),
    ] {
        let dir = in_folder();
        printed(application("fill", &dir, kind));
        let before = tables(dir.path());
        let refused = ziptier().args(["rocksdb", "migrate-off"]).arg(dir.path()).output().unwrap();
        let refused = complaint(refused);
        assert!(refused.contains(class), "{kind}: {refused}");
        assert!(tables(dir.path()) == before && !before.is_empty(), "{kind}");
        printed(application("read", &dir, kind));
        if kind == "merge" {
            printed(application("leave", &dir, kind));
            printed(stock(&compiled("application.cc"), &["read-stock", text(dir.path()), kind]));
        }
    }
}

/// The column family would have the files of that manager, and no manager that reads them.
#[test]
fn a_compression_manager_of_the_applications_stays() {
    let dir = in_folder();
    let application =
        |command: &str| with_plugin(&compiled("application.cc"), &[command, text(dir.path()), "foreign"]);
    let managers = || {
        let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
        let newest = files.filter(|file| text(file).contains("/OPTIONS-")).max().unwrap();
        let options = fs::read_to_string(newest).unwrap();
        ["application.Foreign", "id=ziptier"].map(|name| options.contains(name))
    };
    printed(application("fill"));
    assert_eq!(managers(), [true, true]);
    assert_eq!(printed(application("leave")), "");
    assert_eq!(managers(), [true, false]);
    let told = printed(application("leave"));
    assert!(told.starts_with("nothing was changed: "), "{told}");
}

/// An exception through the frames of Rust would end the process.
#[test]
fn a_class_of_the_application_that_throws_is_told() {
    let dir = in_folder();
    let application =
        |command: &str| with_plugin(&compiled("application.cc"), &[command, text(dir.path()), "merge"]);
    // Recovery writes the log's records to a file, and merges them for that.
    printed(application("log"));
    let told = complaint(application("leave-throwing"));
    assert_eq!(told, "leave: a class of the application threw: cannot merge\n");
    printed(application("read-log"));
}

#[test]
fn a_device_that_is_busy_or_lost_costs_no_data() {
    for path in ["auto", "hardware"] {
        for (fault, counter) in [
            ("full_one_in=1", "queue_full_retries"),
            ("full_one_in=2", "queue_full_retries"),
            ("lost_after=400", "faults"),
        ] {
            let dir = in_folder();
            let options = format!(
                "compression_manager={{id=ziptier;format=deflate;path={path};model=timing=off,{fault}}};\
                 compression=kZlibCompression;compression_opts={{parallel_threads=2}}"
            );
            let arguments = |command, options| [command, text(dir.path()), options, "10000"];
            let counters = printed(with_plugin(&compiled("database.cc"), &arguments("work", &options)));
            let figure = |name: &str| -> u64 {
                let of_device =
                    counters.lines().find(|line| line.starts_with("deflate by modelled")).unwrap();
                let value = of_device.split([' ', '=']).skip_while(|word| *word != name).nth(1);
                value.unwrap_or_else(|| panic!("no {name} in {counters}")).parse().unwrap()
            };
            assert!(figure(counter) > 100, "{path} {fault}: {counters}");
            assert_eq!(figure("fallbacks") > 100, path == "auto" && fault != "full_one_in=2", "{counters}");
            printed(stock(&compiled("database.cc"), &arguments("read", "")));
        }
    }
}
