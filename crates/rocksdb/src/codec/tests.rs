use super::*;
use ziptier_codec::block::Engine;

mod blamed;
mod dense;

/// Blocks as RocksDB's, of text with a rhythm.
fn blocks(count: usize) -> Vec<Vec<u8>> {
    let words =
        ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"];
    let mut seed = 7u64;
    let mut word = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        words[(seed >> 33) as usize % words.len()]
    };
    (0..count)
        .map(|i| (0..600).flat_map(|j| format!("{} {};", word(), i * j).into_bytes()).collect())
        .collect()
}

fn open(settings: Settings) -> Codec {
    Codec::open(settings).unwrap()
}

fn canned() -> Codec {
    open(Settings { verify: true, ..Settings::parse("deflate", "auto", "canned", 0, "").unwrap() })
}

fn token() -> Codec {
    open(Settings { output: Output::Token, verify: true, ..Settings::default() })
}

/// A packed block, with its length in front.
fn pack(
    codec: &Codec,
    packed_as: BlockType,
    generation: Option<&Generation>,
    raw: &[u8],
    max_bytes: usize,
) -> Option<(BlockType, Vec<u8>)> {
    let mut out = Vec::new();
    match codec.pack(packed_as, generation, raw, max_bytes, |packed| out.extend_from_slice(packed)) {
        Packed::Into(made, length) => {
            assert_eq!(length, out.len());
            Some((made, out))
        }
        Packed::Declined => None,
    }
}

fn round_trip(codec: &Codec, packed_as: BlockType, generation: Option<&Generation>, raw: &[u8]) -> BlockType {
    let (made, out) = pack(codec, packed_as, generation, raw, raw.len()).expect("it shrinks");
    let (raw_bytes, at) = rows::varint(&out, 0).unwrap();
    assert_eq!(raw_bytes as usize, raw.len());
    let mut back = Vec::new();
    codec.unpack(made, generation, &out[at..], raw.len(), |block| back.extend_from_slice(block)).unwrap();
    assert!(back == raw);
    made
}

#[test]
fn a_file_gets_the_generation_that_its_samples_made() {
    for (open, packed_as) in [(token as fn() -> Codec, TOKENS), (canned, CANNED)] {
        let codec = open();
        let Guidance::Sample(bytes) = codec.guidance(true) else { panic!("the first file is sampled") };
        let blocks = blocks(bytes / 5000);
        let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let generation = codec.train(&samples).unwrap();
        for block in blocks.iter().step_by(20) {
            assert_eq!(round_trip(&codec, packed_as, Some(&generation), block), packed_as);
        }
        let Guidance::Use(next) = codec.guidance(true) else { panic!("the second file is not") };
        assert!(Arc::ptr_eq(&next, &generation));
        // Another process, with nothing but the file.
        let loaded = Generation::load(generation.as_bytes()).unwrap();
        round_trip(&open(), packed_as, Some(&loaded), &blocks[0]);
    }
}

#[test]
fn small_files_are_weighed_and_share_what_pays() {
    let codec = token();
    let blocks = blocks(60);
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let (first, rest) = samples.split_at(25);
    let (second, tiny) = rest.split_at(32);
    let generation = codec.train(first).unwrap();
    let tokens = generation.tokens().unwrap();
    assert_eq!(tokens.bits(), 11);
    // Each is sampled, and goes on with the generation that there is.
    assert!(matches!(codec.guidance(true), Guidance::Sample(_)));
    assert!(Arc::ptr_eq(&codec.train(second).unwrap(), &generation));
    for block in second {
        assert_eq!(round_trip(&codec, TOKENS, Some(&generation), block), TOKENS);
    }
    // It would be the most of a file as small as this.
    assert!(codec.train(&tiny[..1]).is_none());
    assert_eq!(round_trip(&codec, TOKENS, None, tiny[0]), ZSTD);
    assert!(token().train(tiny).is_none());
    // Another process that opened such a file weighs its files, too.
    let other = token();
    other.adopt(&generation);
    assert!(matches!(other.guidance(true), Guidance::Sample(_)));
}

