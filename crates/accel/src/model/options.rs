//! The options of a model: devices, queues, speed.

use super::injection::{Injection, Misfortune};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How fast a modelled device is.
///
/// A job waits for an engine. The engine is then busy for the job's bytes at the rate of its direction, and the job
/// completes a latency later. Bytes are uncompressed ones. The timing ignores contention for memory bandwidth and the
/// last-level cache. It ignores misses of the address translation cache, which dominate the tail of latencies on real
/// machines. It also ignores how the rate depends on the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Uncompressed gigabytes (10^9) that one engine compresses in a second. The default is 1.9: a user measured that
    /// rate of one engine, and the maintainers of Intel's QPL did not dispute it (its issue 51, May 2025).
    pub compress_gbps: f64,
    /// Engines of a device that can compress. The default is 2: in that measurement two engines reached 3.8 GB/s, and
    /// further engines added nothing.
    pub compress_engines: u32,
    /// Uncompressed gigabytes that one engine decompresses in a second; also the rate of all other operations. The
    /// default is 3.75: the same thread quotes some 30 GB/s for the eight engines of a device.
    pub decompress_gbps: f64,
    /// The time from the submission of a job that need not wait to its completion, without the time of its bytes. The
    /// default of 1.5 µs is an assumption: no trustworthy figure for one operation has been published. Enqueueing alone
    /// takes some hundred nanoseconds.
    pub compress_latency: Duration,
    /// The same for everything else: 1 µs, likewise assumed.
    pub decompress_latency: Duration,
    /// The time that a job waits for a page: 300 µs ("hundreds of microseconds", as users of the device report).
    pub fault_latency: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            compress_gbps: 1.9,
            compress_engines: 2,
            decompress_gbps: 3.75,
            compress_latency: Duration::from_nanos(1500),
            decompress_latency: Duration::from_micros(1),
            fault_latency: Duration::from_micros(300),
        }
    }
}

/// The options of a model. Options from a string such as `devices=4,depth=128,decompress_gbps=3.5` have timing. The
/// default has none, and jobs complete as soon as they are done.
///
/// | key | meaning | default |
/// |---|---|---|
/// | `devices` | devices, each with one queue | 1 (the largest processors have 4 per socket) |
/// | `engines` | engines of a device | 8, as the hardware has |
/// | `depth` | jobs that the queue of a device holds | 128, the usual configuration |
/// | `generation` | 1 or 2 | 1 |
/// | `timing` | `on` or `off` | `on` |
/// | `compress_gbps`, `compress_engines`, `decompress_gbps` | see [`Timing`] | 1.9, 2, 3.75 |
/// | `compress_latency_us`, `decompress_latency_us`, `fault_latency_us` | see [`Timing`], in microseconds | 1.5, 1, 300 |
/// | `full_one_in` | one submission in so many finds the queue full | none |
/// | `lost_after` | jobs after which each device is gone | never |
#[derive(Debug, Clone, PartialEq)]
pub struct ModelOptions {
    /// Devices, each with one shared queue.
    pub devices: u32,
    /// Engines of a device.
    pub engines: u32,
    /// Jobs that the queue of a device holds. A job leaves the queue when it has ended. On the hardware it leaves
    /// earlier, when an engine begins with it.
    pub depth: u32,
    /// 1, or 2 for a device that makes the headers of blocks and loads parts of states.
    pub generation: u8,
    /// The most bytes of a source or a destination: 2 MiB, the default of the Linux driver.
    pub transfer_bytes_max: u32,
    /// Whether the queue lets jobs wait for pages.
    pub block_on_fault: bool,
    /// The speed; `None` for the speed of the software.
    pub timing: Option<Timing>,
    /// Jobs are executed within their submission, without a thread.
    pub is_synchronous: bool,
    /// One submission in this many finds the queue full, whether it is or not; 0 for none.
    pub full_one_in: u32,
    /// Jobs after which each device is gone.
    pub lost_after: Option<u64>,
}

impl ModelOptions {
    /// The faults of each device.
    pub(super) fn injection(&self) -> Injection {
        let one_in = vec![(self.full_one_in, Misfortune::QueueFull)];
        Injection { one_in, lost_after: self.lost_after, ..Injection::default() }
    }
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions {
            devices: 1,
            engines: 8,
            depth: 128,
            generation: 1,
            transfer_bytes_max: 2 << 20,
            block_on_fault: true,
            timing: None,
            is_synchronous: false,
            full_one_in: 0,
            lost_after: None,
        }
    }
}

