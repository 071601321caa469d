//! A warm-up that lasts until the throughput is steady, and the search for saturation that follows it.
//!
//! A target that was just loaded works off what it put off, and its caches fill. A search meanwhile finds the number of
//! threads of a target that is no more, so it begins when the throughput is steady, or after the longest warm-up.

use crate::error::Error;
use crate::run::has_not_ended;
use crate::run::saturation::{Effort, Saturation, saturate};
use crate::run::spec::RunSpec;
use crate::run::steady::{Steadiness, WarmedUp};
use crate::run::timed::{End, Span, Window, whole_tenths};
use crate::run::window::{Arena, Offer};
use crate::run::worker::Buffers;
use crate::workload::pace::Pace;

/// Threads of a warm-up before a search, for each processor: enough that some wait for the medium while others work.
const THREADS_PER_PROCESSOR: u64 = 2;
/// The warm-up of a window that follows another.
const AGAIN_SECONDS: f64 = 0.5;

/// The warm-up of a window on a target that is warm.
pub(crate) fn again_warmup_seconds(warmup_seconds: f64) -> f64 {
    warmup_seconds.min(AGAIN_SECONDS)
}

impl Arena<'_> {
    /// Works until the throughput is steady, for the longest warm-up at most. Nothing where a run warms up for a fixed
    /// time, which its first window does itself.
    pub(crate) fn warm_up(
        &self,
        buffers: &mut Vec<Buffers>,
        progress: &dyn Fn(&str),
    ) -> Result<Option<WarmedUp>, Error> {
        let spec = self.timed.spec;
        let left = spec.warmup_max().map(|seconds_max| seconds_max - spec.warmup_seconds);
        let Some(left) = left.filter(|left| *left > 0.0) else { return Ok(None) };
        let threads = match spec.pace {
            Pace::Saturated(threads_max) => {
                (THREADS_PER_PROCESSOR * spec.processors() as u64).min(threads_max)
            }
            _ => spec.threads,
        };
        progress(&format!("warming up with {threads} threads until the throughput is steady"));
        let span = Span { warmup_seconds: spec.warmup_seconds, end: End::Steady(left), is_row: false };
        let window = self.window(buffers, Offer { threads, rate: None, span });
        has_not_ended(spec, buffers.iter().map(|one| &one.tally.mistakes))?;
        let steadiness = window.steadiness.unwrap_or(Steadiness::Unsure { change_max: None });
        Ok(Some(WarmedUp { threads, sec: spec.warmup_seconds + window.wall_sec, steadiness }))
    }

    /// Closed loop: searches the number of threads from which on there is no more throughput, with a short window for
    /// each measurement. Then measures at the peak until the throughput is steady, for `row`, whose warm-up is that of
    /// the first window.
    pub(crate) fn saturate(
        &self,
        buffers: &mut Vec<Buffers>,
        threads_max: u64,
        row: Span,
        progress: &dyn Fn(&str),
    ) -> Result<(Window, Saturation), Error> {
        let spec = self.timed.spec;
        let mut measured = |offer: Offer| {
            let window = self.window(buffers, offer);
            has_not_ended(spec, buffers.iter().map(|one| &one.tally.mistakes))?;
            Ok(window.operations as f64 / window.wall_sec)
        };
        let (peak, found) = search(spec, threads_max, row, progress, &mut measured)?;
        progress(&format!("waiting for a steady throughput of {} threads", found.peak_load));
        Ok((self.window(buffers, peak), found))
    }
}

