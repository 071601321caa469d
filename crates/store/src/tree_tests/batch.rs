//! Batches whose conditions lie on an SSD, and landings that wait for packers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ziptier_tree::batch::{BEFORE_COMPARISON, Batch, Condition, UNKNOWNS_MAX};
use ziptier_tree::record::PutMeta;

use crate::core::Core;

/// Records that came up from SSD went down again before the locks were taken, and the batch never ended. A store
/// without a limit has room for them in the end.
#[test]
fn a_batch_whose_conditions_go_down_to_ssd_again_each_time_is_refused() {
    /// More often than a batch tries.
    const TIMES: u32 = 100;
    let core = Arc::new(crate::places::ssd::tests::core_over(ziptier_media::testing::RecordingDisk::new()));
    let left = Rc::new(Cell::new(TIMES));
    let send_down = {
        let (core, left) = (core.clone(), left.clone());
        move || {
            if let Some(one_less) = left.get().checked_sub(1) {
                left.set(one_less);
                core.moves().send_some_to_ssd(|| true).expect("there is room");
            }
        }
    };
    core.put(b"key", b"value", PutMeta::default()).expect("there is room");
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
    let batch = Batch::new().require(b"key", Condition::ValueIs(b"value".to_vec())).put(b"new", b"value");
    core.set_memory_limit(Some(1 << 30));
    BEFORE_COMPARISON.set(Some(Box::new(send_down)));
    let refused = core.write(&batch).map_err(|error| error.kind());
    assert_eq!(refused, Err(crate::ErrorKind::NoRoom));
    assert_eq!(left.get(), TIMES - UNKNOWNS_MAX);
    assert_eq!(core.tree.ranges().count_keys(), 1);
    core.set_memory_limit(None);
    assert_eq!(core.write(&batch), Ok(true));
    assert_eq!(left.get(), 0);
    assert_eq!(core.tree.ranges().count_keys(), 2);
}

/// It stayed open until its leaf was idle. A packer hands it to the queue, so that the next one takes it.
#[test]
fn a_landing_that_grows_while_its_leaf_has_an_owner_is_sealed_by_the_pack_before_it() {
    let core = Core::new(&crate::options::Options {
        codec: ziptier_tree::codec_options::CodecChoice::None,
        background_packing: true,
        ..Default::default()
    });
    core.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
    let guard = core.tree.pin();
    let (leaf, _) = core.tree.locate(b"key", &guard);
    leaf.seal(&guard);
    let batch = (0..1_000_u32).fold(Batch::new(), |batch, n| batch.put(&n.to_be_bytes(), b"value"));
    assert_eq!(core.write(&batch), Ok(true));
    // No packer is started.
    for is_left in [true, false] {
        let queued = core.backlog.queue.pop().expect("it waits for a packer");
        assert_eq!(core.maintenance().pack_queued(&queued, &guard), 1);
        assert_eq!(leaf.state(&guard).is_unsettled(), is_left);
    }
    assert!(core.backlog.queue.pop().is_none());
    assert_eq!(core.tree.ranges().count_keys(), 1_001);
}
