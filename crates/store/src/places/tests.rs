#[cfg(not(miri))]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[cfg(not(miri))]
use ziptier_codec::token::Dictionary;
#[cfg(not(miri))]
use ziptier_media::testing::RecordingDisk;
use ziptier_tree::codec_options::CodecChoice;
#[cfg(not(miri))]
use ziptier_tree::coding::Coding;
use ziptier_tree::far::FarMemory;
use ziptier_tree::large::ChunkPlace;
#[cfg(not(miri))]
use ziptier_tree::memory::Gauges;
#[cfg(not(miri))]
use ziptier_tree::packing::Goal;
use ziptier_tree::record::PutMeta;

use super::*;
use crate::Error;
use crate::core::Core;
use crate::options::Options;
use crate::places::far_medium::open_far;
#[cfg(not(miri))]
use crate::places::ssd::{Cold, SsdOptions};
#[cfg(not(miri))]
use crate::{DiskHandle, DurableOptions, FarOptions, FarPlace, Store};

fn core_over(far: &Arc<FarMemory>, limit_bytes: Option<u64>) -> Core {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let core = Core::with_far(&options, far.clone());
    core.tree.gauges.set_limit(limit_bytes);
    core
}

#[cfg(not(miri))]
fn far_in(file: &Path) -> Arc<FarMemory> {
    let place = FarPlace::File(file.to_path_buf());
    let options = FarOptions { place, capacity_bytes: 8 << 20, require_dax: false };
    open_far(&options, None, true).expect("there is room for the file")
}

fn value_of(n: u32) -> Vec<u8> {
    let len = if n.is_multiple_of(10) { 3000 } else { 100 };
    n.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Demotes, or brings back, every leaf that nobody else owns.
fn move_all(core: &Core, demote: bool) {
    let parts = Parts { from: Side::Dram, records: true, larges: Pick::All, densely: false };
    let mut cursor = Some(Vec::new());
    while let Some(low) = cursor {
        let guard = core.tree.pin();
        let (leaf, _) = core.tree.locate(&low, &guard);
        if demote {
            core.moves().demote(leaf, Place::Far, parts);
        } else {
            core.moves().promote(leaf, Place::Far);
        }
        cursor = leaf.state(&guard).high.as_ref().map(|high| high.to_vec());
    }
    core.tree.reclaim();
}

/// Whether `holds` is true once what was retired is freed; other tests' readers may hold it for a while.
fn eventually(core: &Core, holds: impl Fn() -> bool) -> bool {
    (0..60_000).any(|_| {
        core.tree.reclaim();
        core.tree.pin().flush();
        std::thread::sleep(std::time::Duration::from_millis(1));
        holds()
    })
}

#[test]
fn readers_of_leaves_that_move_see_every_value() {
    // Replaced bytes may wait for the reader as long as that runs.
    let far = FarMemory::on_heap(1 << 30);
    let (records, rounds) = if cfg!(miri) { (5u32, 2) } else { (500, 50) };
    {
        let core = core_over(&far, None);
        for n in 0..records {
            core.put(&n.to_be_bytes(), &value_of(n), PutMeta::default()).unwrap();
        }
        core.settle();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = Vec::new();
                while !done.load(Relaxed) {
                    for n in 0..records {
                        value.clear();
                        core.read(&n.to_be_bytes(), &mut value).unwrap().unwrap();
                        assert_eq!(value, value_of(n));
                    }
                }
            });
            (0..rounds).for_each(|round| move_all(&core, round % 2 == 0));
            done.store(true, Relaxed);
        });
        move_all(&core, true);
        assert_eq!(core.tree.gauges.body_bytes(), 0);
        assert!(core.tree.gauges.far_body.held() > 0);
        // A write to a leaf in far memory leaves it there.
        core.put(&3u32.to_be_bytes(), b"new", PutMeta::default()).unwrap();
        core.settle();
        assert_eq!(core.tree.gauges.body_bytes(), 0);
        assert_eq!(
            core.tree.gauges.memory_use().logical_bytes,
            core.tree.ranges().count_keys() * 4 + {
                (0..records).filter(|n| *n != 3).map(|n| value_of(n).len() as u64).sum::<u64>() + 3
            }
        );
    }
}

// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn writes_to_far_memory_that_is_full_bring_nothing_up_to_dram_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let far = far_in(&folder.path().join("far"));
    let core = core_over(&far, None);
    let records = 30_000u32;
    let put = |n: u32, value: &[u8]| {
        let scattered = n.wrapping_mul(7919) % records;
        core.put(&scattered.to_be_bytes(), value, PutMeta::default())
    };
    (0..records).for_each(|n| put(n, &[7; 100]).unwrap());
    core.settle();
    move_all(&core, true);
    assert!(eventually(&core, || core.tree.gauges.body_bytes() == 0));
    let mut fillers = Vec::new();
    for bytes in [500_000, 8000, 4000, 1000] {
        while let Some(filler) = far.put(&vec![0; bytes]) {
            fillers.push(filler);
        }
    }
    let limit_bytes = core.tree.gauges.held() + (256 << 10);
    core.tree.gauges.set_limit(Some(limit_bytes));
    // The first refusal comes when nothing goes down any more, and later ones must not make it worse.
    let refusals: Vec<Error> = (0..records).filter_map(|n| put(n, &[8; 200]).err()).collect();
    assert!(matches!(refusals[0], Error::MemoryAndFarLimit { .. }), "{}", refusals[0]);
    core.settle();
    let memory = core.tree.gauges.memory_use();
    assert!(memory.total_bytes() <= limit_bytes + limit_bytes * 3 / 100, "{limit_bytes}: {memory:?}");
    drop(fillers);
    assert!(eventually(&core, || put(1, &[9; 200]).is_ok()));
}

/// A store with a folder, and with far memory in a file.
#[cfg(not(miri))]
fn durable_over(disk: &RecordingDisk, far: &Path) -> Store {
    let mut durable = DurableOptions::new("/data");
    durable.disk = DiskHandle(Arc::new(disk.clone()));
    durable.log.segment_bytes = 1 << 20;
    let place = FarPlace::File(far.to_path_buf());
    let far = Some(FarOptions { place, capacity_bytes: 8 << 20, require_dax: false });
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    Store::open(Options { far, durable: Some(durable), ..options }).expect("the disk has no faults")
}

#[cfg(not(miri))]
fn marked(n: u32) -> Vec<u8> {
    format!("mark of {n:06}, ").into_bytes().repeat(6)
}

/// Flips a bit of each marked value in a far file, and returns the number of marks.
#[cfg(not(miri))]
fn damage_marked(far: &Path) -> usize {
    let mut bytes = std::fs::read(far).expect("the file is there");
    let marks: Vec<usize> =
        bytes.windows(8).enumerate().filter(|(_, mark)| mark == b"mark of ").map(|(at, _)| at).collect();
    marks.iter().for_each(|at| bytes[*at] ^= 1);
    // The file stays the one that is mapped.
    let file = std::fs::OpenOptions::new().write(true).open(far).expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("there is room");
    marks.len()
}

// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn no_checkpoint_has_what_was_made_from_damaged_far_memory() {
    let (disk, folder) = (RecordingDisk::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("far");
    let records = 2000u32;
    let store = durable_over(&disk, &path);
    (0..records).for_each(|n| store.put(&n.to_be_bytes(), &marked(n)).unwrap());
    store.core.settle();
    move_all(&store.core, true);
    let marks = damage_marked(&path);
    assert!(marks >= records as usize, "{marks}");
    // Each leaf is packed, and half of its values stay as they are.
    (0..records).step_by(2).for_each(|n| store.put(&n.to_be_bytes(), &marked(n)).unwrap());
    store.core.settle();
    let refusal = store.checkpoint().unwrap_err().to_string();
    assert!(refusal.contains("far memory") && refusal.contains("open it anew"), "{refusal}");
    drop(store);
    let store = durable_over(&disk, &path);
    (0..records).for_each(|n| assert!(store.get(&n.to_be_bytes()).unwrap() == Some(marked(n)), "{n}"));
}

/// The images of all leaves are current, and sound.
// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn a_pack_of_damaged_far_memory_that_finds_no_room_refuses_no_checkpoint() {
    let (disk, folder) = (RecordingDisk::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("far");
    let store = durable_over(&disk, &path);
    let core = &*store.core;
    (0..2000u32).for_each(|n| store.put(&n.to_be_bytes(), &marked(n)).unwrap());
    core.settle();
    move_all(core, true);
    store.checkpoint().unwrap();
    damage_marked(&path);
    let far = core.tree.far.as_ref().unwrap();
    let mut fillers = Vec::new();
    for bytes in [500_000, 8000, 4000, 1000] {
        while let Some(filler) = far.put(&vec![0; bytes]) {
            fillers.push(filler);
        }
    }
    core.tree.gauges.set_limit(Some(1));
    {
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(&[], &guard);
        assert!(state.body.is_far() && !state.body.is_whole());
        let _ownership = leaf.try_own().unwrap();
        let packed = core.upkeep().pack_while(
            leaf,
            Goal::Recode,
            &mut core.upkeep().background_retention(),
            &guard,
            &mut || (),
        );
        assert!(!packed, "its body has a place");
    }
    core.tree.gauges.set_limit(None);
    store.checkpoint().unwrap();
}

// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn damage_in_far_memory_is_noted_as_leaves_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let far = far_in(&path);
    let core = core_over(&far, None);
    let put = |n: u8, value: &[u8]| core.put(&[n], value, PutMeta::default()).unwrap();
    // Too much for one body: two leaves, which are small after that.
    (0..6).for_each(|n| put(n, &[n; 2_000]));
    core.settle();
    (0..6).for_each(|n| put(n, &b"mark of a leaf, ".repeat(8)));
    let (left, right) = (core.tree.share_at(&[0]).0, core.tree.share_at(&[5]).0);
    assert!(!Arc::ptr_eq(&left, &right), "one body has room for all");
    for leaf in [&left, &right] {
        let guard = core.tree.pin();
        let _ownership = leaf.try_own().unwrap();
        core.upkeep().settle_leaf(leaf, Goal::Keep, &guard);
    }
    move_all(&core, true);
    assert!(damage_marked(&path) >= 48 && !far.is_damaged());
    let guard = core.tree.pin();
    let _ownership = left.try_own().unwrap();
    assert!(
        core.upkeep()
            .with_packs(&mut core.upkeep().background_retention(), &guard, |packs| packs.join_right(&left))
    );
    assert!(far.is_damaged());
}

/// The records above the images lie in far memory.
// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn damage_in_far_memory_is_noted_as_leaves_on_ssd_change() {
    type Change = fn(&Core, &Leaf, &[u8]);
    let joins = |core: &Core, leaf: &Leaf, _: &[u8]| {
        let guard = core.tree.pin();
        let _ownership = leaf.try_own().unwrap();
        assert!(core.moves().join_cold(leaf, &guard));
    };
    let cuts = |core: &Core, _: &Leaf, high: &[u8]| core.moves().begin_leaf_at_image_of(high);
    let promotes = |core: &Core, leaf: &Leaf, _: &[u8]| assert!(core.moves().promote(leaf, Place::Ssd));
    let changes: [(bool, Change); 3] = [(false, joins), (true, cuts), (false, promotes)];
    for (number, (is_joined, change)) in changes.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("far");
        let far = far_in(&path);
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let gauges = Arc::new(Gauges::new(None));
        let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
        let cold = Cold::open(Arc::new(RecordingDisk::new()), &ssd, &gauges, |_, _| Ok(())).unwrap();
        let core = Core::with_places(&options, gauges, Some(far.clone()), Some(cold));
        let put = |n: u8, value: &[u8]| core.put(&[n], value, PutMeta::default()).unwrap();
        (0..20).for_each(|n| put(n, &[n; 1_000]));
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).unwrap() > 1);
        let (leaf, high) = core.tree.share_at(b"");
        let high = high.unwrap();
        if is_joined {
            joins(&core, &leaf, &high);
        }
        put(0, &b"mark of a leaf, ".repeat(20));
        {
            let guard = core.tree.pin();
            let _ownership = leaf.try_own().unwrap();
            core.upkeep().settle_leaf(&leaf, Goal::Keep, &guard);
        }
        move_all(&core, true);
        assert!(damage_marked(&path) >= 20 && !far.is_damaged());
        change(&core, &leaf, &high);
        assert!(far.is_damaged(), "change {number}");
    }
}

/// A coding of damaged bytes would be taken for sound.
// A mapping does not run under Miri.
#[test]
#[cfg(not(miri))]
fn a_large_value_that_is_damaged_in_far_memory_is_not_coded_anew() {
    let value = b"mark of the sheep, ".repeat(300);
    // The dictionary codes the damaged value as well as the sound one.
    let damaged = b"lark of the sheep, ".repeat(300);
    for is_damaged in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("far");
        let core = core_over(&far_in(&path), None);
        core.put(b"key", &value, PutMeta::default()).unwrap();
        core.settle();
        move_all(&core, true);
        if is_damaged {
            assert!(damage_marked(&path) >= 300);
        }
        let tokens = Dictionary::train(&[value.as_slice(), damaged.as_slice()], 12, 1).unwrap();
        core.tree.dictionaries.adopt(Coding::Tokens(Arc::new(tokens)));
        let guard = core.tree.pin();
        let (leaf, _) = core.tree.locate(b"key", &guard);
        let _ownership = leaf.try_own().unwrap();
        core.upkeep().settle_leaf(leaf, Goal::Recode, &guard);
        let larges = leaf.state(&guard).body.larges();
        let generations: Vec<Option<u32>> = larges.map(|large| large.generation()).collect();
        assert_eq!(generations, [(!is_damaged).then_some(1)]);
    }
}

