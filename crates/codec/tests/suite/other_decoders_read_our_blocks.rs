//! A codec that is tested only with itself may be wrong twice. Every level of every format goes through decoders that
//! share no code with ziptier's, in this process and on the command line. Blocks of other encoders go through ziptier's
//! decoders.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use ziptier_codec::block::{BlockCodec, Dictionary, Huffman, Setting, zlib, zstd as zstd_format};
use ziptier_codec::format::Format;

use crate::corpus::{File, Kind, files_of, is_tried, pieces};
use crate::inflate::inflate;

const SIZES: [usize; 5] = [1, 512, 4096, 4097, 65_536];

/// A few files of different kinds.
fn some_files() -> Vec<File> {
    files_of(&[Kind::Text, Kind::Code, Kind::Xml])
}

fn trained(format: Format, file: &File) -> Option<Arc<Dictionary>> {
    let samples = pieces(&file.bytes, 512, 600);
    Dictionary::train(format, &samples, (file.bytes.len() / 8).min(32 << 10), 1).ok().map(Arc::new)
}

fn levels(format: Format, engine: &str) -> Vec<i32> {
    let all = Setting::levels(format, engine).expect("there is such an engine");
    [-1000, -20, -5, -1].into_iter().chain(1..=*all.end()).filter(|level| all.contains(level)).collect()
}

fn pack(codec: &mut dyn BlockCodec, raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    codec.compress(raw, &mut packed, raw.len() + raw.len() / 8 + 1024).expect("fits").expect("fits");
    packed
}

/// Gives each block of some sizes, packed by each level, with and without a dictionary, to `judge`.
fn for_each_block(
    format: Format,
    engine: &str,
    huffman: Huffman,
    mut judge: impl FnMut(&[u8], &[u8], Option<&Dictionary>),
) {
    for (file_number, file) in some_files().iter().enumerate() {
        let dictionary = trained(format, file);
        for (number, level) in levels(format, engine).into_iter().enumerate() {
            let sizes = SIZES.iter().enumerate();
            let sizes = sizes.filter(|(size, _)| is_tried(3, [file_number, number, *size]));
            let raw: Vec<&[u8]> = sizes.flat_map(|(_, &size)| pieces(&file.bytes, size, 2)).collect();
            let plain = Setting::new(format).with_level(level).with_huffman(huffman);
            let with = dictionary.clone().map(|dictionary| plain.clone().with_dictionary(dictionary));
            for setting in std::iter::once(plain).chain(with) {
                let Ok(engine) = setting.engine_named(engine) else { continue };
                let mut codec = engine.open().expect("a context opens");
                for raw in &raw {
                    let packed = pack(codec.as_mut(), raw);
                    judge(raw, &packed, setting.dictionary.as_deref());
                }
            }
        }
    }
}

#[test]
fn lz4_by_lz4_flex() {
    for_each_block(Format::Lz4, "cpu", Huffman::Dynamic, |raw, packed, dictionary| {
        let content = dictionary.map_or(&[][..], Dictionary::content);
        let found = lz4_flex::block::decompress_with_dict(packed, raw.len(), content).unwrap();
        assert!(found == raw);
    });
}

#[test]
fn lz4_of_lz4_flex() {
    for file in &some_files() {
        let dictionary = trained(Format::Lz4, file);
        let plain = Setting::new(Format::Lz4);
        let with = dictionary.map(|dictionary| plain.clone().with_dictionary(dictionary));
        for setting in std::iter::once(plain).chain(with) {
            let engine = setting.engine().unwrap();
            let mut codec = engine.open().unwrap();
            let content = setting.dictionary.as_deref().map_or(&[][..], Dictionary::content);
            for raw in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 20)) {
                let packed = lz4_flex::block::compress_with_dict(raw, content);
                let mut out = Vec::new();
                codec.decompress(&packed, &mut out, raw.len()).unwrap();
                assert!(out == raw);
            }
        }
    }
}

#[test]
fn zstd_by_ruzstd() {
    let mut decoder = ruzstd::decoding::FrameDecoder::new();
    let mut known = Vec::new();
    for_each_block(Format::Zstd, "cpu", Huffman::Dynamic, |raw, packed, dictionary| {
        let frame = [&zstd_format::MAGIC[..], packed].concat();
        let mut source = &frame[..];
        decoder.reset(&mut source).unwrap();
        if let Some(dictionary) = dictionary {
            let number = u32::from_le_bytes(dictionary.content()[4..8].try_into().unwrap());
            if !known.contains(&number) {
                let parsed = ruzstd::decoding::Dictionary::decode_dict(dictionary.content()).unwrap();
                decoder.add_dict(parsed).unwrap();
                known.push(number);
            }
            decoder.force_dict(number).unwrap();
        }
        decoder.decode_blocks(&mut source, ruzstd::decoding::BlockDecodingStrategy::All).unwrap();
        assert!(decoder.collect().unwrap() == raw && source.is_empty());
    });
}

/// Decodes by zlib-rs, with a window of 4 KiB.
fn by_zlib_rs(packed: &[u8], dictionary: Option<&Dictionary>, raw_bytes: usize) -> Vec<u8> {
    let mut inflate = zlib_rs::Inflate::new(false, 12);
    if let Some(dictionary) = dictionary {
        inflate.set_dictionary(dictionary.content()).expect("a dictionary is taken");
    }
    let mut out = vec![0; raw_bytes];
    let status = inflate.decompress(packed, &mut out, zlib_rs::InflateFlush::Finish).expect("a sound stream");
    assert_eq!(status, zlib_rs::Status::StreamEnd);
    assert_eq!((inflate.total_in(), inflate.total_out()), (packed.len() as u64, raw_bytes as u64));
    out
}