#[test]
fn each_private_format_reads_the_other_and_goes_on_with_its_own() {
    let blocks = blocks(400);
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    for (writer, reader) in [(token(), canned()), (canned(), token())] {
        let generation = writer.train(&samples).unwrap();
        let (made, out) = pack(&writer, TOKENS, Some(&generation), &blocks[7], 1 << 20).unwrap();
        let (_, at) = rows::varint(&out, 0).unwrap();
        let mut back = Vec::new();
        let take = |raw: &[u8]| back.extend_from_slice(raw);
        reader.unpack(made, Some(&generation), &out[at..], blocks[7].len(), take).unwrap();
        assert!(back == blocks[7]);
        // It is of no use to its new files.
        reader.adopt(&generation);
        assert!(matches!(reader.guidance(true), Guidance::Sample(_)));
        writer.adopt(&generation);
        assert!(matches!(writer.guidance(true), Guidance::Use(_)));
    }
}

#[test]
fn canned_codes_are_asked_for_by_zlib_too() {
    let codec = canned();
    assert_eq!((codec.takes(ZLIB, false), codec.takes(CANNED, false)), (Some(CANNED), Some(CANNED)));
    assert_eq!((codec.takes(LZ4, false), codec.takes(LZ4, true)), (None, Some(CANNED)));
    // Before there are any, blocks have codes of their own.
    assert_eq!(round_trip(&codec, CANNED, None, &blocks(1)[0]), ZLIB);
}

#[test]
fn without_a_generation_blocks_are_zstd() {
    let codec = token();
    assert!(codec.train(&[b"too little".as_slice()]).is_none());
    assert_eq!(round_trip(&codec, TOKENS, None, &blocks(1)[0]), ZSTD);
}

#[test]
fn standard_formats_come_back() {
    let codec = open(Settings { verify: true, ..Settings::default() });
    assert_eq!(codec.takes(ZLIB, false), Some(ZLIB));
    assert_eq!(codec.takes(7, false), None);
    assert_eq!(codec.takes(7, true), Some(ZLIB));
    let block = &blocks(1)[0];
    assert_eq!(round_trip(&codec, ZLIB, None, block), ZLIB);
    assert_eq!(round_trip(&codec, LZ4, None, block), LZ4);
}

/// The bound on what a block may claim lies above what the best of blocks do.
#[test]
fn blocks_that_shrink_as_far_as_they_can_come_back() {
    let samples = blocks(400);
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    let (standard, token, canned) = (open(Settings::default()), token(), canned());
    let (tokens, codes) = (token.train(&samples).unwrap(), canned.train(&samples).unwrap());
    for zeros in [4 << 10, 16 << 10, 1 << 20, (8 << 20) + 1].map(|bytes| vec![0; bytes]) {
        round_trip(&standard, ZLIB, None, &zeros);
        round_trip(&standard, LZ4, None, &zeros);
        round_trip(&token, TOKENS, None, &zeros);
        round_trip(&token, TOKENS, Some(&tokens), &zeros);
        round_trip(&canned, CANNED, None, &zeros);
        round_trip(&canned, CANNED, Some(&codes), &zeros);
    }
}

/// RocksDB's own zlib has a window of 16 KiB, devices and our own decoder one of 4.
#[test]
fn blocks_of_rocksdbs_own_zlib_refer_back_beyond_four_kib() {
    let raw: Vec<u8> = (0..5000u32).map(|i| (i * 7919 % 251) as u8).collect();
    // A stored part of 5,000 bytes, then, in fixed codes, 3 bytes from 5,000 back and the end.
    let mut packed = vec![0];
    packed.extend(5000u16.to_le_bytes());
    packed.extend((!5000u16).to_le_bytes());
    packed.extend(&raw);
    packed.extend([0x03, 0x8e, 0xc3, 0x01, 0x00]);
    let wanted = [&raw[..], &raw[..3]].concat();
    for (huffman, model) in [("dynamic", ""), ("fixed", ""), ("dynamic", "timing=off")] {
        let codec = open(Settings::parse("deflate", "auto", huffman, 0, model).unwrap());
        let mut found = Vec::new();
        codec.unpack(ZLIB, None, &packed, wanted.len(), |raw| found.extend_from_slice(raw)).unwrap();
        assert!(found == wanted, "{huffman} {model}");
    }
}

#[test]
fn noise_is_declined() {
    let mut seed = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    })
    .take(4096)
    .collect();
    let max_bytes = 4096 * 7 / 8;
    assert!(pack(&token(), TOKENS, None, &noise, max_bytes).is_none());
    assert!(pack(&open(Settings::default()), ZLIB, None, &noise, max_bytes).is_none());
}

