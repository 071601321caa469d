//! Databases whose blocks ziptier packs lose nothing, and every RocksDB that is promised to read them can do so.
//!
//! The failures to guard against: a process without the plugin refuses or misreads a file that claims to be readable by
//! any RocksDB. Or such a process takes a private file for another format.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{compiled, complaint, plugin, printed, stock, with_plugin, ziptier};

const RECORDS: &str = "15000";
/// Of two memtables, which a compaction joins.
const FEW_RECORDS: &str = "8000";

/// Runs a command of the program with the plugin or without.
fn run(
    runner: fn(&Path, &[&str]) -> std::process::Output,
    command: &str,
    dir: &TempDir,
    options: &str,
    more: &[&str],
) -> std::process::Output {
    run_of(RECORDS, runner, command, dir, options, more)
}

/// The same with so many records.
fn run_of(
    records: &str,
    runner: fn(&Path, &[&str]) -> std::process::Output,
    command: &str,
    dir: &TempDir,
    options: &str,
    more: &[&str],
) -> std::process::Output {
    let mut arguments = vec![command, dir.path().to_str().unwrap(), options, records];
    arguments.extend_from_slice(more);
    runner(&compiled("database.cc"), &arguments)
}

fn in_folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn standard_formats_are_read_by_a_stock_rocksdb() {
    let settings = [
        ("{id=ziptier}", "kZlibCompression", "BuiltinV2;02;"),
        ("{id=ziptier;format=deflate;huffman=fixed;verify=true}", "kZlibCompression", "BuiltinV2;02;"),
        ("{id=ziptier;format=deflate;force=true;level=1}", "kZSTD", "BuiltinV2;02;"),
        ("{id=ziptier;format=lz4;parallel_threads=3}", "kLZ4Compression", "BuiltinV2;04;"),
        ("{id=ziptier}", "kZSTD", "BuiltinV2;07;"),
    ];
    for (number, (manager, compression, name)) in settings.into_iter().enumerate() {
        // Of blocks of 16 KiB each stream of DEFLATE with codes of its own has entry points behind it; of 64 KiB none
        // has. The others have one of the two sizes.
        let sizes = [16_384, 65_536].into_iter().enumerate();
        let sizes = sizes.filter(|(size, _)| number == 0 || (number + size).is_multiple_of(2));
        let sizes = sizes.map(|(_, bytes)| format!(";block_based_table_factory={{block_size={bytes}}}"));
        for block in std::iter::once(String::new()).chain(sizes) {
            let dir = in_folder();
            let options = format!("compression_manager={manager};compression={compression}{block}");
            let files = printed(run_of(FEW_RECORDS, with_plugin, "fill", &dir, &options, &[]));
            assert!(
                files.contains(name) && files.lines().all(|file| file.starts_with(name)),
                "{options}: {files}"
            );
            printed(run_of(FEW_RECORDS, with_plugin, "read", &dir, &options, &[]));
            printed(run_of(FEW_RECORDS, stock, "read", &dir, "", &[]));
        }
    }
}

#[test]
fn what_rocksdb_packed_itself_is_read_with_dictionaries_of_its_own_and_without() {
    for (format, compression) in [("deflate", "kZlibCompression"), ("lz4", "kLZ4Compression")] {
        for dictionary in ["", ";compression_opts={max_dict_bytes=16384}"] {
            let dir = in_folder();
            printed(run(stock, "fill", &dir, &format!("compression={compression}{dictionary}"), &[]));
            let manager = format!("compression_manager={{id=ziptier;format={format}}}");
            printed(run(with_plugin, "read", &dir, &manager, &[]));
        }
    }
}

