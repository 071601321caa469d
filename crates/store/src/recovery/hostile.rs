//! Tests with images that may be anything: whatever a loading accepts must be safe to read, write to, and pack.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use ziptier_codec::token::Dictionary;
use ziptier_media::segments::{Purpose, SegmentOptions, Segments};
use ziptier_media::testing::RecordingDisk;
use ziptier_tree::blocks::BlockCoding;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::record::PutMeta;

use super::loading::{LoadedLarges, Source};
use crate::core::Core;
use crate::image_files::{ImageFiles, extent_of};
use crate::options::Options;

/// Codings for images to refer to, and segments without any of their large values.
pub(crate) struct Bench {
    codings: BTreeMap<u32, Coding>,
    files: Arc<ImageFiles>,
    /// A possible source of an image.
    place: Extent,
}

impl Bench {
    pub(crate) fn new(codings: BTreeMap<u32, Coding>) -> Self {
        let disk = Arc::new(RecordingDisk::new());
        let segments = Segments::open(disk, Path::new("/segments"), SegmentOptions::default());
        let files = ImageFiles::new(segments.expect("a disk in memory does not fail"));
        let place = files.segments.append(&[0], Purpose::New).expect("a disk in memory does not fail");
        let place = extent_of(place);
        Self { codings, files, place }
    }

    /// Tokens as generation 1, blocks as generation 2.
    pub(crate) fn with_small_codings() -> Self {
        let tokens = Dictionary::train(&[b"abcabcabcabc"], 12, 1).expect("the sample is sound");
        let options = Options { codec: CodecChoice::Lz4, ..Options::default() };
        let blocks =
            BlockCoding::first(&options.codecs()).ok().flatten().expect("lz4 has blocks").renumbered(2);
        let codings = [Coding::Tokens(Arc::new(tokens)), Coding::Blocks(Arc::new(blocks))];
        Self::new(codings.into_iter().map(|coding| (coding.generation(), coding)).collect())
    }

    /// Loads an image into an empty store, reads it, writes to it, and brings it to its form; whether it was accepted.
    pub(crate) fn take(&self, bytes: &[u8], codec: CodecChoice) -> bool {
        let core = Core::new(&Options { codec, background_threads: 0, ..Options::default() });
        let (files, codings) = (&self.files, &self.codings);
        let source =
            Source { core: &core, files, codings, place: self.place, is_upper: false, salvage: false };
        let Ok(loaded) = source.load(bytes, &mut LoadedLarges::new()) else { return false };
        let keys: Vec<Vec<u8>> = {
            let guard = core.tree.pin();
            let (leaf, empty) = core.tree.locate(&[], &guard);
            assert!(leaf.publish(empty, loaded.state, &guard), "nobody else changes the store");
            let all = Bound::Unbounded;
            let records = core.tree.ranges().records(leaf.state(&guard), &all, &all, &guard);
            records.into_iter().flatten().map(|(key, ..)| key).collect()
        };
        for (index, key) in keys.iter().take(20).enumerate() {
            let _ = core.read(key, &mut Vec::new());
            let value = vec![b'v'; index * 30];
            core.put(key, &value, PutMeta::default()).expect("there is no limit");
        }
        core.put(b"another", b"value", PutMeta::default()).expect("there is no limit");
        core.settle();
        let found = core.tree.ranges().count_keys();
        assert!(found > 0);
        true
    }
}

