//! Parts of a block that are decompressed side by side could make another block than the one that was written. Whatever
//! the bytes, a reader of parts must give the result of a reader of whole blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ziptier_accel::{
    Capabilities, Descriptor, Device, Injection, Misfortune, Model, ModelOptions, SubmitError,
};
use ziptier_codec::block::iaa::Iaa;
use ziptier_codec::block::{BlockCodec, BlockError, Engine, Huffman, Path, Setting};
use ziptier_codec::format::Format;
use ziptier_deflate::{Dictionary, Encoder, Level, PART_END, has_preamble};

use crate::corpus::{Kind, files_of, pieces};

const JOB_TIME_MAX: Duration = Duration::from_secs(60);

/// Counts the jobs of a modelled device.
struct Counting {
    model: Model,
    jobs: AtomicU64,
}

impl Counting {
    fn new(injection: Injection) -> Arc<Counting> {
        let options = ModelOptions { is_synchronous: true, ..ModelOptions::default() };
        let model = Model::with_injection(&options, injection).unwrap();
        Arc::new(Counting { model, jobs: AtomicU64::new(0) })
    }

    /// Jobs since the last call.
    fn take(&self) -> u64 {
        self.jobs.swap(0, Relaxed)
    }
}

impl Device for Counting {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.model.capabilities()
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        self.jobs.fetch_add(1, Relaxed);
        // SAFETY: the caller's.
        unsafe { self.model.submit(descriptor) }
    }
}

fn setting(split: u32) -> Setting {
    Setting::new(Format::Deflate).with_path(Path::Hardware).with_split(split)
}

fn engine(split: u32, device: Arc<dyn Device>) -> Iaa {
    Iaa::on(&setting(split), vec![device], JOB_TIME_MAX).unwrap()
}

fn compressed(codec: &mut dyn BlockCodec, raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    codec.compress(raw, &mut packed, 2 * raw.len() + 100).unwrap().expect("fits");
    packed
}

/// Results with the exact length, and up to a length.
fn results(
    codec: &mut dyn BlockCodec,
    packed: &[u8],
    raw_bytes: usize,
) -> [Result<Option<Vec<u8>>, BlockError>; 2] {
    let mut out = b"kept".to_vec();
    let exact = codec.decompress(packed, &mut out, raw_bytes);
    assert!(out.starts_with(b"kept"));
    let exact = exact.map(|()| Some(out.split_off(4)));
    assert_eq!(out, b"kept");
    let mut target = vec![std::mem::MaybeUninit::uninit(); raw_bytes];
    let up_to = codec.decompress_up_to(packed, &mut target).map(|raw| raw.map(|raw| raw.to_vec()));
    [exact, up_to]
}

#[test]
fn each_part_is_a_job_and_every_reader_gets_the_block() {
    for file in &files_of(&[Kind::Text, Kind::Code, Kind::Bitmap]) {
        for huffman in [Huffman::Dynamic, Huffman::Fixed] {
            let device = Counting::new(Injection::default());
            let setting = setting(4).with_huffman(huffman);
            let engine = Iaa::on(&setting, vec![device.clone()], JOB_TIME_MAX).unwrap();
            let software = setting.clone().with_path(Path::Software).engine().unwrap();
            let whole = setting.with_split(1).with_path(Path::Software).engine().unwrap();
            let [mut codec, mut software, mut whole] =
                [&engine as &dyn Engine, &*software, &*whole].map(|engine| engine.open().unwrap());
            let jobs_of_part = if huffman == Huffman::Fixed { 2 } else { 3 };
            let sizes = [1000, 2047, 2048, 4095, 16_384, 65_537];
            for raw in sizes.iter().flat_map(|&bytes| pieces(&file.bytes, bytes, 3)) {
                let (parts, bytes) = ((raw.len() / 1024).clamp(1, 4), raw.len());
                device.take();
                let packed = compressed(&mut *codec, raw);
                assert_eq!(device.take(), jobs_of_part * parts as u64, "{bytes}");
                for packed in [packed, compressed(&mut *software, raw)] {
                    let marks = packed.windows(4).filter(|bytes| *bytes == PART_END).count();
                    assert_eq!(marks, parts - 1, "{bytes}");
                    device.take();
                    for result in results(&mut *codec, &packed, bytes) {
                        assert!(result == Ok(Some(raw.to_vec())), "{bytes}");
                    }
                    assert_eq!(device.take(), 2 * parts as u64, "{bytes}");
                    assert!(results(&mut *whole, &packed, bytes)[0] == Ok(Some(raw.to_vec())));
                }
            }
        }
    }
}

