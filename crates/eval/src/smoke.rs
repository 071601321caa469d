//! `--smoke` checks in under a minute that everything works on this machine, before any figure is trusted.

use crate::bench::ProgressLine;
use crate::bench::plan::Plan;
use crate::bench::process::Launcher;
use crate::data::generator::Generator;
use crate::error::Error;
use crate::run::spec::RunSpec;
use crate::target::registry::Registry;
use crate::workload::Workload;

/// A codec that can be tried on its own.
#[derive(Debug, Clone, Copy)]
pub struct CodecCheck {
    /// Its name.
    pub name: &'static str,
    /// Compresses the values, decompresses them and compares; the error says what differed.
    pub round_trip: fn(&[&[u8]]) -> Result<(), String>,
}

/// Uncompressed maps hold at least their raw bytes, and not tenfold.
const UNCOMPRESSED_HELD: std::ops::RangeInclusive<f64> = 1.0..=10.0;
/// Enough for landings to be packed many times over.
const SMOKE_OPERATIONS: u64 = 30_000;
/// With start, load and check.
const SMOKE_RUN_SECONDS: f64 = 1.0;

/// Checks the codecs, every target of our own against the oracle, concurrency, and that memory is counted. Tells each
/// finished check to `say`.
pub fn smoke(
    plan: &Plan,
    registry: &Registry,
    launcher: &Launcher,
    codecs: &[CodecCheck],
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let failed = |check: String| move |reason: String| Error::Smoke { check, reason };
    let checked = || registry.iter().filter(|target| !target.is_foreign);
    for codec in codecs {
        let check = format!("codec {} round-trips", codec.name);
        round_trips(codec).map_err(failed(check.clone()))?;
        say(&check);
    }
    for target in checked() {
        for codec in &target.codecs {
            let with = if *codec == "none" { String::new() } else { format!(" with codec {codec}") };
            let check = format!("{}{with} answers like its model, by one thread and three", target.name);
            target.check_conformance(codec).map_err(failed(check.clone()))?;
            say(&check);
        }
    }
    let runs = checked().map(|target| target.codecs.len()).sum::<usize>();
    let mut line = ProgressLine::new(runs, runs as f64 * SMOKE_RUN_SECONDS);
    for target in checked() {
        for codec in &target.codecs {
            let spec = RunSpec {
                codec: (*codec).into(),
                tunable: target.tunable,
                workload: Workload::mixed("read=60,write=30,delete=5,scan=5")?,
                threads: 2,
                keys: 20_000,
                operations: Some(SMOKE_OPERATIONS),
                warmup_seconds: 0.0,
                ..RunSpec::new(target.name, &plan.corpus)
            };
            line.next(&spec.name());
            let (measured, _) = launcher.run(&spec, &mut |_| {})?;
            line.clear();
            let check =
                format!("{} answers rightly in its own process, with its memory counted", spec.name());
            if let Some(first) = measured.first_mismatch {
                return Err(failed(check)(format!(
                    "{} wrong answers; the first: {first}",
                    measured.mismatches
                )));
            }
            let held = measured.held_per_raw().unwrap_or(0.0);
            let (right, expected) = match (target.is_harness, target.tunable) {
                (true, _) => (held < 0.5, "nothing is stored, so next to nothing"),
                (_, true) => (held > 0.0 && held < *UNCOMPRESSED_HELD.end(), "more than nothing"),
                _ => (UNCOMPRESSED_HELD.contains(&held), "at least the raw bytes, uncompressed"),
            };
            if !right {
                return Err(failed(check)(format!(
                    "{held:.2} bytes held per raw byte; expected: {expected}"
                )));
            }
            say(&check);
        }
    }
    Ok(())
}

fn round_trips(codec: &CodecCheck) -> Result<(), String> {
    let random = Generator::Random { compressible: 0.0 };
    for generator in [Generator::Json, Generator::Log, Generator::TimeSeries, random] {
        let bytes = generator.bytes(256 << 10, 128, 5);
        for value_bytes in [1, 17, 128, 4_096] {
            let values: Vec<&[u8]> = bytes.chunks(value_bytes).take(2_000).chain([&[][..]]).collect();
            (codec.round_trip)(&values)
                .map_err(|reason| format!("{generator:?}, values of {value_bytes} bytes: {reason}"))?;
        }
    }
    Ok(())
}
