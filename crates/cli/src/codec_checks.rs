//! The codecs on their own, for the quick check.

use ziptier_codec::block::none::Copying;
use ziptier_codec::conformance;
use ziptier_codec::token::{Dictionary, Effort, Encoder};
use ziptier_eval::CodecCheck;

/// Every codec.
pub(crate) const CODECS: &[CodecCheck] = &[
    CodecCheck { name: "none", round_trip: none_round_trips },
    CodecCheck { name: "token", round_trip: token_round_trips },
];

fn none_round_trips(values: &[&[u8]]) -> Result<(), String> {
    conformance::check_engine(&Copying::new(), values).map_err(|failure| failure.to_string())?;
    Ok(())
}

/// With a dictionary that was stored and loaded again, in the smallest and the largest size.
fn token_round_trips(values: &[&[u8]]) -> Result<(), String> {
    for bits in [12, 16] {
        let trained = Dictionary::train(values, bits, 1).map_err(|error| error.to_string())?;
        let loaded = Dictionary::from_bytes(&trained.to_bytes()).map_err(|error| error.to_string())?;
        let mut encoder = Encoder::new();
        conformance::check_values(
            &mut conformance::Tokens {
                dictionary: &loaded,
                encoder: &mut encoder,
                effort: Effort::default(),
            },
            values,
        )
        .map_err(|failure| format!("{bits} bits: {failure}"))?;
    }
    Ok(())
}