#[test]
fn damaged_blocks_are_errors() {
    let blocks = blocks(400);
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let codec = token();
    let generation = codec.train(&samples);
    let raw = &blocks[3];
    let generation = generation.as_deref();
    let (made, out) = pack(&codec, TOKENS, generation, raw, raw.len()).expect("text shrinks");
    let (_, at) = rows::varint(&out, 0).unwrap();
    let unpack = |packed_as, generation, packed: &[u8], raw_bytes| {
        codec.unpack(packed_as, generation, packed, raw_bytes, |_| ())
    };
    for bit in (0..(out.len() - at) * 8).step_by(37) {
        let mut packed = out[at..].to_vec();
        packed[bit / 8] ^= 1 << (bit % 8);
        assert!(unpack(made, generation, &packed, raw.len()).is_err(), "bit {bit}");
    }
    assert!(unpack(made, None, &out[at..], raw.len()).is_err());
    assert!(unpack(0x99, generation, &out[at..], raw.len()).is_err());
    assert!(unpack(made, generation, &out[at..], raw.len() - 1).is_err());
    assert!(unpack(CANNED, generation, &out[at..], raw.len()).is_err());
    for packed_as in [TOKENS, ZSTD, CANNED, ZLIB, LZ4] {
        let error = unpack(packed_as, generation, &out[at..], usize::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("cannot hold"), "{error}");
    }
}

/// Managers of deflate on modelled devices of which every queue is full, or that are gone after some jobs.
fn failing(path: &str, fault: &str) -> Codec {
    open(Settings::parse("deflate", path, "dynamic", 0, &format!("timing=off,{fault}")).unwrap())
}

#[test]
fn a_device_that_fails_is_no_damage() {
    let blocks = blocks(40);
    for fault in ["full_one_in=1", "lost_after=9", "lost_after=0"] {
        for path in ["auto", "hardware"] {
            let codec = failing(path, fault);
            let sound = open(Settings::default());
            let mut raw_blocks = 0;
            for block in &blocks {
                let packed = pack(&codec, ZLIB, None, block, block.len());
                // Without a device and without software there is nothing but the raw block.
                raw_blocks += usize::from(packed.is_none());
                let (made, packed) = packed.or_else(|| pack(&sound, ZLIB, None, block, block.len())).unwrap();
                let (_, at) = rows::varint(&packed, 0).unwrap();
                let mut back = Vec::new();
                let take = |raw: &[u8]| back.extend_from_slice(raw);
                codec.unpack(made, None, &packed[at..], block.len(), take).unwrap();
                assert!(back == *block);
            }
            assert_eq!(raw_blocks > 30, path == "hardware", "{path} {fault}: {raw_blocks} blocks");
            let counters = codec.standard.as_ref().unwrap().deflate.engine().counters().snapshot();
            let told = if path == "auto" { counters.fallbacks } else { counters.faults };
            assert!(told > 60, "{path} {fault}: {counters}");
            assert!(fault != "full_one_in=1" || counters.queue_full_retries > 1000, "{counters}");
        }
    }
}

#[test]
fn canned_codes_are_written_and_read_by_a_device() {
    let blocks = blocks(400);
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let generation = canned().train(&samples).unwrap();
    // The last one is lost before it has the dictionary. The CPU packed all blocks in its place, and nothing told.
    for (fault, is_lost) in [("devices=2", false), ("lost_after=60", true), ("lost_after=0", true)] {
        let model = format!("timing=off,{fault}");
        let codec = open(Settings::parse("deflate", "hardware", "canned", 0, &model).unwrap());
        let before = codec.counters.failures();
        let (mut declined, mut by_device) = (0, 0);
        for block in &blocks[..60] {
            let packed = pack(&codec, CANNED, Some(&generation), block, block.len());
            declined += u64::from(packed.is_none());
            let by_software = || pack(&canned(), CANNED, Some(&generation), block, block.len());
            by_device += u64::from(packed.as_ref().is_some_and(|(made, _)| *made == CANNED));
            let (made, packed) = packed.or_else(by_software).unwrap();
            let (_, at) = rows::varint(&packed, 0).unwrap();
            let mut back = Vec::new();
            let take = |raw: &[u8]| back.extend_from_slice(raw);
            codec.unpack(made, Some(&generation), &packed[at..], block.len(), take).unwrap();
            assert!(back == *block);
        }
        assert_eq!(declined > 20, is_lost, "{fault}: {declined} blocks");
        assert_eq!(by_device > 0, fault != "lost_after=0", "{fault}: {by_device} blocks");
        assert!(codec.counters.failures() - before >= declined, "{fault}");
    }
}