/// Searches the number of threads from which on `measured` tells no more throughput. Returns the window at the peak
/// that is to be measured then.
fn search(
    spec: &RunSpec,
    threads_max: u64,
    row: Span,
    progress: &dyn Fn(&str),
    measured: &mut dyn FnMut(Offer) -> Result<f64, Error>,
) -> Result<(Offer, Saturation), Error> {
    /// Of the longest window at the peak.
    const SHARE: f64 = 0.05;
    const SECONDS: std::ops::RangeInclusive<f64> = 0.3..=3.0;
    let end = match spec.operations {
        Some(operations) => End::Operations(operations),
        None => {
            let seconds = (spec.seconds * SHARE).clamp(*SECONDS.start(), *SECONDS.end());
            End::Seconds(whole_tenths(seconds))
        }
    };
    let mut warmup_seconds = row.warmup_seconds;
    let found = saturate(Effort { load_max: threads_max, ..Effort::default() }, &mut |threads| {
        progress(&format!("measuring {threads} threads"));
        let span = Span { warmup_seconds, end, is_row: false };
        warmup_seconds = again_warmup_seconds(warmup_seconds);
        measured(Offer { threads, rate: None, span })
    })?;
    let end = spec.operations.map_or(End::Steady(spec.seconds), End::Operations);
    let span = Span { warmup_seconds, end, ..row };
    Ok((Offer { threads: found.peak_load, rate: None, span }, found))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::run::simulated::{Time, simulated_by};
    use crate::run::window::Windows;
    use crate::target::{Answers, Config, Records, Target, TargetError};
    use crate::targets::BTreeMapTarget;

    /// Threads beyond these give no more throughput.
    const KNEE: u64 = 8;
    const GET_NS: f64 = 4e6;
    /// How much faster a fresh store is.
    const FRESH: f64 = 16.0;
    /// Little time passes by such calls while the thread that looks at the clock has no processor.
    const HELD_UP_MAX: Duration = Duration::from_millis(20);

    /// A store in simulated time, which becomes slower for a while.
    struct Aging {
        records: BTreeMapTarget,
        now_ns: Arc<Time>,
        aged_ns: f64,
        /// Threads that have read and have not ended.
        threads: Arc<AtomicU64>,
    }

    /// One of the threads; it ends with this.
    struct Present(Arc<AtomicU64>);

    impl Drop for Present {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    thread_local! {
        static PRESENT: RefCell<Option<Present>> = const { RefCell::new(None) };
    }

    impl Target for Aging {
        type Batch = Answers;

        /// The option of the landing stands for the seconds until a store has aged.
        fn open(config: &Config) -> Result<Self, TargetError> {
            Ok(Aging {
                records: BTreeMapTarget::open(config)?,
                now_ns: Arc::default(),
                aged_ns: config.landing_bytes.unwrap_or_default() as f64 * 1e9,
                threads: Arc::default(),
            })
        }

        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
            PRESENT.with_borrow_mut(|present| {
                present.get_or_insert_with(|| {
                    self.threads.fetch_add(1, Ordering::Relaxed);
                    Present(Arc::clone(&self.threads))
                });
            });
            let threads = self.threads.load(Ordering::Relaxed).clamp(1, KNEE) as f64;
            let age = self.now_ns.load(Ordering::Relaxed) as f64 / self.aged_ns.max(1.0);
            let get_ns = GET_NS * FRESH.powf(age.min(1.0) - 1.0) / threads;
            self.now_ns.fetch_add(get_ns as u64, Ordering::Relaxed);
            // So that no thread has a processor for itself.
            thread::sleep(Duration::from_micros(20));
            self.now_ns.hold_up(HELD_UP_MAX);
            self.records.get(key, value)
        }

        fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
            self.records.multi_get(keys, batch)
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
            self.records.put(key, value)
        }

        fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
            self.records.delete(key)
        }

        fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
            self.records.scan(from, limit, records)
        }
    }

    /// A search on a store that ages for so many seconds.
    fn spec(aged_seconds: usize, warmup_seconds: f64, warmup_seconds_max: f64) -> RunSpec {
        RunSpec {
            landing_bytes: Some(aged_seconds),
            pace: Pace::Saturated(64),
            seconds: 20.0,
            warmup_seconds,
            warmup_seconds_max: Some(warmup_seconds_max),
            ..RunSpec::new("aging", "")
        }
    }

    fn now(target: &Aging) -> Arc<Time> {
        Arc::clone(&target.now_ns)
    }

    /// The windows of a search.
    fn searched(aged_seconds: usize, warmup_seconds: f64, warmup_seconds_max: f64) -> Windows {
        let spec = spec(aged_seconds, warmup_seconds, warmup_seconds_max);
        simulated_by(spec, now, |_, arena, buffers| arena.windows(buffers, &|_| {}).unwrap())
    }

    fn off(windows: &Windows) -> f64 {
        windows.saturation.as_ref().unwrap().knee / KNEE as f64 - 1.0
    }

    #[test]
    fn a_store_that_slows_down_is_searched_once_it_is_steady() {
        let windows = searched(20, 0.5, 120.0);
        let warm_up = windows.warm_up.unwrap();
        assert!(warm_up.steadiness.is_steady() && warm_up.sec > 20.0, "{warm_up:?}");
        assert!(warm_up.before("searched").contains("when throughput was steady"));
        assert!(off(&windows).abs() < 0.05, "{:?}", windows.saturation);
        // Without that warm-up, a thread finds the store fresh and several find it slow.
        let windows = searched(20, 0.5, 0.0);
        assert_eq!(windows.warm_up, None);
        assert!(off(&windows).abs() > 0.05, "{:?}", windows.saturation);
    }

    #[test]
    fn a_search_while_throughput_changes_says_so() {
        let spec = spec(200, 0.5, 20.0);
        let warm_up = simulated_by(spec, now, |_, arena, buffers| arena.warm_up(buffers, &|_| {}).unwrap());
        let warm_up = warm_up.unwrap();
        let Steadiness::Changing { change } = warm_up.steadiness else { panic!("{warm_up:?}") };
        // Ten of 200 seconds, in which the throughput falls to a sixteenth.
        assert!((change + 0.14).abs() < 0.04, "{change}");
        let told = warm_up.before("searched");
        assert!(told.starts_with("SEARCHED WHILE throughput still changed by 1"), "{told}");
        assert!(told.contains("after a warm-up of 2") && told.ends_with("--warmup-max"), "{told}");
    }

    #[test]
    fn only_the_first_window_of_a_search_warms_up_for_long() {
        let spec = RunSpec::new("null", "");
        let row = Span { warmup_seconds: 20.0, end: End::Seconds(1.0), is_row: true };
        let mut warmups = Vec::new();
        let (peak, found) = search(&spec, 64, row, &|_| {}, &mut |offer| {
            warmups.push(offer.span.warmup_seconds);
            assert!(!offer.span.is_row);
            Ok(offer.threads.min(KNEE) as f64)
        })
        .unwrap();
        assert_eq!(found.peak_load, peak.threads);
        assert!(peak.span.is_row && peak.span.warmup_seconds == AGAIN_SECONDS);
        assert!(warmups[0] == 20.0 && warmups.len() > 10, "{warmups:?}");
        assert!(warmups[1..].iter().all(|seconds| *seconds == AGAIN_SECONDS), "{warmups:?}");
    }
}
