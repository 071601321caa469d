//! A block format that loses a byte, or takes damage for data, is worse than none. Real files, cut at every size that a
//! store meets, go through every format, mode and level. They do so without a dictionary, and with one that was stored
//! and loaded again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use ziptier_codec::block::{DeviceSource, Dictionary, Engine, Huffman, ModelOptions, Path, Setting, frame};
use ziptier_codec::conformance::{self, Damage};
use ziptier_codec::format::Format;

use crate::corpus::{File, Kind, files, files_of, is_tried, pieces};

/// Formats, modes and engines, each at a level that people use.
fn settings() -> Vec<(Setting, &'static str)> {
    let deflate = Setting::new(Format::Deflate);
    [
        (Setting::new(Format::Token), "cpu"),
        (Setting::new(Format::Lz4), "cpu"),
        (Setting::new(Format::Lz4).with_level(9), "cpu"),
        (Setting::new(Format::Zstd).with_level(-3), "cpu"),
        (Setting::new(Format::Zstd), "cpu"),
        (deflate.clone(), "software"),
        (deflate.clone(), "zlib"),
        (deflate.clone().with_huffman(Huffman::Fixed), "zlib"),
        (deflate.clone().with_huffman(Huffman::Fixed), "software"),
        (deflate.clone().with_huffman(Huffman::Canned), "software"),
        (deflate.clone().with_split(4), "software"),
        (deflate.clone().with_huffman(Huffman::Fixed).with_split(16), "software"),
        (modelled().with_split(8), "iaa"),
    ]
    .into_iter()
    .chain(qpl_settings(&deflate))
    .chain(Huffman::ALL.iter().map(|mode| (modelled().with_huffman(*mode), "iaa")))
    .collect()
}

/// One of the settings that differ by their levels alone.
fn settings_of_any_level() -> Vec<(Setting, &'static str)> {
    let (mut settings, mut names) = (settings(), HashSet::new());
    settings.retain(|(setting, engine)| names.insert(format!("{} {engine}", setting.clone().with_level(1))));
    settings
}

/// A device that may not leave anything to the CPU.
fn modelled() -> Setting {
    let model = ModelOptions { is_synchronous: true, ..ModelOptions::default() };
    let setting = Setting::new(Format::Deflate).with_device(DeviceSource::Modelled(model));
    setting.with_path(Path::Hardware).with_level(1)
}

/// Settings of Intel's library, if it is installed.
fn qpl_settings(deflate: &Setting) -> Vec<(Setting, &'static str)> {
    let deflate = deflate.clone().with_path(Path::Software);
    if let Err(error) = deflate.engine_named("qpl") {
        ziptier_testing::not_run("qpl", &error.to_string());
        return Vec::new();
    }
    vec![(deflate.clone(), "qpl"), (deflate.with_huffman(Huffman::Fixed).with_level(1), "qpl")]
}

/// Every level of every engine, and a choice of the many negative ones.
fn levels(setting: &Setting, engine: &str) -> Vec<i32> {
    let all = Setting::levels(setting.format, engine).expect("there is such an engine");
    let fast = [-131_072, -65_537, -1000, -100, -50, -20, -10, -7, -5, -4, -3, -2, -1];
    if engine == "iaa" {
        // The device has one.
        return vec![setting.level];
    }
    fast.into_iter().chain(1..=*all.end()).filter(|level| all.contains(level)).collect()
}

/// A dictionary of the file, if it has enough in common with itself. Every test of this process shares it.
fn dictionary(format: Format, file: &File) -> Option<Arc<Dictionary>> {
    type Trained = HashMap<(Format, String), Option<Arc<Dictionary>>>;
    static TRAINED: Mutex<Option<Trained>> = Mutex::new(None);
    let mut all = TRAINED.lock().expect("no test panics while it trains");
    let all = all.get_or_insert_default();
    all.entry((format, file.name.clone())).or_insert_with(|| trained(format, &file.bytes)).clone()
}

fn trained(format: Format, bytes: &[u8]) -> Option<Arc<Dictionary>> {
    let samples = pieces(bytes, 512, 600);
    let max_bytes = (bytes.len() / 8).min(16 << 10);
    let dictionary = Dictionary::train(format, &samples, max_bytes, 7).ok()?;
    let loaded = Dictionary::from_bytes(&dictionary.to_bytes()).expect("what was stored loads");
    assert_eq!(loaded.fingerprint(), dictionary.fingerprint());
    assert_eq!((loaded.format(), loaded.generation(), loaded.content()), (format, 7, dictionary.content()));
    assert!(loaded.memory_bytes() <= Dictionary::memory_bytes_expected(format, max_bytes));
    Some(Arc::new(loaded))
}

