//! A yardstick that answers wrongly would make every comparison wrong.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ziptier_eval::Registry;

#[test]
fn every_target_conforms() {
    for target in Registry::with(vec![]).iter().filter(|target| !target.is_foreign) {
        for codec in &target.codecs {
            target
                .check_conformance(codec)
                .unwrap_or_else(|error| panic!("{} with {codec}: {error}", target.name));
        }
    }
}

/// A raw medium whose slots are wrong would be a wrong yardstick of every store on it.
#[test]
fn a_raw_medium_conforms_and_is_gone_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let target = format!("file:{}", path.display());
    Registry::with(vec![]).find(&target).unwrap().check_conformance_of(&target, "none").unwrap();
    assert!(!path.exists());
}