#[test]
fn a_level_is_of_the_format_that_was_asked_for() {
    let with_level = |format, level| Settings::parse(format, "auto", "dynamic", level, "").unwrap();
    let block = &blocks(1)[0];
    let packed_bytes =
        |level| pack(&open(with_level("lz4", level)), LZ4, None, block, block.len()).unwrap().1.len();
    let (accelerated, usual, dense) = (packed_bytes(-20), packed_bytes(0), packed_bytes(12));
    assert!(dense < usual && usual < accelerated, "{dense} {usual} {accelerated}");
    assert_eq!(round_trip(&open(with_level("lz4", -1)), LZ4, None, block), LZ4);
    assert_eq!(round_trip(&open(with_level("auto", 9)), LZ4, None, block), LZ4);
    for (format, level, named) in [("lz4", 13, "lz4"), ("deflate", -1, "deflate"), ("auto", -1, "deflate")] {
        let sentence = Codec::open(with_level(format, level)).err().unwrap();
        let others = ["lz4", "deflate"].into_iter().filter(|other| *other != named);
        assert!(
            sentence.contains(named) && others.into_iter().all(|other| !sentence.contains(other)),
            "{sentence}"
        );
    }
}

#[test]
fn settings_that_cannot_be_are_sentences() {
    let parse = |format, path, huffman, level, model| Settings::parse(format, path, huffman, level, model);
    assert!(parse("auto", "auto", "dynamic", 0, "").is_ok());
    for (format, path, huffman, level) in [
        ("brotli", "auto", "dynamic", 0),
        ("token", "auto", "dynamic", 9),
        ("token", "hardware", "dynamic", 0),
        ("deflate", "sideways", "dynamic", 0),
        ("deflate", "auto", "arithmetic", 0),
        ("auto", "auto", "canned", 0),
        ("token", "auto", "canned", 0),
        ("lz4", "auto", "canned", 0),
    ] {
        let sentence = parse(format, path, huffman, level, "").unwrap_err();
        assert!(sentence.len() > 20 && !sentence.contains('\n'), "{sentence}");
    }
    let hardware = parse("deflate", "hardware", "dynamic", 0, "").unwrap();
    assert!(Codec::open(hardware).err().is_none_or(|reason| !reason.is_empty()));
}

/// The payload of a packed block, without its length.
fn payload(packed: &[u8]) -> &[u8] {
    &packed[rows::varint(packed, 0).unwrap().1..]
}

fn modelled() -> Codec {
    open(Settings::parse("deflate", "auto", "dynamic", 0, "timing=off").unwrap())
}

fn unpacked(codec: &Codec, payload: &[u8], raw_bytes: usize) -> Result<Vec<u8>, UnpackError> {
    let mut back = Vec::new();
    codec.unpack(ZLIB, None, payload, raw_bytes, |block| back.extend_from_slice(block)).map(|()| back)
}

#[test]
fn standard_deflate_has_entry_points_that_no_device_is_given() {
    let software =
        open(Settings { verify: true, ..Settings::parse("deflate", "software", "dynamic", 0, "").unwrap() });
    let fixed = open(Settings::parse("deflate", "software", "fixed", 0, "").unwrap());
    // The first has too few symbols.
    for raw in &blocks(10)[1..] {
        let (made, packed) = pack(&software, ZLIB, None, raw, raw.len()).unwrap();
        let packed = payload(&packed);
        assert_eq!((made, packed.len() - parts::stream_of(packed).len()), (ZLIB, 10));
        for codec in [&software, &fixed, &modelled()] {
            assert!(unpacked(codec, packed, raw.len()).as_ref() == Ok(raw));
            // A stream without entry points is read as before.
            assert!(unpacked(codec, parts::stream_of(packed), raw.len()).as_ref() == Ok(raw));
        }
    }
}

#[test]
fn a_stream_that_ends_like_entry_points_is_read_to_its_end() {
    let word = 0x0123_4567_89AB_0400u64;
    let check = (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16;
    let raw = [&[b'a'; 500][..], &word.to_le_bytes(), &check.to_le_bytes()].concat();
    // A stored block: its last bytes are the data's.
    let length = raw.len() as u16;
    let stream = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), &raw].concat();
    assert_eq!(parts::stream_of(&stream).len(), stream.len() - 10);
    let fixed = open(Settings::parse("deflate", "software", "fixed", 0, "").unwrap());
    for codec in [open(Settings::default()), modelled(), fixed] {
        assert!(unpacked(&codec, &stream, raw.len()).as_ref() == Ok(&raw));
        assert!(unpacked(&codec, &stream[..stream.len() - 1], raw.len()).is_err());
    }
}