/// The engine without a dictionary: only tokens and canned codes need one.
fn without_dictionary(setting: &Setting, name: &str) -> Option<Arc<dyn Engine>> {
    let engine = setting.engine_named(name);
    let needs_dictionary = setting.format == Format::Token || setting.huffman == Huffman::Canned;
    assert!(engine.is_ok() || needs_dictionary, "{setting} has no engine");
    engine.ok()
}

/// The engine without a dictionary, and with one if it can.
fn engines(setting: &Setting, name: &str, file: &File) -> Vec<Arc<dyn Engine>> {
    let plain = without_dictionary(setting, name);
    let dictionary =
        dictionary(setting.format, file).map(|dictionary| setting.clone().with_dictionary(dictionary));
    let with = dictionary.and_then(|setting| setting.engine_named(name).ok());
    plain.into_iter().chain(with).collect()
}

const SIZES: [usize; 17] =
    [1, 2, 3, 7, 12, 13, 20, 64, 100, 128, 512, 1000, 1024, 4095, 4096, 16_384, 65_536];

#[test]
fn every_file_at_every_size() {
    let mut with_dictionary = 0;
    for (file_number, file) in files().iter().enumerate() {
        for (number, (setting, name)) in settings().into_iter().enumerate() {
            let sizes =
                SIZES.iter().enumerate().filter(|(size, _)| is_tried(8, [file_number, number, *size]));
            let blocks: Vec<&[u8]> =
                sizes.flat_map(|(_, &size)| pieces(&file.bytes, size, (4096 / size).clamp(1, 8))).collect();
            for (which, engine) in engines(&setting, name, file).iter().enumerate() {
                with_dictionary += which;
                conformance::check_engine(engine.as_ref(), &blocks).unwrap_or_else(|failure| {
                    panic!("{setting} ({name}, dictionary {which}), {}: {failure}", file.name)
                });
            }
        }
    }
    assert!(with_dictionary > 5, "{with_dictionary} engines had a dictionary");
}

fn packed(engine: &dyn Engine, blocks: &[&[u8]]) -> usize {
    let mut codec = engine.open().expect("a context opens");
    let (mut stored, mut raw, mut total) = (Vec::new(), Vec::new(), 0);
    for block in blocks {
        stored.clear();
        raw.clear();
        total += frame::pack(codec.as_mut(), engine.format(), block, &mut stored).expect("packs");
        frame::unpack(codec.as_mut(), engine.format(), &stored, &mut raw, block.len()).expect("unpacks");
        assert!(raw == *block, "other bytes came back");
    }
    total
}

/// A few files of different kinds.
fn some_files() -> Vec<File> {
    files_of(&[Kind::Text, Kind::Code, Kind::Bitmap, Kind::Table])
}

#[test]
fn every_level_at_three_sizes() {
    for (file_number, file) in some_files().iter().enumerate() {
        for (setting, name) in settings_of_any_level() {
            let dictionary = dictionary(setting.format, file);
            for (number, level) in levels(&setting, name).into_iter().enumerate() {
                for (size_number, size) in [512, 4096, 65_536].into_iter().enumerate() {
                    if !is_tried(3, [file_number, number, size_number]) {
                        continue;
                    }
                    let blocks = pieces(&file.bytes, size, (16_384 / size).max(1));
                    let setting = setting.clone().with_level(level);
                    if let Some(plain) = without_dictionary(&setting, name) {
                        let total = packed(plain.as_ref(), &blocks);
                        assert!(total <= blocks.iter().map(|block| block.len() + frame::HEADER_BYTES).sum());
                    }
                    let Some(dictionary) = dictionary.clone() else { continue };
                    if let Ok(engine) = setting.with_dictionary(dictionary).engine_named(name) {
                        packed(engine.as_ref(), &blocks);
                    }
                }
            }
        }
    }
}