#[test]
fn the_private_formats_are_read_with_the_plugin_and_refused_without() {
    let token = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";
    let canned = "compression_manager={id=ziptier;format=deflate;huffman=canned;verify=true}";
    for (options, types) in [
        (token.to_owned(), "80"),
        (format!("{token};compression_opts={{parallel_threads=4}}"), "80"),
        (
            format!(
                "{token};block_based_table_factory={{block_size=16384;verify_compression=true;checksum=kXXH3}}"
            ),
            "80",
        ),
        (format!("{token};compression_manager={{id=ziptier;format=token;verify=true;level=1}}"), "80"),
        (format!("{token};compression_per_level=kLZ4Compression:kCustomCompression80:kZSTD"), ""),
        (
            format!(
                "{token};bottommost_compression=kZSTD;bottommost_compression_opts={{max_dict_bytes=16384;enabled=true}}"
            ),
            "07",
        ),
        (format!("{canned};compression=kCustomCompression82"), "82"),
        (
            format!(
                "{canned};compression=kZlibCompression;compression_opts={{parallel_threads=3}};\
                     block_based_table_factory={{verify_compression=true}}"
            ),
            "82",
        ),
        (
            "compression_manager={id=ziptier;format=deflate;huffman=canned;level=1;force=true}".to_owned(),
            "82",
        ),
        (
            "compression_manager={id=ziptier;format=deflate;huffman=canned;path=hardware;model=devices=2};\
             compression=kCustomCompression82"
                .to_owned(),
            "82",
        ),
    ] {
        let dir = in_folder();
        let files = printed(run(with_plugin, "fill", &dir, &options, &[]));
        let is_private = |file: &str| file.starts_with("ZiptierV1;") && file.contains(types);
        assert!(files.lines().all(is_private), "{options}: {files}");
        // Its name in the files is enough to find the manager: no option is needed to read.
        printed(run(with_plugin, "read", &dir, "", &[]));
        let complaint = complaint(run(stock, "read", &dir, "", &[]));
        assert!(complaint.contains("Could not load CompressionManager: ZiptierV1"), "{complaint}");
    }
}

/// A plugin that does not know codes of tokens must refuse such files, and read those of other levels. So the files
/// have another name.
#[test]
fn files_of_dense_tokens_have_another_name() {
    let dir = in_folder();
    let files = printed(run(with_plugin, "fill", &dir, DENSE, &[]));
    assert!(files.lines().all(|file| file.starts_with("ZiptierV2;")), "{files}");
    let is_entropy_coded = |file: &str| file.contains("83") || file.contains("84");
    assert!(files.lines().any(is_entropy_coded), "no block is entropy-coded: {files}");
    // A compaction by the options of a reader would write files of other formats.
    let as_they_are = "disable_auto_compactions=true";
    printed(run(with_plugin, "read", &dir, as_they_are, &[]));
    let refused = complaint(run(stock, "read", &dir, as_they_are, &[]));
    assert!(refused.contains("Could not load CompressionManager: ZiptierV2"), "{refused}");
    // Both levels in one database, the one read by managers of the other.
    for (first, changes) in [(TOKEN, DENSE), (DENSE, TOKEN)] {
        let dir = in_folder();
        let options = format!("{first};{as_they_are}");
        // A level that is not named stays as it is.
        let changes = changes.replace("format=token}", "format=token;level=1}");
        let files = printed(run(with_plugin, "switch", &dir, &options, &[&changes]));
        assert!(files.contains("ZiptierV1;") && files.contains("ZiptierV2;"), "{files}");
        for manager in [TOKEN, DENSE, "compression=kZSTD"] {
            printed(run(with_plugin, "read", &dir, &format!("{manager};{as_they_are}"), &[]));
        }
    }
}

/// While a file is sampled, RocksDB keeps all of it in memory: one that an application writes is sampled only within a
/// bound.
#[test]
fn files_that_an_application_writes_are_sampled_within_a_bound() {
    for (bound, is_sampled) in [("", false), (";compression_opts={max_dict_buffer_bytes=4194304}", true)] {
        let dir = in_folder();
        let options = format!(
            "compression_manager={{id=ziptier;format=token}};compression=kCustomCompression80{bound}"
        );
        let file = printed(run(with_plugin, "load", &dir, &options, &[]));
        assert!(file.starts_with("ZiptierV1;") && file.contains("80") == is_sampled, "{options}: {file}");
    }
}

#[test]
fn options_are_written_down_and_found_again() {
    for (options, types) in [
        ("compression_manager={id=ziptier;format=token;verify=true};compression=kCustomCompression80", "80"),
        (
            "compression_manager={id=ziptier;format=deflate;huffman=canned;level=2};compression=kCustomCompression82",
            "82",
        ),
    ] {
        let dir = in_folder();
        printed(run(with_plugin, "fill", &dir, options, &[]));
        let files = printed(run(with_plugin, "reopen", &dir, "-", &[]));
        // A small file that its dictionary would not pay for has none.
        assert!(files.lines().all(|file| file.starts_with("ZiptierV1;")), "{files}");
        assert!(files.lines().any(|file| file.contains(types)), "{files}");
        let complaint = complaint(run(stock, "reopen", &dir, "-", &[]));
        assert!(complaint.contains("ziptier"), "{complaint}");
    }
}

