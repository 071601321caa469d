//! A failing device says nothing against the data. If its failure were reported as damage, people would throw sound
//! blocks away. If the path `auto` reported it at all, every caller would need its own software. So devices fail here
//! in every possible way.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use ziptier_accel::{Capabilities, Descriptor, Device, SubmitError};
use ziptier_accel::{ErrorCode, Injection, Misfortune, Model, ModelOptions, Status};
use ziptier_codec::block::iaa::Iaa;
use ziptier_codec::block::{BlockError, Dictionary, Engine, Huffman, Job, Path, Setting, Task};
use ziptier_codec::conformance;
use ziptier_codec::format::Format;

const MISFORTUNES: [Misfortune; 8] = [
    Misfortune::QueueFull,
    Misfortune::Status(Status::Hardware),
    Misfortune::Status(Status::Watchdog),
    Misfortune::Status(Status::Translation),
    Misfortune::Status(Status::BadFlags),
    Misfortune::Error(ErrorCode::BadState),
    Misfortune::PageFault { is_write: true, offset: 0 },
    Misfortune::Late { jobs: 3 },
];

/// The device ends every job: its thread needs a processor, no more.
const JOB_TIME_MAX: Duration = Duration::from_secs(60);

fn device(injection: Injection) -> Vec<Arc<dyn Device>> {
    vec![Arc::new(Model::with_injection(&ModelOptions::default(), injection).unwrap())]
}

/// Settings with each kind of codes.
fn settings(path: Path) -> Vec<Setting> {
    let samples: Vec<String> = (0..4000).map(|n| format!("value {} of a block", n * 7919 % 3001)).collect();
    let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
    let dictionary = Arc::new(Dictionary::train(Format::Deflate, &samples, 4096, 1).unwrap());
    let setting = Setting::new(Format::Deflate).with_path(path);
    vec![
        setting.clone(),
        setting.clone().with_huffman(Huffman::Fixed),
        setting.with_huffman(Huffman::Canned).with_dictionary(dictionary),
    ]
}

fn blocks() -> Vec<Vec<u8>> {
    (1..60).map(|n| format!("value {n} of a block, and {} ", n * n).repeat(n).into_bytes()).collect()
}

/// Packs and unpacks all blocks as a batch and says what went wrong.
fn batch(engine: &dyn Engine) -> Vec<BlockError> {
    let (mut codec, blocks, mut errors) = (engine.open().unwrap(), blocks(), Vec::new());
    let mut packed: Vec<Option<Vec<u8>>> = vec![None; blocks.len()];
    for unpacks in [false, true] {
        let (mut done, mut submitted) = (Vec::new(), 0);
        for (tag, block) in blocks.iter().enumerate() {
            let (task, input) = match (unpacks, &packed[tag]) {
                (true, None) => continue,
                (true, Some(packed)) => (Task::Decompress { raw_bytes: block.len() }, packed.clone()),
                (false, _) => (Task::Compress { max_bytes: 2 * block.len() + 100 }, block.clone()),
            };
            let mut job = Some(Job { tag: tag as u64, task, input, output: b"before".to_vec() });
            while let Some(waiting) = job.take() {
                job = codec.submit(waiting).err();
                codec.reap(&mut done, false);
            }
            submitted += 1;
        }
        codec.reap(&mut done, true);
        assert_eq!(done.len(), submitted, "every job comes back once");
        for done in done {
            let tag = done.job.tag as usize;
            assert!(done.job.output.starts_with(b"before"));
            match done.result {
                Err(error) => errors.push(error),
                Ok(None) => panic!("there is room for everything"),
                Ok(Some(_)) if unpacks => assert!(done.job.output[6..] == blocks[tag]),
                Ok(Some(_)) => packed[tag] = Some(done.job.output[6..].to_vec()),
            }
        }
    }
    errors
}

#[test]
fn on_the_path_auto_no_failure_reaches_the_caller() {
    for misfortune in MISFORTUNES {
        for setting in settings(Path::Auto) {
            let injection = Injection { one_in: vec![(3, misfortune)], ..Injection::default() };
            let engine = Iaa::on(&setting, device(injection), JOB_TIME_MAX).unwrap();
            assert_eq!(engine.worker(), "modelled");
            assert_eq!(batch(&engine), [], "{misfortune:?}, {setting}");
            let counted = engine.counters().snapshot();
            let failed = matches!(misfortune, Misfortune::Status(_) | Misfortune::Error(_));
            assert_eq!(counted.fallbacks > 0, failed, "{misfortune:?}: {counted}");
            assert!(!failed || counted.faults >= counted.fallbacks, "{misfortune:?}: {counted}");
            let is_full = misfortune == Misfortune::QueueFull;
            assert!(!is_full || counted.queue_full_retries > 0, "{counted}");
            let blocks = blocks();
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            conformance::check_engine(&engine, &blocks[..20]).unwrap();
        }
    }
}