/// Rust gives an empty slice an address that is no memory, and LZ4's optimal levels would read there.
#[test]
fn an_empty_slice_without_memory_comes_back_at_every_level() {
    let nowhere: &[u8] = Vec::leak(Vec::new());
    for (setting, name) in settings_of_any_level() {
        for level in levels(&setting, name) {
            let Some(engine) = without_dictionary(&setting.clone().with_level(level), name) else { continue };
            let mut codec = engine.open().expect("a context opens");
            let mut packed = Vec::new();
            codec.compress(nowhere, &mut packed, engine.bound(0)).expect("an empty block can be packed");
            let mut raw = Vec::new();
            codec.decompress(&packed, &mut raw, 0).expect("an empty block comes back");
            assert_eq!(raw, nowhere, "{setting} at level {level}");
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let mut tried = 0;
    for (file_number, file) in some_files().iter().enumerate() {
        for (number, (setting, name)) in settings().into_iter().enumerate() {
            for engine in engines(&setting, name, file) {
                for (size_number, size) in [1, 100, 4096, 65_536].into_iter().enumerate() {
                    if !is_tried(4, [file_number, number, size_number]) {
                        continue;
                    }
                    for block in pieces(&file.bytes, size, 1) {
                        tried += conformance::check_block_truncations(engine.as_ref(), block)
                            .unwrap_or_else(|failure| panic!("{setting} ({name}), {}: {failure}", file.name));
                    }
                }
            }
        }
    }
    assert!(tried > 100_000, "{tried} truncations");
}

#[test]
fn every_flipped_bit_of_a_thousand_blocks_is_noticed() {
    let files = files();
    // A third of all files and settings, each without a dictionary and mostly with one.
    let blocks_of_each = (3 * 900 / files.len() / settings().len()).max(1);
    let mut blocks = 0;
    for (index, file) in files.iter().enumerate() {
        let settings = settings().into_iter().enumerate();
        for (_, (setting, name)) in settings.filter(|(number, _)| is_tried(3, [index, *number])) {
            let mut damage = Damage::default();
            for engine in engines(&setting, name, file) {
                let size = [64, 100, 160, 256][index % 4];
                for block in pieces(&file.bytes, size, blocks_of_each) {
                    damage
                        .add(conformance::check_block_flips(engine.as_ref(), block).unwrap_or_else(
                            |failure| panic!("{setting} ({name}), {}: {failure}", file.name),
                        ));
                    blocks += 1;
                }
            }
            // Tokens have a check. Another payload has none, and many flips give other bytes: the reason for frames.
            let has_check = setting.format == Format::Token;
            assert!(
                has_check || damage.unnoticed > 0,
                "{setting} ({name}), {}: were payloads damaged at all?",
                file.name
            );
        }
    }
    assert!(blocks >= 1000, "{blocks} blocks");
}

#[test]
fn another_dictionary_is_noticed() {
    let Some(file) = &files_of(&[Kind::Text]).into_iter().next() else { return };
    let (first, second) = file.bytes.split_at(file.bytes.len() / 2);
    for format in [Format::Token, Format::Lz4, Format::Zstd, Format::Deflate] {
        let setting = |bytes| Setting::new(format).with_dictionary(trained(format, bytes).unwrap());
        let (one, other) = (setting(first).engine().unwrap(), setting(second).engine().unwrap());
        let none = Setting::new(format).engine().ok();
        let (mut one, mut other) = (one.open().unwrap(), other.open().unwrap());
        let mut none = none.as_ref().map(|none| none.open().unwrap());
        for block in pieces(&file.bytes, 1000, 50) {
            let mut stored = Vec::new();
            frame::pack(one.as_mut(), format, block, &mut stored).unwrap();
            for reader in [Some(&mut other), none.as_mut()].into_iter().flatten() {
                let mut out = Vec::new();
                let error = frame::unpack(reader.as_mut(), format, &stored, &mut out, 1000).unwrap_err();
                assert!(error.to_string().contains("checksum") && out.is_empty(), "{error}");
            }
        }
    }
}

#[test]
fn noise_is_stored_raw() {
    let mut state = 9u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(65_536)
    .collect();
    for (setting, name) in settings() {
        let Some(engine) = without_dictionary(&setting, name) else { continue };
        let mut codec = engine.open().unwrap();
        for size in [1, 100, 4096, 65_536] {
            let mut stored = Vec::new();
            frame::pack(codec.as_mut(), engine.format(), &noise[..size], &mut stored).unwrap();
            assert_eq!((stored.len(), stored[0]), (size + frame::HEADER_BYTES, 0), "{setting}");
            conformance::check_engine(engine.as_ref(), &[&noise[..size]]).unwrap();
        }
        assert!(engine.counters().snapshot().does_not_fit >= 4);
    }
}
