//! A yardstick that answers wrongly would make every comparison wrong.

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
