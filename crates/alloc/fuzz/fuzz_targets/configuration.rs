//! Reads any bytes as the variables of the environment, and as a change of a running program. The result must be valid
//! options, or a sentence of printable characters.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ziptier_alloc::configuration::{Configuration, Mistake, Variables};

fuzz_target!(|input: (Option<&[u8]>, Option<&[u8]>, Option<&[u8]>, Option<&[u8]>)| {
    let (options, tiers, thresholds, nodes) = input;
    judge(Configuration::read(&Variables { options, tiers, thresholds, nodes }));
    let mut configuration = Configuration::DEFAULT;
    let changed = configuration.change(options.unwrap_or_default());
    judge(changed.map(|()| configuration));
});

fn judge(read: Result<Configuration, Mistake<'_>>) {
    match read {
        Ok(configuration) => {
            assert!(configuration.is_valid());
            assert!((1..=60_000).contains(&configuration.period_ms));
        }
        Err(mistake) => {
            let sentence = mistake.to_string();
            assert!(sentence.len() < 400 && !sentence.contains(char::is_control), "{sentence}");
        }
    }
}