/// A flaky device reports sound blocks as damaged. The CPU decides, and reports only blocks that are damaged.
#[test]
fn on_the_path_auto_the_cpu_has_the_last_word_on_damage() {
    for setting in settings(Path::Auto) {
        let one_in = vec![(2, Misfortune::Error(ErrorCode::BadDistance))];
        let engine =
            Iaa::on(&setting, device(Injection { one_in, ..Injection::default() }), JOB_TIME_MAX).unwrap();
        assert_eq!(batch(&engine), [], "{setting}");
        let counted = engine.counters().snapshot();
        assert!(counted.fallbacks > 0, "{counted}");
        let (mut codec, raw, mut packed) = (engine.open().unwrap(), &blocks()[40], Vec::new());
        codec.compress(raw, &mut packed, 2 * raw.len()).unwrap();
        for _ in 0..20 {
            let mut out = b"before".to_vec();
            codec.decompress(&packed, &mut out, raw.len()).unwrap();
            assert!(out[6..] == raw[..]);
            let cut = codec.decompress(&packed[..packed.len() / 2], &mut out, raw.len());
            assert!(matches!(cut, Err(BlockError::Damaged { .. })), "{cut:?}");
        }
    }
}

/// The device and the CPU agree about these blocks.
#[test]
fn a_damaged_block_counts_one_fault_on_the_path_auto() {
    let setting = Setting::new(Format::Deflate).with_path(Path::Auto);
    let engine = Iaa::on(&setting, device(Injection::default()), JOB_TIME_MAX).unwrap();
    // The first block of the stream has a type that does not exist.
    let (mut codec, damaged, raw_bytes) = (engine.open().unwrap(), vec![7; 9], 50);
    let alone = codec.decompress(&damaged, &mut Vec::new(), raw_bytes);
    assert!(matches!(alone, Err(BlockError::Damaged { .. })), "{alone:?}");
    let up_to = codec.decompress_up_to(&damaged, &mut vec![MaybeUninit::uninit(); raw_bytes]).map(drop);
    assert!(matches!(up_to, Err(BlockError::Damaged { .. })), "{up_to:?}");
    let (task, mut done) = (Task::Decompress { raw_bytes }, Vec::new());
    codec.submit(Job { tag: 0, task, input: damaged, output: Vec::new() }).unwrap();
    codec.reap(&mut done, true);
    assert!(matches!(done[0].result, Err(BlockError::Damaged { .. })), "{done:?}");
    drop(codec);
    let counted = engine.counters().snapshot();
    assert_eq!((counted.decompress_calls, counted.fallbacks, counted.faults), (3, 3, 3), "{counted}");
}

/// Each thread would wait two seconds for each of its jobs.
#[test]
fn a_device_that_ends_no_job_is_asked_a_few_times() {
    let setting = Setting::new(Format::Deflate).with_path(Path::Auto);
    let hung = device(Injection { one_in: vec![(1, Misfortune::Stuck)], ..Injection::default() }).remove(0);
    let counting = Arc::new(Counting { device: hung, asked: AtomicU64::new(0) });
    let engine = Iaa::on(&setting, vec![counting.clone()], Duration::from_millis(1)).unwrap();
    for _ in 0..3 {
        assert_eq!(batch(&engine), []);
    }
    let counted = engine.counters().snapshot();
    assert_eq!(counted.fallbacks, counted.compress_calls + counted.decompress_calls, "{counted}");
    // The jobs that one session had under way when the device was lost, and a few more.
    let asked = counting.asked.load(Relaxed);
    assert!((3..40).contains(&asked), "{asked} of {} jobs", counted.fallbacks);
}

/// Counts what a device is asked for.
struct Counting {
    device: Arc<dyn Device>,
    asked: AtomicU64,
}

impl Device for Counting {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }
    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        self.asked.fetch_add(1, Relaxed);
        // SAFETY: the caller's.
        unsafe { self.device.submit(descriptor) }
    }
}

