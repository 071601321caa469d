//! The codecs on their own, for the quick check.

use std::sync::Arc;
use ziptier_codec::block::none::Copying;
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{self, Setting};
use ziptier_codec::conformance;
use ziptier_codec::format::Format;
use ziptier_codec::token::{Dictionary, Effort, Encoder};
use ziptier_eval::CodecCheck;

/// Every codec.
pub(crate) const CODECS: &[CodecCheck] = &[
    CodecCheck { name: "none", round_trip: none_round_trips },
    CodecCheck { name: "token", round_trip: token_round_trips },
    CodecCheck { name: "lz4", round_trip: |values| blocks_round_trip(Format::Lz4, values) },
    CodecCheck { name: "zstd", round_trip: |values| blocks_round_trip(Format::Zstd, values) },
    CodecCheck { name: "deflate", round_trip: |values| blocks_round_trip(Format::Deflate, values) },
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

/// By every engine that this machine has, and by the preferred one with a dictionary that was stored and loaded again.
fn blocks_round_trip(format: Format, values: &[&[u8]]) -> Result<(), String> {
    let joined = values.concat();
    // The suite damages each block in hundreds of ways, so a few blocks are enough. Values of several lengths join to
    // the same blocks.
    let blocks: Vec<&[u8]> = joined.chunks(4096).step_by(24).collect();
    let setting = Setting::new(format);
    let mut engines = Vec::new();
    for name in Setting::engine_names(format) {
        match setting.engine_named(name) {
            // An engine that is not installed cannot be checked.
            Err(SettingError::Unavailable { .. }) => {}
            engine => engines.push(engine.map_err(|error| error.to_string())?),
        }
    }
    // Values that have nothing in common train no dictionary.
    if let Ok(trained) = block::Dictionary::train(format, values, 4096, 1) {
        let loaded = block::Dictionary::from_bytes(&trained.to_bytes()).map_err(|error| error.to_string())?;
        engines.push(setting.with_dictionary(Arc::new(loaded)).engine().map_err(|error| error.to_string())?);
    }
    for engine in engines {
        conformance::check_engine(engine.as_ref(), &blocks)
            .map_err(|failure| format!("engine {}: {failure}", engine.name()))?;
    }
    Ok(())
}