/// The worst case of a part is twice as long as the part, and longer than a queue transfers.
#[test]
fn parts_may_be_as_long_as_a_queue_transfers() {
    let device = Counting::new(Injection::default());
    let engine = engine(4, device.clone());
    let mut codec = engine.open().unwrap();
    let text = files_of(&[Kind::Text]).remove(0).bytes;
    let mut raw = text.repeat((6 << 20) / text.len() + 1);
    raw.truncate(6 << 20);
    device.take();
    let packed = compressed(&mut *codec, &raw);
    assert_eq!(device.take(), 3 * 4, "each part is a job");
    assert!(results(&mut *codec, &packed, raw.len()) == [Ok(Some(raw.clone())), Ok(Some(raw))]);
    assert_eq!(device.take(), 2 * 4);

    let mut random = Forger { seed: 1, texts: Vec::new() };
    let raw: Vec<u8> = (0..8 << 20).map(|_| random.below(256) as u8).collect();
    let refused = codec.compress(&raw, &mut Vec::new(), 2 * raw.len() + 100);
    assert!(refused.unwrap_err().to_string().contains("2097152"), "a queue transfers no more");
}

#[test]
fn entry_points_for_the_cpu_are_one_job_of_a_device() {
    let device = Counting::new(Injection::default());
    let engine = engine(16, device.clone());
    let software = setting(1).with_path(Path::Software).engine().unwrap();
    let [mut codec, mut software] = [&engine as &dyn Engine, &*software].map(|engine| engine.open().unwrap());
    let mut with_entries = 0;
    for file in &files_of(&[Kind::Text, Kind::Code]) {
        for raw in pieces(&file.bytes, 16_384, 3) {
            let packed = compressed(&mut *software, raw);
            with_entries += usize::from(has_preamble(&packed));
            device.take();
            for result in results(&mut *codec, &packed, raw.len()) {
                assert!(result == Ok(Some(raw.to_vec())), "{}", file.name);
            }
            assert_eq!(device.take(), 2, "{}", file.name);
        }
    }
    assert!(with_entries > 0, "no block has entry points");
}

/// Pieces of streams, put together so that parts alone make a block that the whole does not.
struct Forger {
    seed: u64,
    texts: Vec<u8>,
}

impl Forger {
    fn below(&mut self, limit: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % limit
    }

    fn text(&mut self) -> Vec<u8> {
        let bytes = 1100 + self.below(1500);
        let from = self.below(self.texts.len() - bytes);
        self.texts[from..from + bytes].to_vec()
    }

    /// A stored block whose data may have marks.
    fn stored(&mut self, is_last: bool) -> Vec<u8> {
        let mut raw = self.text();
        for _ in 0..self.below(3) {
            let at = self.below(raw.len() - 4);
            raw[at..at + 4].copy_from_slice(&PART_END);
        }
        let length = raw.len() as u16;
        let head = [length.to_le_bytes(), (!length).to_le_bytes()].concat();
        [&[u8::from(is_last)][..], &head, &raw].concat()
    }