/// The error in a description of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelOptionsError(String);

impl fmt::Display for ModelOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot model the accelerator: {}", self.0)
    }
}

impl std::error::Error for ModelOptionsError {}

const KEYS: &str = "devices, engines, depth, generation, timing, compress_gbps, compress_engines, decompress_gbps, \
    compress_latency_us, decompress_latency_us, fault_latency_us, full_one_in, lost_after";

impl FromStr for ModelOptions {
    type Err = ModelOptionsError;

    fn from_str(text: &str) -> Result<ModelOptions, ModelOptionsError> {
        let mut options = ModelOptions::default();
        let (mut timing, mut is_timed) = (Timing::default(), true);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(ModelOptionsError(format!("`{part}` is not of the form key=value")));
            };
            match key {
                "devices" => options.devices = whole(key, value, 1..=64)?,
                "engines" => options.engines = whole(key, value, 1..=64)?,
                "depth" => options.depth = whole(key, value, 1..=4096)?,
                "generation" => options.generation = whole(key, value, 1..=2)? as u8,
                "full_one_in" => options.full_one_in = whole(key, value, 1..=1_000_000)?,
                "lost_after" => options.lost_after = Some(whole(key, value, 0..=u32::MAX)?.into()),
                "compress_engines" => timing.compress_engines = whole(key, value, 1..=64)?,
                "compress_gbps" => timing.compress_gbps = positive(key, value)?,
                "decompress_gbps" => timing.decompress_gbps = positive(key, value)?,
                "compress_latency_us" => timing.compress_latency = microseconds(key, value)?,
                "decompress_latency_us" => timing.decompress_latency = microseconds(key, value)?,
                "fault_latency_us" => timing.fault_latency = microseconds(key, value)?,
                "timing" => {
                    is_timed = match value {
                        "on" => true,
                        "off" => false,
                        _ => {
                            return Err(ModelOptionsError(format!("timing is `on` or `off`, not `{value}`")));
                        }
                    }
                }
                _ => return Err(ModelOptionsError(format!("there is no `{key}`, only {KEYS}"))),
            }
        }
        options.timing = is_timed.then_some(timing);
        Ok(options)
    }
}

fn whole(key: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, ModelOptionsError> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        ModelOptionsError(format!("{key} is a whole number from {least} to {most}, not `{value}`"))
    })
}

fn number(key: &str, value: &str, least: f64) -> Result<f64, ModelOptionsError> {
    let number = value.parse::<f64>().ok().filter(|number| (least..=1e6).contains(number));
    number
        .ok_or_else(|| ModelOptionsError(format!("{key} is a number from {least} to 1000000, not `{value}`")))
}

fn positive(key: &str, value: &str) -> Result<f64, ModelOptionsError> {
    number(key, value, 0.001)
}

fn microseconds(key: &str, value: &str) -> Result<Duration, ModelOptionsError> {
    Ok(Duration::from_nanos((number(key, value, 0.0)? * 1000.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_say_what_is_modelled() {
        let options: ModelOptions =
            "devices=4,depth=64, decompress_gbps=3.5,fault_latency_us=0.5".parse().unwrap();
        let timing = options.timing.unwrap();
        assert_eq!((options.devices, options.depth, options.engines), (4, 64, 8));
        assert_eq!((timing.decompress_gbps, timing.compress_gbps), (3.5, 1.9));
        assert_eq!(timing.fault_latency, Duration::from_nanos(500));
        let failing: ModelOptions = "full_one_in=3,lost_after=0".parse().unwrap();
        assert_eq!((failing.full_one_in, failing.lost_after), (3, Some(0)));
        assert_eq!("".parse::<ModelOptions>().unwrap().timing, Some(Timing::default()));
        assert_eq!("timing=off".parse::<ModelOptions>().unwrap(), ModelOptions::default());
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        let error = |text: &str| text.parse::<ModelOptions>().unwrap_err().to_string();
        assert_eq!(
            error("devices=0"),
            "cannot model the accelerator: devices is a whole number from 1 to 64, not `0`"
        );
        assert!(error("devices").ends_with("`devices` is not of the form key=value"));
        assert!(error("speed=1").contains("there is no `speed`, only devices, engines"));
        assert!(error("compress_gbps=NaN").ends_with("not `NaN`"));
        assert!(error("timing=yes").ends_with("not `yes`"));
    }
}