// There is an SSD: not for Miri.
#[test]
#[cfg(not(miri))]
fn a_leaf_lies_where_it_was_demoted_to_until_it_is_promoted() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let gauges = Arc::new(Gauges::new(None));
    let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
    let cold = Cold::open(Arc::new(RecordingDisk::new()), &ssd, &gauges, |_, _| Ok(())).unwrap();
    let core = Core::with_places(&options, gauges, Some(FarMemory::on_heap(1 << 20)), Some(cold));
    core.put(b"key", &[7; 1_000], PutMeta::default()).unwrap();
    let (leaf, _) = core.tree.share_at(b"");
    let place = || leaf.state(&core.tree.pin()).place();
    let demote = |to, from| {
        let parts = Parts { from, records: true, larges: Pick::All, densely: false };
        core.moves().demote(&leaf, to, parts)
    };
    assert_eq!((demote(Place::Dram, Side::Dram), place()), (Demoted::Kept, Place::Dram));
    // The landing is merged on the way.
    assert!(matches!(demote(Place::Far, Side::Dram), Demoted::Freed(900..)));
    assert_eq!(place(), Place::Far);
    assert!(core.moves().promote(&leaf, Place::Far) && !core.moves().promote(&leaf, Place::Far));
    assert_eq!(place(), Place::Dram);
    // DRAM keeps a share of the copy, so less is free than the body had.
    assert!(matches!(demote(Place::Far, Side::Dram), Demoted::Freed(900..)));
    let ownership = leaf.try_own().unwrap();
    assert_eq!([Place::Far, Place::Ssd].map(|to| demote(to, Side::Far)), [Demoted::Busy; 2]);
    assert!(![Place::Far, Place::Ssd].iter().any(|from| core.moves().promote(&leaf, *from)));
    drop(ownership);
    assert!(matches!(demote(Place::Ssd, Side::Far), Demoted::Freed(900..)));
    assert_eq!(place(), Place::Ssd);
    assert!(core.moves().promote(&leaf, Place::Ssd) && !core.moves().promote(&leaf, Place::Ssd));
    assert_eq!(place(), Place::Dram);
    let mut value = Vec::new();
    core.read(b"key", &mut value).unwrap().unwrap();
    assert_eq!(value, [7; 1_000]);
}

/// Several threads found room there, and one of them took it.
#[test]
fn a_large_value_that_far_memory_has_no_room_for_any_more_keeps_to_the_limit() {
    let far = FarMemory::on_heap(64 << 10);
    let core = core_over(&far, None);
    let limit_bytes = core.tree.gauges.held() + 50_000;
    core.tree.gauges.set_limit(Some(limit_bytes));
    let _others = far.put(&[0; 60_000]).unwrap();
    let new_of = |bytes: usize| core.writes().new_large_in(&vec![7; bytes], ChunkPlace::Far(&far));
    let refusal = Error::from(new_of(100_000).err().unwrap());
    assert!(matches!(refusal, Error::MemoryAndFarLimit { .. }), "{refusal}");
    assert!(core.tree.gauges.held() <= limit_bytes);
    assert!(new_of(40_000).is_ok(), "DRAM has room for that");
}

#[test]
fn demoted_bytes_are_counted_where_they_lie_and_freed() {
    let far = FarMemory::on_heap(1 << 20);
    let core = core_over(&far, None);
    let larges = if cfg!(miri) { 1 } else { 20 };
    let put = |n: u32| core.put(&n.to_be_bytes(), &value_of(n), PutMeta::default());
    (0..10 * larges).for_each(|n| put(n).unwrap());
    core.settle();
    let before = core.tree.gauges.memory_use();
    move_all(&core, true);
    let after = core.tree.gauges.memory_use();
    assert_eq!((after.raw_body_bytes, after.logical_bytes), (0, before.logical_bytes));
    // Values of 3,000 bytes, which the allocator rounds up to 3,072.
    let larges = u64::from(larges);
    assert_eq!(after.far_large_bytes, larges * 3072);
    let freed =
        || before.large_bytes.saturating_sub(core.tree.gauges.memory_use().large_bytes) >= larges * 3000;
    assert!(eventually(&core, freed), "{before:?}, {after:?}");
    core.maintenance().clear().unwrap();
    assert!(eventually(&core, || far.usage().used_bytes == 0), "{:?}", core.tree.gauges.memory_use());
}