    /// A stream of one block; `parts` parts if it does not end.
    fn coded(&mut self, is_last: bool) -> Vec<u8> {
        let (one, other) = (self.text(), self.text());
        let huffman = [ziptier_deflate::Huffman::Fixed, ziptier_deflate::Huffman::Dynamic][self.below(2)];
        let (dictionary, mut packed) = (Dictionary::new(b""), Vec::new());
        let mut encoder = Encoder::new(&dictionary, Level::Lazy);
        if is_last {
            encoder.compress(huffman, &one, &mut packed, 1 << 20).unwrap();
            return packed;
        }
        // Both are of the same length, so that the first part is the whole first text.
        let pair = [&one[..], &other[..other.len().min(one.len())]].concat();
        encoder.compress_in_parts(huffman, &pair, 2, &mut packed, 1 << 20).unwrap();
        let end = packed.windows(4).position(|bytes| bytes == PART_END).unwrap() + 4;
        packed.truncate(end);
        packed
    }

    fn stream(&mut self) -> Vec<u8> {
        let mut stream = Vec::new();
        for _ in 0..1 + self.below(4) {
            // A last block may stand before the end, with or without the mark of a part behind it.
            let is_last = self.below(6) == 0;
            match self.below(3) {
                0 => stream.extend(self.stored(is_last)),
                _ => stream.extend(self.coded(is_last)),
            }
            if self.below(3) == 0 {
                stream.extend([0, 0, 0, 0xFF, 0xFF]);
            }
        }
        let last = if self.below(2) == 0 { self.stored(true) } else { self.coded(true) };
        stream.extend(last);
        match self.below(4) {
            0 => {
                let (at, bit) = (self.below(stream.len()), self.below(8));
                stream[at] ^= 1 << bit;
            }
            1 => {
                let kept = self.below(stream.len()) + 1;
                stream.truncate(kept);
            }
            _ => {}
        }
        stream
    }
}

#[test]
fn forged_and_damaged_blocks_have_the_result_of_the_whole() {
    let texts = files_of(&[Kind::Text]).remove(0).bytes;
    let device = Counting::new(Injection::default());
    let (parts, whole) = (engine(8, device.clone()), engine(1, Counting::new(Injection::default())));
    let (mut parts, mut whole) = (parts.open().unwrap(), whole.open().unwrap());
    let mut forger = Forger { seed: 1, texts };
    let (mut decoded, mut refused, mut by_parts) = (0, 0, 0);
    for _ in 0..6000 {
        let packed = forger.stream();
        // The length of the whole, of which the whole is the judge, and the sum of all pieces' lengths.
        let mut target = vec![std::mem::MaybeUninit::uninit(); 1 << 16];
        let length = whole.decompress_up_to(&packed, &mut target).ok().flatten().map_or(0, |raw| raw.len());
        let sum = sum_of_parts(&mut *whole, &packed);
        for raw_bytes in [length, sum, length + 1] {
            device.take();
            let found = results(&mut *parts, &packed, raw_bytes);
            by_parts += u32::from(device.take() > 2 && found[0].is_ok());
            let expected = results(&mut *whole, &packed, raw_bytes);
            assert!(found == expected, "{raw_bytes} of {length}, {} packed bytes", packed.len());
            *(if found[0].is_ok() { &mut decoded } else { &mut refused }) += 1;
        }
    }
    assert!(decoded > 1000 && refused > 1000 && by_parts > 300, "{decoded} {refused} {by_parts}");
}

/// The bytes of all pieces between marks, each decoded as a stream for itself, whatever follows its last block.
fn sum_of_parts(whole: &mut dyn BlockCodec, packed: &[u8]) -> usize {
    let (mut sum, mut start) = (0, 0);
    let marks = packed.windows(4).enumerate().filter(|(_, bytes)| *bytes == PART_END);
    for end in marks.map(|(at, _)| at + 4).chain([packed.len()]) {
        let piece = [&packed[start..end], &[3, 0]].concat();
        let mut target = vec![std::mem::MaybeUninit::uninit(); 1 << 16];
        sum += whole.decompress_up_to(&piece, &mut target).ok().flatten().map_or(0, |raw| raw.len());
        start = end;
    }
    sum
}

