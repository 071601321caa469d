//! Landings that wait for packers.

use ziptier_tree::record::PutMeta;

use crate::core::Core;
use crate::options::Options;

#[test]
fn a_landing_above_the_watermark_waits_for_a_packer_and_takes_appends_meanwhile() {
    let options = Options {
        landing_bytes: 1024,
        background_packing: true,
        landing_watermark_pct: 50,
        ..Options::default()
    };
    // No packer is started.
    let core = Core::new(&options);
    for n in 0u32..8 {
        core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(&[], &guard);
        assert_eq!(core.tree.is_over_watermark(state), n >= 4, "{n}");
        assert!(state.sealed.is_none());
        assert_eq!(leaf.enqueue(), n < 4, "{n}");
        if n < 4 {
            leaf.dequeue();
        }
    }
}
