//! Bodies of blocks that the sweep fills from their neighbours.

use ziptier_tree::codec_options::{BlockOptions, CodecChoice};
use ziptier_tree::record::PutMeta;

use crate::core::Core;
use crate::options::Options;

fn value(random: &mut fastrand::Rng, n: u32) -> Vec<u8> {
    let noise: String = (0..random.usize(20..70)).map(|_| random.alphanumeric()).collect();
    format!("value {n} of a body that is to be full: {noise}").into_bytes()
}

#[test]
fn settled_bodies_are_full_and_hold_what_was_put() {
    for (codec, block_bytes) in
        [(CodecChoice::Zstd, 4096), (CodecChoice::Deflate, 1024), (CodecChoice::Lz4, 16 << 10)]
    {
        let block = BlockOptions { bytes: block_bytes, ..BlockOptions::default() };
        let core = Core::new(&Options { codec, block, background_threads: 0, ..Options::default() });
        let mut random = fastrand::Rng::with_seed(5);
        let values: Vec<_> = (0..6000).map(|n| value(&mut random, n)).collect();
        let mut order: Vec<u32> = (0..6000).collect();
        random.shuffle(&mut order);
        for n in order {
            core.put(&n.to_be_bytes(), &values[n as usize], PutMeta::default()).unwrap();
        }
        // Each lap fills every leaf from its right neighbour.
        (0..4).for_each(|_| core.settle());

        let guard = core.tree.pin();
        let mut state = core.tree.locate(&[], &guard).1;
        let mut leaves = 0;
        while let Some(right) = state.right(&guard) {
            let records_pct = state.body.len() * 100 / core.tree.limits.records_full;
            let full_pct = records_pct.max(state.body.asked_bytes() * 100 / core.tree.limits.bytes_full);
            assert!((95..=125).contains(&full_pct), "{codec}, leaf {leaves}: {full_pct} % full");
            state = right.state(&guard);
            leaves += 1;
        }
        assert!(leaves > 3, "{codec}: {leaves}");
        for (n, value) in values.iter().enumerate() {
            let mut found = Vec::new();
            assert!(core.read(&(n as u32).to_be_bytes(), &mut found).unwrap().is_some());
            assert_eq!(&found, value, "{codec}");
        }
    }
}
