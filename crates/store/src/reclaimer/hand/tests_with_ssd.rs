//! A hand asks an SSD for leaves to change, and demotes large values beside the records of leaves.

use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_media::testing::{FailingDisk, RecordingDisk};
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::memory::Gauges;
use ziptier_tree::record::PutMeta;

use super::*;
use crate::core::Core;
use crate::options::Options;
use crate::places::ssd::{Cold, SsdOptions};

fn core_over(disk: impl Disk + 'static) -> Core {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let gauges = Arc::new(Gauges::new(None));
    let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
    let cold = Cold::open(Arc::new(disk), &ssd, &gauges, |_, _| Ok(())).expect("the folder is empty");
    Core::with_places(&options, gauges, None, Some(cold))
}

fn put(core: &Core, key: &[u8], value: &[u8]) {
    core.put(key, value, PutMeta::default()).expect("no limit is set");
}

/// The leaves that the hand has passed.
fn passed(core: &Core) -> usize {
    let end = core.pressure.hands.take(Side::Dram).expect("nobody moves it").hand.cursor.clone();
    let (mut leaves, mut cursor) = (0, Vec::new());
    while cursor < end {
        leaves += 1;
        cursor = core.tree.share_at(&cursor).1.expect("the hand is at a later one").to_vec();
    }
    leaves
}

#[test]
fn a_full_ssd_is_asked_for_some_leaves_and_after_a_refusal_for_one() {
    let disk = FailingDisk::that_fills(Arc::new(RecordingDisk::new()));
    let core = core_over(disk.clone());
    (0..40_000_u32).for_each(|n| put(&core, &n.to_be_bytes(), &[7; 100]));
    core.settle();
    disk.set_full(true);
    assert_eq!(core.reclaimer().demotions().move_hand(Move::of(1 << 20)), Moved::Stuck);
    assert_eq!(passed(&core), REFUSALS_MAX);
    core.findings.exhausted.store(true, Relaxed);
    assert_eq!(core.reclaimer().demotions().move_hand(Move::of(1 << 20)), Moved::Stuck);
    assert_eq!(passed(&core), REFUSALS_MAX + 1);
}

/// Their leaf has nothing else to send, or would have to be merged with its image.
#[test]
fn large_values_above_a_leaf_on_ssd_go_without_its_records() {
    for reach in [Reach::Cold, Reach::Written] {
        let core = core_over(RecordingDisk::new());
        put(&core, b"below", &[7; 1_000]);
        core.settle();
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        put(&core, b"large", &[7; 10_000]);
        core.settle();
        if reach == Reach::Written {
            put(&core, b"later", b"value");
        }
        let (leaf, _) = core.tree.share_at(b"");
        let demoted = core.reclaimer().demotions().demote_within_to_ssd(&leaf, reach, Side::Dram);
        assert!(matches!(demoted, Demoted::Freed(10_000..)), "{demoted:?}");
        let guard = core.tree.pin();
        let state = leaf.state(&guard);
        assert!(state.below.is_some() && state.body.larges().all(|large| large.is_on_ssd()));
    }
}