/// RocksDB opens a manager for each file of a database whose options name none.
#[test]
fn managers_share_the_contexts_that_all_of_them_need() {
    let managers: Vec<Codec> = (0..50).map(|_| token()).collect();
    assert!(managers.iter().all(|manager| Arc::ptr_eq(&manager.zstd, &managers[0].zstd)));
}

#[test]
fn a_file_that_may_not_be_sampled_gets_the_generation_that_there_is() {
    let (codec, blocks) = (token(), blocks(400));
    assert!(matches!(codec.guidance(false), Guidance::Plain));
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let trained = codec.train(&samples).unwrap();
    let Guidance::Use(used) = codec.guidance(false) else { panic!("there is a generation") };
    assert!(Arc::ptr_eq(&used, &trained));
    // Also where each file is weighed, which takes samples.
    let noise: Vec<Vec<u8>> = (0..40u64).map(|i| noise(i, 4000)).collect();
    let small: Vec<&[u8]> = noise.iter().map(Vec::as_slice).collect();
    codec.train(&small);
    assert!(matches!(codec.guidance(true), Guidance::Sample(_)));
    assert!(matches!(codec.guidance(false), Guidance::Use(_)));
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}

/// A few values of 256 MB on many threads would keep them all.
#[test]
fn a_thread_keeps_little_after_a_large_block() {
    let (codec, raw) = (token(), noise(1, 16).repeat(1 << 19));
    let kept_bytes = || {
        let kept = SCRATCH.take();
        let bytes = kept.as_ref().map(|kept| kept.bytes.capacity() + kept.check.capacity());
        SCRATCH.set(kept);
        bytes
    };
    let small = round_trip(&codec, ZSTD, None, &raw[..4096]);
    assert!((4096..SCRATCH_BYTES_MAX).contains(&kept_bytes().unwrap()));
    assert_eq!(round_trip(&codec, ZSTD, None, &raw), small);
    assert!(kept_bytes().is_none_or(|bytes| bytes <= SCRATCH_BYTES_MAX), "{:?}", kept_bytes());
}

/// Threads of RocksDB, and destructors of its users' objects, still read while a thread ends.
#[test]
fn a_thread_that_ends_can_still_read() {
    struct AtEnd(std::sync::mpsc::Sender<bool>, Vec<u8>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let (codec, payload) = (token(), payload(&self.1).to_vec());
            let mut is_same = false;
            let unpacked = codec.unpack(ZSTD, None, &payload, 8000, |raw| is_same = raw == [7; 8000]);
            let _ = self.0.send(unpacked.is_ok() && is_same);
        }
    }
    thread_local! {
        static BEFORE: Cell<Option<AtEnd>> = const { Cell::new(None) };
        static BEHIND: Cell<Option<AtEnd>> = const { Cell::new(None) };
    }
    let (_, packed) = pack(&token(), ZSTD, None, &[7; 8000], 8000).unwrap();
    let (ended, has_ended) = std::sync::mpsc::channel();
    let at_end = || AtEnd(ended.clone(), packed.clone());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            BEFORE.set(Some(at_end()));
            // From here on the thread has scratch, whose destructor runs before one of the others and behind the other.
            pack(&token(), ZSTD, None, &[7; 8000], 8000).unwrap();
            BEHIND.set(Some(at_end()));
        });
        // The end of a scope alone does not wait for destructors.
        thread.join().unwrap();
    });
    assert_eq!(has_ended.try_iter().collect::<Vec<_>>(), [true, true]);
}

/// RocksDB makes room for as many bytes as a block says, before anybody has looked at it.
#[test]
fn a_block_of_zstd_holds_no_more_than_its_parts_say() {
    let raw = noise(2, 100).repeat(5000);
    let (made, packed) = pack(&token(), ZSTD, None, &raw, raw.len()).unwrap();
    let packed = payload(&packed);
    let raw_bytes_max = Codec::raw_bytes_max(made, packed);
    assert!(made == ZSTD && (raw.len()..=raw.len().next_multiple_of(128 << 10)).contains(&raw_bytes_max));
    // One compressed part, as long as it may be, in 100 KiB.
    let mut hostile = vec![0; 100 << 10];
    let head = ((hostile.len() - 5) << 3 | 2 << 1 | 1) as u32;
    hostile[..2].copy_from_slice(&packed[..2]);
    hostile[2..5].copy_from_slice(&head.to_le_bytes()[..3]);
    assert_eq!(Codec::raw_bytes_max(ZSTD, &hostile), 128 << 10);
    assert_eq!(Codec::raw_bytes_max(ZSTD, &noise(3, 100 << 10)), 0);
    let refused = token().unpack(ZSTD, None, &hostile, 4 << 30, |_| panic!("nothing is unpacked"));
    assert!(matches!(refused, Err(UnpackError::Damaged(_))), "{refused:?}");
}