/// For a fuzzer: see the module.
#[cfg(fuzzing)]
pub fn fuzz_image(bytes: &[u8]) {
    thread_local!(static BENCH: Bench = Bench::with_small_codings());
    // A store loads leaves that are coded as its own are; others it decodes first.
    let codec = match crate::leaf_image::LeafImage::read(bytes) {
        Ok(image) if image.generation == Some(1) => CodecChoice::Token,
        _ => CodecChoice::Lz4,
    };
    BENCH.with(|bench| bench.take(bytes, codec));
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use ziptier_codec::token::Encoder;
    use ziptier_tree::blocks::{Effort, lay_out};
    use ziptier_tree::body::{Blocks, Body, Builder, Entry, EntryKey, fingerprint};
    use ziptier_tree::form::Form;
    use ziptier_tree::landing::RecordBytes;
    use ziptier_tree::record::{Fields, Kind, key_hash};
    use ziptier_tree::sizes::INLINE_BYTES_MAX;

    use super::*;
    use crate::durable::{DiskHandle, DurableOptions, GENERATIONS_DIR, GenerationFiles, Manifest};
    use crate::leaf_image::{LeafImage, with_raw_values};
    use crate::recovery::loading::loaded_place;
    use crate::store::Store;

    const KEY: &[u8] = b"key";

    fn entry(kind: Kind, payload: &[u8]) -> Entry<'_> {
        let fingerprint = fingerprint(key_hash(KEY));
        Entry { key: EntryKey::whole(KEY), fingerprint, kind, fields: Fields::default(), payload }
    }

    /// An image of `body`, or of the only record of a landing.
    fn image_of(generation: Option<u32>, body: &Body, landed: Option<&RecordBytes>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let image = LeafImage {
            heated: false,
            loose: 0,
            generation,
            logical_bytes: 0,
            low: &[],
            larges: Vec::new(),
            body: if body.is_empty() { &[] } else { body.bytes() },
            landing: landed.map_or(&[][..], RecordBytes::bytes),
            landing_records: u32::from(landed.is_some()),
        };
        image.write(&mut bytes);
        bytes
    }

    /// A pack took such values into a block, and no body has room for the frame of one.
    #[test]
    fn a_value_that_is_too_long_for_its_leaf_is_refused() {
        let bench = Bench::with_small_codings();
        let mut random = fastrand::Rng::with_seed(3);
        for (len, is_taken) in [(INLINE_BYTES_MAX, true), (INLINE_BYTES_MAX + 1, false), (100_000, false)] {
            let value: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            let body = Builder::default().build(&[entry(Kind::Raw, &value)], None);
            let mut record = RecordBytes::default();
            record.lay_out(Kind::Raw, &Fields::default(), KEY, &value);
            for image in [image_of(None, &body, None), image_of(None, &Body::empty(), Some(&record))] {
                assert_eq!(bench.take(&image, CodecChoice::Lz4), is_taken, "{len} bytes");
            }
        }
    }

    /// The next image would have it raw, and would be refused.
    #[test]
    fn a_coded_value_that_is_too_long_for_its_leaf_is_damaged() {
        let bench = Bench::with_small_codings();
        let form = Form::of(Some(bench.codings[&1].clone()));
        let tokens = form.tokens().expect("the first generation has tokens");
        for (len, kind) in [(INLINE_BYTES_MAX, Kind::Raw), (INLINE_BYTES_MAX + 1, Kind::Lost)] {
            let value: Vec<u8> = b"abc".iter().copied().cycle().take(len).collect();
            let (mut coded, mut ends) = (Vec::new(), Vec::new());
            tokens.encode_group(&mut Encoder::new(), &[&value[..]], &mut coded, &mut ends);
            let body = Builder::default().build(&[entry(Kind::Coded, &coded)], None);
            assert_eq!(with_raw_values(&body, &form).record(0).tag.kind(), kind, "{len} bytes");
        }
    }

    /// A pack wrote such an overlay without its blocks, and a look-up in it ended its thread.
    #[test]
    fn an_overlay_whose_values_lie_in_blocks_is_refused() {
        let bench = Bench::with_small_codings();
        let core = Core::new(&Options { background_threads: 0, ..Options::default() });
        let coding = bench.codings[&2].blocks().expect("the second generation has blocks");
        let (mut blocks, mut contents) = (Blocks::default(), Vec::new());
        assert!(lay_out(&[b"value"], &mut contents));
        coding.pack(Effort::Fast, &contents, &mut blocks.frames);
        blocks.push(1);
        let body = Builder::default().build(&[entry(Kind::Packed, &[])], Some(blocks.all()));
        let image = image_of(Some(2), &body, None);
        let is_taken = |is_upper| {
            let (files, codings) = (&bench.files, &bench.codings);
            let source = Source { core: &core, files, codings, place: bench.place, is_upper, salvage: false };
            source.load(&image, &mut LoadedLarges::new()).is_ok()
        };
        assert_eq!([false, true].map(is_taken), [true, false]);
    }

    #[test]
    fn an_image_with_any_bytes_is_refused_or_safe() {
        for codec in [CodecChoice::None, CodecChoice::Auto, CodecChoice::Lz4, CodecChoice::Zstd] {
            let disk = RecordingDisk::new();
            let mut durable = DurableOptions::new("/d");
            durable.disk = DiskHandle(Arc::new(disk.clone()));
            durable.log.segment_bytes = 1 << 20;
            durable.segments.segment_bytes = 1 << 20;
            let options =
                Options { codec, background_threads: 0, durable: Some(durable), ..Options::default() };
            let store = Store::open(options.clone()).unwrap();
            for n in 0..40_000_u32 {
                let value = format!("value {} of a store, {n}", n.wrapping_mul(2_654_435_761) % 997);
                store.put(format!("key:{n:07}").as_bytes(), value.repeat(3).as_bytes()).unwrap();
            }
            store.settle().unwrap();
            store.put(b"key:0000003", b"landed").unwrap();
            store.checkpoint().unwrap();
            drop(store);

            let shared: Arc<dyn ziptier_media::disk::Disk> = Arc::new(disk);
            let dir = Path::new("/d");
            let manifest = Manifest::load(&*shared, dir).unwrap().unwrap();
            let mut files = GenerationFiles::open(shared.clone(), &dir.join(GENERATIONS_DIR)).unwrap();
            let first = BlockCoding::first(&options.codecs()).unwrap().map(Coding::Blocks);
            let codings = manifest.head.generations.iter().map(|number| {
                (*number, files.read(*number, &options.codecs(), first.as_ref()).unwrap().coding)
            });
            let bench = Bench::new(codings.collect());
            let segments = Segments::open(shared, &dir.join("segments"), SegmentOptions::default()).unwrap();
            let entries: Vec<_> = manifest.entries().map(Result::unwrap).collect();
            let mut random = fastrand::Rng::with_seed(9);
            let mut taken = 0;
            for round in 0..1500 {
                let entry = &entries[if round % 3 == 0 { 0 } else { random.usize(..entries.len()) }];
                let mut bytes = segments.read(crate::image_files::place_of(loaded_place(entry))).unwrap();
                assert!(round > 0 || bench.take(&bytes, codec));
                // Most of what counts stands at the beginning.
                let reach = if random.bool() { bytes.len() } else { bytes.len().min(600) };
                for _ in 0..random.usize(1..4) {
                    bytes[random.usize(..reach)] = random.u8(..);
                }
                if random.u8(..8) == 0 {
                    bytes.truncate(random.usize(..reach));
                }
                taken += u32::from(bench.take(&bytes, codec));
            }
            assert!(taken > 0, "{codec}");
        }
    }

    #[test]
    fn small_codings_serve_a_fuzzer() {
        let bench = Bench::with_small_codings();
        assert!(!bench.take(b"", CodecChoice::Token));
        let mut image = vec![1, 1, 0, 0, 1, 0, 0, 0];
        image.extend([0; 24]);
        assert!(bench.take(&image, CodecChoice::Token));
        image[4] = 3;
        assert!(!bench.take(&image, CodecChoice::Token), "there is no generation 3");
    }
}