#[test]
fn a_live_database_changes_its_compression() {
    let dir = in_folder();
    let changes = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";
    let files = printed(run(
        with_plugin,
        "switch",
        &dir,
        "compression=kZSTD;disable_auto_compactions=true",
        &[changes],
    ));
    assert!(files.contains("BuiltinV2;07;") && files.contains("ZiptierV1;"), "{files}");
    // And back: without a manager, once everything is compacted, no plugin is needed.
    printed(run(with_plugin, "fill", &dir, "compression_manager=nullptr;compression=kZSTD", &[]));
    printed(run(stock, "read", &dir, "", &[]));
}

#[test]
fn a_live_database_leaves_canned_codes_when_it_names_others() {
    let canned =
        "compression_manager={id=ziptier;format=deflate;huffman=canned};compression=kCustomCompression82";
    for (huffman, is_standard) in [("", false), (";huffman=dynamic", true)] {
        let changes = format!(
            "compression_manager={{id=ziptier;format=deflate{huffman}}};compression=kZlibCompression"
        );
        let dir = in_folder();
        let options = format!("{canned};disable_auto_compactions=true");
        let files = printed(run(with_plugin, "switch", &dir, &options, &[&changes]));
        assert_eq!(files.contains("BuiltinV2;02;"), is_standard, "{files}");
    }
}

#[test]
fn a_database_leaves_the_plugin() {
    let token = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";
    let canned =
        "compression_manager={id=ziptier;format=deflate;huffman=canned};compression=kCustomCompression82";
    leaves(token, "token");
    leaves(canned, "canned deflate");
    leaves(DENSE, "entropy-coded token");
}

fn leaves(private: &str, named: &str) {
    let dir = in_folder();
    printed(run(with_plugin, "fill", &dir, private, &[]));
    let folder = dir.path().to_str().unwrap();
    let ziptier = |arguments: &[&str]| ziptier().arg("rocksdb").args(arguments).arg(folder).output().unwrap();
    let before = String::from_utf8(ziptier(&["inspect"]).stdout).unwrap();
    assert!(before.contains("ziptier: ") && before.contains(named), "{before}");
    let refused = complaint(ziptier(&["migrate-off", "--compression", "kCustomCompression81"]));
    assert!(refused.contains("no compression of RocksDB's own"), "{refused}");
    let report = rewritten(migrate_off(&dir));
    let (was, after) = report.split_once("after\n").unwrap();
    assert_eq!(was, format!("before\n{before}"));
    // The savings equal the raw bytes less the bytes of the files, except for rounding.
    let mib: Vec<f64> = before.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [_, data, raw, _, saved] = mib[..] else { panic!("{before}") };
    assert!(saved > 0.5 && (raw - data - saved).abs() < 0.2, "{before}");
    assert!(after.contains(" zstd ") && !after.contains("ziptier"), "{after}");
    printed(run(stock, "read", &dir, "", &[]));
    // The options that were written down name no manager any more, either.
    printed(run(stock, "reopen", &dir, "-", &[]));
}

/// A database that RocksDB compressed itself comes to each format and goes back, with every record.
#[test]
fn a_database_takes_to_the_plugin() {
    for (format, named, needs_plugin) in
        [("token", "ziptier: token", true), ("canned", "canned deflate", true), ("deflate", " zlib ", false)]
    {
        let dir = in_folder();
        // A level that the application does not want compressed, which RocksDB leaves empty when all is compacted.
        let options = "compression=kZSTD;compression_per_level=kNoCompression:kZSTD:kZSTD";
        printed(run(stock, "fill", &dir, options, &[]));
        let migrate =
            |arguments: &[&str]| ziptier().arg("rocksdb").args(arguments).arg(dir.path()).output().unwrap();
        let report = rewritten(migrate(&["migrate-on", "--format", format]));
        let (before, after) = report.split_once("after\n").unwrap();
        let was = "default  zstd ";
        assert!(before.contains(was) && after.contains(named) && !after.contains(was), "{report}");
        let options = report.lines().last().unwrap().trim();
        // The options that were written down have what the application is to set, and the level as it was.
        let written = files(&dir, "OPTIONS-").pop().unwrap().1;
        let written = String::from_utf8(written).unwrap();
        let manager = options.split_once('{').unwrap().1.split_once('}').unwrap().0;
        assert!(manager.split(';').all(|option| written.contains(option)), "{manager}: {written}");
        assert!(written.contains("compression_per_level=kNoCompression:"), "{written}");
        printed(run(with_plugin, "read", &dir, options, &[]));
        match needs_plugin {
            true => drop(complaint(run(stock, "read", &dir, "", &[]))),
            false => drop(printed(run(stock, "read", &dir, "", &[]))),
        }
        let report = rewritten(migrate(&["migrate-off", "--compression", "lz4"]));
        assert!(!needs_plugin || report.contains("lz4"), "{report}");
        printed(run(stock, "read", &dir, "", &[]));
        // There is nothing to do a second time.
        let before = files(&dir, "");
        let unneeded = rewritten(migrate_off(&dir));
        assert!(unneeded.starts_with("nothing was changed: ") && unneeded.lines().count() == 1, "{unneeded}");
        assert!(files(&dir, "") == before);
    }
}