/// An engine that cannot work.
struct Failing(ziptier_codec::block::Counters);

impl Engine for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }
    fn format(&self) -> Format {
        Format::Zstd
    }
    fn counters(&self) -> &ziptier_codec::block::Counters {
        &self.0
    }
    fn open(&self) -> Result<Box<dyn ziptier_codec::block::BlockCodec + '_>, BlockError> {
        Err(BlockError::Engine { engine: "failing", reason: "no memory for a context".into() })
    }
}

/// RocksDB stops all writes for a corruption, and people throw files away.
#[test]
fn an_engine_that_fails_is_no_damage() {
    let (_, packed) = pack(&token(), ZSTD, None, &[7; 8000], 8000).unwrap();
    let zstd = Arc::new(Contexts::new(Arc::new(Failing(Default::default()))));
    let failing = Codec { zstd, ..token() };
    let failed = failing.unpack(ZSTD, None, payload(&packed), 8000, |_| panic!("nothing is unpacked"));
    let Err(UnpackError::Engine(reason)) = failed else { panic!("{failed:?}") };
    assert!(reason.contains("no memory for a context"), "{reason}");
    let damaged = token().unpack(ZSTD, None, &payload(&packed)[1..], 8000, |_| panic!("it is damaged"));
    assert!(matches!(damaged, Err(UnpackError::Damaged(_))), "{damaged:?}");
}

/// A file of a fixture. Those of `ZiptierV1` are what its first release wrote, and are never written anew.
fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ZiptierV1").join(name)
}

/// One block of each private type, with the generations that it needs.
fn write_fixtures() {
    let write = |name: &str, bytes: &[u8]| std::fs::write(fixture(name), bytes).unwrap();
    std::fs::create_dir_all(fixture("")).unwrap();
    let blocks = blocks(60);
    let (raw, samples) = (&blocks[50], blocks[..25].iter().map(Vec::as_slice).collect::<Vec<_>>());
    write("raw", raw);
    for (name, codec, packed_as) in [("tokens", token(), TOKENS), ("canned", canned(), CANNED)] {
        let generation = codec.train(&samples).unwrap();
        write(&format!("{name}.generation"), generation.as_bytes());
        let (made, out) = pack(&codec, packed_as, Some(&generation), raw, raw.len()).unwrap();
        assert_eq!(made, packed_as);
        write(&format!("{name}.block"), payload(&out));
        if packed_as == TOKENS {
            let mut alone = Vec::new();
            assert!(codec.append_block(codec.alone(Some(&generation)).1, raw, &mut alone, raw.len()));
            write("zstd.block", &alone);
        }
    }
}

/// People keep files for years, and nothing converts those that are not compacted.
#[test]
fn blocks_that_former_releases_wrote_are_read() {
    if std::env::var_os("ZIPTIER_WRITE_FIXTURES").is_some() && !fixture("raw").exists() {
        write_fixtures();
    }
    let read = |name: &str| std::fs::read(fixture(name)).unwrap();
    let raw = read("raw");
    for (name, shared, packed_as) in
        [("tokens", "tokens", TOKENS), ("zstd", "tokens", ZSTD), ("canned", "canned", CANNED)]
    {
        let generation = Generation::load(&read(&format!("{shared}.generation"))).unwrap();
        let packed = read(&format!("{name}.block"));
        for codec in [token(), canned()] {
            let mut back = Vec::new();
            let take = |block: &[u8]| back.extend_from_slice(block);
            codec.unpack(packed_as, Some(&generation), &packed, raw.len(), take).unwrap();
            assert!(back == raw, "{name}");
        }
        // Files of the same generation go on with it.
        let codec = if packed_as == CANNED { canned() } else { token() };
        round_trip(&codec, packed_as, Some(&generation), &raw);
    }
}