/// A last, stored block that goes on behind a mark, for as many bytes as an ending has, takes an ending for its data.
#[test]
fn a_stored_block_that_swallows_an_ending_is_read_as_a_whole() {
    let text = files_of(&[Kind::Text]).remove(0).bytes;
    let mut behind = Vec::new();
    // The 13 bytes behind the mark are a stream by themselves.
    let literals = [0xF0; 10];
    let dictionary = Dictionary::new(b"");
    let mut encoder = Encoder::new(&dictionary, Level::Fast);
    encoder.compress(ziptier_deflate::Huffman::Fixed, &literals, &mut behind, 100).unwrap();
    behind.resize(13, 0);
    let raw = [&text[..1100], &PART_END, &behind].concat();
    let length = raw.len() as u16;
    let packed = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), &raw].concat();
    let parts = engine(4, Counting::new(Injection::default()));
    let mut codec = parts.open().unwrap();
    for room in [raw.len(), 4096] {
        let mut target = vec![std::mem::MaybeUninit::uninit(); room];
        let found = codec.decompress_up_to(&packed, &mut target).unwrap();
        assert!(found == Some(&mut raw.clone()[..]), "room of {room}");
    }
}

/// A part that refers to bytes of the part before it, as zlib's sync flush leaves it.
#[test]
fn parts_with_a_history_are_read_as_a_whole() {
    let text = files_of(&[Kind::Text]).remove(0).bytes;
    let (device, mut packed) = (Counting::new(Injection::default()), Vec::new());
    let dictionary = Dictionary::new(&text[..2000]);
    let plain = Dictionary::new(b"");
    let mut encoder = Encoder::new(&plain, Level::Lazy);
    let huffman = ziptier_deflate::Huffman::Dynamic;
    encoder.compress_in_parts(huffman, &text[..4000], 2, &mut packed, 1 << 16).unwrap();
    let end = packed.windows(4).position(|bytes| bytes == PART_END).unwrap() + 4;
    packed.truncate(end);
    // The second part has the first as its history, and repeats it.
    let mut encoder = Encoder::new(&dictionary, Level::Lazy);
    encoder.compress(huffman, &text[..2000], &mut packed, 1 << 16).unwrap();
    let parts = engine(4, device.clone());
    let raw = [&text[..2000], &text[..2000]].concat();
    let found = results(&mut *parts.open().unwrap(), &packed, raw.len());
    assert!(found == [Ok(Some(raw.clone())), Ok(Some(raw))]);
    // Two parts and the whole, twice.
    assert_eq!(device.take(), 6);
}

#[test]
fn a_part_that_fails_leaves_the_block_to_the_cpu() {
    let text = files_of(&[Kind::Text]).remove(0).bytes;
    let raw = &text[..16_384];
    let misfortunes = [
        Misfortune::Status(ziptier_accel::Status::Hardware),
        Misfortune::Error(ziptier_accel::ErrorCode::BadDistance),
        Misfortune::QueueFull,
    ];
    for misfortune in misfortunes {
        let device = Counting::new(Injection { one_in: vec![(5, misfortune)], ..Injection::default() });
        let setting = setting(4).with_path(Path::Auto);
        let engine = Iaa::on(&setting, vec![device], JOB_TIME_MAX).unwrap();
        let mut codec = engine.open().unwrap();
        for _ in 0..20 {
            let packed = compressed(&mut *codec, raw);
            assert!(results(&mut *codec, &packed, raw.len()) == [(); 2].map(|()| Ok(Some(raw.to_vec()))));
        }
        let counted = engine.counters().snapshot();
        assert_eq!((counted.compress_calls, counted.decompress_calls), (20, 40), "{counted}");
        assert_eq!(counted.fallbacks > 0, misfortune != Misfortune::QueueFull, "{counted}");
    }
    let gone = Counting::new(Injection { lost_after: Some(30), ..Injection::default() });
    let engine = Iaa::on(&setting(4), vec![gone], JOB_TIME_MAX).unwrap();
    let mut codec = engine.open().unwrap();
    let packed = compressed(&mut *codec, raw);
    let lost = (0..9).map(|_| codec.decompress(&packed, &mut Vec::new(), raw.len())).find(Result::is_err);
    assert!(matches!(lost, Some(Err(BlockError::Engine { engine: "iaa", .. }))), "{lost:?}");
}