#[test]
fn a_database_that_no_compaction_rewrites_does_not_take_to_the_plugin() {
    let dir = in_folder();
    printed(run(stock, "fill", &dir, "compression=kZSTD;compaction_style=kCompactionStyleFIFO", &[]));
    let before = files(&dir, "");
    let refused =
        ziptier().args(["rocksdb", "migrate-on", "--format", "token"]).arg(dir.path()).output().unwrap();
    assert!(
        complaint(refused).contains("nothing was changed: the compaction style of column family default")
    );
    assert!(files(&dir, "") == before);
}

#[test]
fn every_column_family_is_listed_however_many_there_are() {
    let (dir, families) = (in_folder(), 400);
    let options = format!("{TOKEN};write_buffer_size=65536");
    let arguments = ["families", dir.path().to_str().unwrap(), &options, &families.to_string()];
    printed(with_plugin(&compiled("database.cc"), &arguments));
    let listed = printed(ziptier().args(["rocksdb", "inspect"]).arg(dir.path()).output().unwrap());
    // A line of titles, and lines that are all as long as they should be.
    assert_eq!(listed.lines().count(), 1 + families);
    assert!(listed.len() > 96 << 10 && listed.lines().skip(1).all(|line| line.contains("ziptier: ")));
}

/// What a command printed that says on stderr that it rewrites a database.
fn rewritten(output: std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn migrate_off(dir: &TempDir) -> std::process::Output {
    ziptier().args(["rocksdb", "migrate-off"]).arg(dir.path()).output().unwrap()
}

/// Files with this in their paths, and their bytes.
fn files(dir: &TempDir, part: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.to_str().unwrap().contains(part)).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

const TOKEN: &str = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";
const DENSE: &str =
    "compression_manager={id=ziptier;format=token;verify=true;level=2};compression=kCustomCompression80";

#[test]
fn a_database_that_must_not_exist_when_it_is_made_leaves_all_the_same() {
    let dir = in_folder();
    printed(run(with_plugin, "fill", &dir, &format!("{TOKEN};error_if_exists=true"), &[]));
    let migrated = migrate_off(&dir);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    printed(run(stock, "read", &dir, "", &[]));
}

#[test]
fn a_database_that_no_compaction_rewrites_is_refused_as_it_is() {
    let dir = in_folder();
    printed(run(with_plugin, "fill", &dir, &format!("{TOKEN};compaction_style=kCompactionStyleFIFO"), &[]));
    let before = (files(&dir, "/OPTIONS-"), files(&dir, ".sst"));
    let refused = complaint(migrate_off(&dir));
    assert!(refused.contains("nothing was changed: column family default has "), "{refused}");
    assert!((files(&dir, "/OPTIONS-"), files(&dir, ".sst")) == before);
    // The advice of the sentence helps.
    let universal = format!("{TOKEN};compaction_style=kCompactionStyleUniversal");
    printed(run(with_plugin, "read", &dir, &universal, &[]));
    assert!(migrate_off(&dir).status.success());
    printed(run(stock, "read", &dir, "", &[]));
    // Files that need no plugin may stay as they are.
    let dir = in_folder();
    let standard = "compression_manager=ziptier;compression=kLZ4Compression";
    printed(run(
        with_plugin,
        "fill",
        &dir,
        &format!("{standard};compaction_style=kCompactionStyleFIFO"),
        &[],
    ));
    assert!(migrate_off(&dir).status.success());
    printed(run(stock, "reopen", &dir, "-", &[]));
}

#[test]
fn a_database_that_is_open_is_not_rewritten() {
    let dir = in_folder();
    printed(run(with_plugin, "fill", &dir, TOKEN, &[]));
    let mut application = Command::new(compiled("database.cc"))
        .args(["hold", dir.path().to_str().unwrap(), TOKEN, RECORDS])
        .env("LD_PRELOAD", plugin())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(application.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "open\n");
    for migration in [&["migrate-off"][..], &["migrate-on", "--format", "canned"]] {
        let refused = complaint(ziptier().arg("rocksdb").args(migration).arg(dir.path()).output().unwrap());
        assert!(
            refused.contains("nothing was changed: ") && refused.contains("found it open already"),
            "{refused}"
        );
    }
    drop(application.stdin.take());
    assert!(application.wait().unwrap().success());
    rewritten(migrate_off(&dir));
    printed(run(stock, "read", &dir, "", &[]));
}

#[test]
fn a_migration_that_stops_says_how_the_database_is_left() {
    let dir = in_folder();
    printed(run(with_plugin, "fill", &dir, TOKEN, &[]));
    let (table, sound) = files(&dir, ".sst").remove(0);
    let mut damaged = sound.clone();
    damaged[sound.len() / 3] ^= 1;
    fs::write(&table, damaged).unwrap();
    let stopped = complaint(migrate_off(&dir));
    assert!(stopped.contains("Corruption") && stopped.contains("OPTIONS no longer name"), "{stopped}");
    assert!(stopped.contains("migrate off again when the cause is gone"), "{stopped}");
    fs::write(&table, sound).unwrap();
    let migrated = migrate_off(&dir);
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
    printed(run(stock, "read", &dir, "", &[]));
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let dir = in_folder();
    for (options, part) in [
        ("compression_manager={id=ziptier;format=brotli}", "no format `brotli`"),
        ("compression_manager={id=ziptier;format=token;path=hardware}", "which the CPU codes"),
        ("compression_manager={id=ziptier;format=token;level=12}", "level 12"),
        ("compression_manager={id=ziptier;huffman=canned}", "choose format deflate"),
        (
            "compression_manager={id=ziptier;format=deflate};compression=kCustomCompression82",
            "CompressionType other than built-in",
        ),
        ("compression_manager={id=ziptier;colour=blue}", "not recognized"),
    ] {
        let complaint = complaint(run(with_plugin, "fill", &dir, options, &[]));
        assert!(complaint.contains(part), "{options}: {complaint}");
    }
    // A type of the private format needs a manager that has it.
    let complaint = complaint(run(
        with_plugin,
        "fill",
        &dir,
        "compression_manager=ziptier;compression=kCustomCompression80",
        &[],
    ));
    assert!(!complaint.is_empty());
    assert!(fs::read_dir(dir.path()).unwrap().flatten().all(|file| !file.path().ends_with(".sst")));
}

/// While RocksDB samples a file it keeps all of the file in memory. Where there is one level, a compaction's file is
/// the whole database.
#[test]
fn a_compaction_of_everything_keeps_little_in_memory() {
    let mib = std::env::var("ZIPTIER_MIB").unwrap_or_else(|_| "24".to_owned());
    let universal = "compaction_style=kCompactionStyleUniversal;num_levels=1;disable_auto_compactions=true;\
                     level0_stop_writes_trigger=1000;level0_slowdown_writes_trigger=1000";
    for more in ["", ";compression_opts={max_dict_buffer_bytes=4194304}"] {
        let dir = in_folder();
        let options = format!("{TOKEN};{universal}{more}");
        let arguments = ["buffered", dir.path().to_str().unwrap(), &options, &mib];
        let kept = printed(with_plugin(&compiled("database.cc"), &arguments));
        let kept_bytes: u64 = kept.trim().parse().unwrap();
        // Buffers, samples, and what a dictionary is made with.
        assert!(kept_bytes < 16 << 20, "{kept_bytes} bytes of {mib} MiB{more}");
    }
}

#[test]
fn a_flipped_bit_in_a_file_crashes_nobody() {
    let dir = in_folder();
    // RocksDB's own checksums would find them all: what is asked here is what our decoders do without them.
    let options = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80;\
                   block_based_table_factory={checksum=kNoChecksum}";
    printed(run(with_plugin, "fill", &dir, options, &[]));
    let mut tables: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|file| file.path()).collect();
    tables.retain(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let table = &tables[0];
    let sound = fs::read(table).unwrap();
    let mut found = 0;
    for round in 0..12 {
        let mut damaged = sound.clone();
        // In the first half lie data blocks and nothing else.
        let at = sound.len() / 2 * round / 12 + 100;
        damaged[at] ^= 1 << (round % 8);
        fs::write(table, &damaged).unwrap();
        let output = run(with_plugin, "read", &dir, "", &[]);
        // The room of RocksDB's checksum behind each block is unused here, and all values were right then.
        if output.status.success() {
            continue;
        }
        // The damage must give an error of the decoder. Raw blocks and zstd's blocks have no check here, so they may
        // give a wrong key or value.
        assert!(!complaint(output).is_empty(), "byte {at}");
        found += 1;
    }
    assert!(found >= 8, "{found} of 12 flips were found");
}