#[test]
fn a_device_that_is_lost_leaves_everything_to_the_cpu() {
    for setting in settings(Path::Auto) {
        let lost = device(Injection { lost_after: Some(0), ..Injection::default() });
        let engine = Iaa::on(&setting, lost, JOB_TIME_MAX).unwrap();
        assert_eq!(batch(&engine), []);
        let counted = engine.counters().snapshot();
        assert_eq!(counted.fallbacks, counted.compress_calls + counted.decompress_calls, "{counted}");
    }
}

#[test]
fn on_the_path_of_the_hardware_a_failure_is_the_engines_and_never_damage() {
    for misfortune in MISFORTUNES {
        for setting in settings(Path::Hardware) {
            let injection = Injection { one_in: vec![(3, misfortune)], ..Injection::default() };
            let engine = Iaa::on(&setting, device(injection), JOB_TIME_MAX).unwrap();
            let errors = batch(&engine);
            let failed = matches!(misfortune, Misfortune::Status(_) | Misfortune::Error(_));
            assert_eq!(!errors.is_empty(), failed, "{misfortune:?}: {errors:?}");
            let own = |error: &BlockError| matches!(error, BlockError::Engine { engine: "iaa", .. });
            assert!(errors.iter().all(own), "{misfortune:?}: {errors:?}");
            assert_eq!(engine.counters().snapshot().fallbacks, 0);
        }
    }
}

#[test]
fn without_a_device_auto_counts_and_hardware_says_what_is_missing() {
    let hardware = Setting::new(Format::Deflate).with_path(Path::Hardware);
    let Err(error) = hardware.engine() else {
        ziptier_testing::not_run("machine-without-accelerator", "this one has a device");
        return;
    };
    let said = error.to_string();
    let beginning = "engine iaa cannot work here: path hardware needs a device, but ";
    assert!(
        said.starts_with(beginning) && said.contains("; `ziptier doctor` says what would help"),
        "{said}"
    );
    assert!(!said.contains(". "), "one sentence: {said}");
    let engine = Setting::new(Format::Deflate).engine_named("iaa").unwrap();
    assert_eq!((engine.worker(), batch(engine.as_ref())), ("software", vec![]));
    let counted = engine.counters().snapshot();
    assert_eq!(counted.fallbacks, counted.compress_calls + counted.decompress_calls, "{counted}");
}

/// A caller that does not know the length of a block tries with little room first.
#[test]
fn a_block_that_has_no_room_is_no_fault_of_the_device() {
    let setting = Setting::new(Format::Deflate).with_path(Path::Auto);
    let engine = Iaa::on(&setting, device(Injection::default()), JOB_TIME_MAX).unwrap();
    let (mut codec, raw, mut packed) = (engine.open().unwrap(), blocks().pop().unwrap(), Vec::new());
    codec.compress(&raw, &mut packed, raw.len()).unwrap().unwrap();
    let mut target = vec![MaybeUninit::uninit(); raw.len() - 1];
    assert_eq!(codec.decompress_up_to(&packed, &mut target).unwrap(), None);
    drop(codec);
    let counted = engine.counters().snapshot();
    assert_eq!((counted.faults, counted.fallbacks), (0, 0), "{counted}");
}

/// A caller that does not know the length of a block gives more room than a job of a device may have.
#[test]
fn more_room_than_a_device_transfers_refuses_no_sound_block() {
    let mut random = 1u32;
    let mut noise = |bytes: usize| -> Vec<u8> {
        let next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 28) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    };
    let setting = Setting::new(Format::Deflate).with_path(Path::Hardware);
    let engine = Iaa::on(&setting, device(Injection::default()), JOB_TIME_MAX).unwrap();
    let (mut codec, mut target) = (engine.open().unwrap(), vec![MaybeUninit::uninit(); 5 << 20]);
    let large = noise(3 << 20);
    for raw in [noise(100_000), noise(1_500_000)] {
        let packed = codec.compress_into(&raw, &mut target[..engine.bound(raw.len())]).unwrap();
        let packed = packed.unwrap().to_vec();
        assert_eq!(codec.decompress_up_to(&packed, &mut target).unwrap().unwrap(), raw);
        assert_eq!(codec.decompress_up_to(&packed, &mut target[..raw.len() - 1]).unwrap(), None);
    }
    // A block that needs more than a transfer is still the engine's error.
    let mut packed = Vec::new();
    let software = Setting::new(Format::Deflate).engine_named("software").unwrap();
    software.open().unwrap().compress(&large, &mut packed, large.len()).unwrap().unwrap();
    let refused = codec.decompress_up_to(&packed, &mut target);
    let Err(BlockError::Engine { engine: "iaa", reason }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("more than the 2097152 that a job takes"), "{reason}");
}
