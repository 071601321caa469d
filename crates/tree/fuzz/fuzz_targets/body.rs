//! A body from any bytes: refused, or all that readers and packs look at can be read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ziptier_tree::body::{Body, Referents};
use ziptier_tree::record::key_hash;

fuzz_target!(|bytes: &[u8]| {
    let referents = Referents { tokens: true, codes: true, blocks: true, larges: 3, below: true };
    let Ok(body) = Body::from_untrusted(bytes, referents) else { return };
    for index in 0..body.len() {
        let key = body.entry(index).key.to_vec();
        assert_eq!(body.find(&key, key_hash(&key)), Some(index));
    }
    let _ = (body.raw_bytes(), body.earliest_expiry_ms());
});