#[test]
fn deflate_by_others_and_never_beyond_its_window() {
    let qpl = Setting::new(Format::Deflate).engine_named("qpl");
    let qpl = qpl.inspect_err(|error| ziptier_testing::not_run("qpl", &error.to_string())).map(|_| "qpl");
    for engine in ["software", "zlib"].into_iter().chain(qpl) {
        deflate_is_plain_within_its_window(engine, Huffman::Dynamic);
        deflate_is_plain_within_its_window(engine, Huffman::Fixed);
    }
}

fn deflate_is_plain_within_its_window(engine: &str, huffman: Huffman) {
    let (mut farthest, mut kinds) = (0, [0; 3]);
    for_each_block(Format::Deflate, engine, huffman, |raw, packed, dictionary| {
        let content = dictionary.map_or(&[][..], Dictionary::content);
        let found = inflate(packed, content).expect("a sound stream");
        assert!(found.bytes == raw);
        assert!(found.distance_max <= zlib::WINDOW_BYTES, "{} bytes back", found.distance_max);
        if huffman == Huffman::Fixed {
            assert_eq!(found.blocks[2], 0, "dynamic codes, although fixed ones were asked for");
        }
        farthest = farthest.max(found.distance_max);
        kinds.iter_mut().zip(found.blocks).for_each(|(sum, count)| *sum += count);
        assert!(by_zlib_rs(packed, dictionary, raw.len()) == raw);
    });
    assert!(farthest > 3000, "{farthest}");
    // With codes for each block, QPL uses them for every block.
    let fixed = engine == "qpl" && huffman == Huffman::Dynamic || kinds[1] > 0;
    assert!(fixed && (huffman == Huffman::Fixed || kinds[2] > 0), "{kinds:?}");
}

#[test]
fn deflate_engines_read_each_other_and_zlib_rs() {
    for file in &some_files() {
        let setting = Setting::new(Format::Deflate);
        let mut engines: Vec<_> =
            ["software", "zlib"].iter().map(|name| setting.engine_named(name).unwrap()).collect();
        let qpl = setting.engine_named("qpl");
        engines.extend(qpl.inspect_err(|error| ziptier_testing::not_run("qpl", &error.to_string())));
        let mut codecs: Vec<_> = engines.iter().map(|engine| engine.open().unwrap()).collect();
        for raw in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 10)) {
            let mut streams: Vec<_> = codecs.iter_mut().map(|codec| pack(codec.as_mut(), raw)).collect();
            for strategy in [zlib_rs::Strategy::Default, zlib_rs::Strategy::Fixed] {
                let config = zlib_rs::DeflateConfig { window_bits: -12, strategy, ..Default::default() };
                let mut deflate = zlib_rs::Deflate::new_with_config(config);
                let mut packed = vec![0; raw.len() + raw.len() / 8 + 1024];
                deflate.compress(raw, &mut packed, zlib_rs::DeflateFlush::Finish).unwrap();
                packed.truncate(deflate.total_out() as usize);
                streams.push(packed);
            }
            for packed in &streams {
                for codec in &mut codecs {
                    let mut out = Vec::new();
                    codec.decompress(packed, &mut out, raw.len()).unwrap();
                    assert!(out == raw);
                }
            }
        }
    }
}

/// Runs a command with `input` on its standard input and returns what it prints.
fn run(command: &mut Command, input: Vec<u8>) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; `make setup-test` installs it"));
    let mut stdin = child.stdin.take().expect("standard input is piped");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("the command ends");
    assert!(output.status.success(), "{command:?} fails");
    writer.join().expect("the input is written").expect("the input is written");
    output.stdout
}

/// Blocks of many sizes and a few levels as frames that stand one behind the other, through a command.
fn by_command(format: Format, command: &[&str], framed: impl Fn(&[u8]) -> Vec<u8>) {
    let file = &some_files()[0];
    let dictionary = trained(format, file).expect("trains");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dictionary.{format}"));
    std::fs::write(&path, dictionary.content()).expect("the dictionary is written");
    for with_dictionary in [false, true] {
        let (mut raw, mut input) = (Vec::new(), Vec::new());
        for level in levels(format, "cpu") {
            let setting = Setting::new(format).with_level(level);
            let setting =
                if with_dictionary { setting.with_dictionary(Arc::clone(&dictionary)) } else { setting };
            let engine = setting.engine().expect("the setting has an engine");
            let mut codec = engine.open().expect("a context opens");
            for block in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 3)) {
                raw.extend_from_slice(block);
                input.extend_from_slice(&framed(&pack(codec.as_mut(), block)));
            }
        }
        let mut command_line = Command::new(command[0]);
        command_line.args(&command[1..]);
        if with_dictionary {
            command_line.arg("-D").arg(&path);
        }
        assert!(run(&mut command_line, input) == raw, "dictionary: {with_dictionary}");
    }
}

#[test]
fn zstd_by_its_command() {
    by_command(Format::Zstd, &["zstd", "-dcq"], |packed| [&zstd_format::MAGIC[..], packed].concat());
}

#[test]
fn lz4_by_its_command() {
    by_command(Format::Lz4, &["lz4", "-dcq"], |packed| {
        // Magic number; version 1, independent blocks, no checksums; blocks of at most 256 KiB; checksum of these two.
        let mut frame = vec![0x04, 0x22, 0x4D, 0x18, 0x60, 0x50, 0xFB];
        frame.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        frame.extend_from_slice(packed);
        frame.extend_from_slice(&[0; 4]);
        frame
    });
}
