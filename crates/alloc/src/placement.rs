//! Which sizes lie in far memory: the policy, without a clock, a system call or an allocation of its own.
//!
//! The allocator asks for a [`Decision`] whenever the program has allocated [`Decision::step_bytes`] more. It must not
//! ask on every allocation: between two decisions an allocation compares its size with two words.
//!
//! How [`Policy::Ratio`] decides:
//!
//! 1. It keeps a histogram of the bytes that were allocated lately, by size class. Older bytes count less: the
//!    histogram remembers [`MEMORY_SHARE`] of the live bytes. A histogram of all live bytes would follow a shift of
//!    sizes only after the new sizes outweigh the old ones.
//! 2. It computes how many of the next bytes must lie in far memory so that all bytes are at the ratio when live bytes
//!    are counted next. This is the feedback: bytes that the program freed, or that spilled, show up here. Between two
//!    counts live bytes are an estimate, which does not see holes: a policy in a greater hurry would overshoot. A sum
//!    of the errors of past counts corrects a lasting one, such as that of short-lived blocks, which are in the
//!    histogram but not in the heap.
//! 3. It walks the histogram from the largest class down until the classes hold that many bytes. The class where the
//!    walk ends is the threshold. Larger sizes lie in far memory, smaller ones in DRAM, and of the class itself the
//!    fraction that the walk needed.
//! 4. It keeps the threshold inside its bounds. Sizes above the upper bound then share one fraction.
//!
//! Large blocks go to far memory first because they are few: an object costs a cache miss or two whatever its size.
//!
//! ```
//! use ziptier_alloc::placement::{Placement, Rules, Seen};
//! use ziptier_alloc::configuration::Configuration;
//! use ziptier_alloc::size_class::{CLASSES, class};
//!
//! let mut placement = Placement::new();
//! let rules = Rules::of(&Configuration::DEFAULT);
//! // The program has allocated 64 MB, all in blocks of 1 KiB. A quarter of them lies in DRAM, as the ratio wants.
//! let mut placed = [0; CLASSES];
//! placed[class(1024)] = 64 << 20;
//! let live_bytes = [16 << 20, 48 << 20];
//! let (most_bytes, count_bytes, page_bytes) = (live_bytes, 4 << 20, 4096);
//! let seen = Seen { placed: &placed, live_bytes, most_bytes, is_counted: true, count_bytes, page_bytes };
//! let decision = placement.decide(&rules, &seen);
//! // Smaller blocks would lie in DRAM and larger ones in far memory.
//! assert_eq!((decision.dram_max, decision.far_above), (896, 1024));
//! assert_eq!(decision.far_fraction, 3 << 30);
//! ```

use crate::configuration::{Configuration, Policy};
use crate::size_class::{CLASSES, class_bytes, largest_within};

/// The histogram remembers the live bytes divided by this.
pub const MEMORY_SHARE: u64 = 128;

/// The fewest steps in which the feedback makes up for an error.
pub const HORIZON_STEPS: u64 = 2;

/// The share of an error that is added to the correction.
const CORRECTION_SHARE: f64 = 0.25;

/// The live bytes are divided by this for the bytes of a step.
const STEP_SHARE: u64 = 96;
/// The smallest and the largest step.
const STEP_BYTES: (u64, u64) = (256 << 10, 16 << 20);
/// The step of a policy that does not follow live bytes: a change of the configuration waits for its end.
const STEP_BYTES_FIXED: u64 = 4 << 20;
/// The smallest step where a limit is near.
const STEP_BYTES_NEAR_LIMIT: u64 = 16 << 10;

/// The wishes that the policy follows. They may change between two decisions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// The rule that decides the medium.
    pub policy: Policy,
    /// The wanted share of far memory in all bytes, 0 to 1.
    pub far_share: f64,
    /// The smallest size that [`Policy::Threshold`] puts into far memory.
    pub threshold_bytes: u64,
    /// The bounds of the threshold of [`Policy::Ratio`].
    pub threshold_bounds_bytes: (u64, u64),
    /// Smaller sizes lie in DRAM by every policy.
    pub pinned_below_bytes: u64,
    /// Bytes that may lie in DRAM.
    pub dram_limit_bytes: u64,
    /// Bytes that may lie in far memory.
    pub far_limit_bytes: u64,
}

impl Rules {
    /// The rules of a configuration.
    pub fn of(configuration: &Configuration) -> Rules {
        let (dram, far) = (f64::from(configuration.ratio.dram), f64::from(configuration.ratio.far));
        Rules {
            policy: configuration.policy,
            far_share: far / (dram + far),
            threshold_bytes: configuration.threshold_bytes,
            threshold_bounds_bytes: (configuration.threshold_min_bytes, configuration.threshold_max_bytes),
            pinned_below_bytes: configuration.pinned_below_bytes,
            dram_limit_bytes: configuration.dram_limit_bytes,
            far_limit_bytes: configuration.far_limit_bytes,
        }
    }
}

impl Rules {
    /// Whether decisions depend on live bytes. If not, nobody needs to count them.
    pub fn follow_live_bytes(&self) -> bool {
        self.policy == Policy::Ratio || self.dram_limit_bytes.min(self.far_limit_bytes) < u64::MAX
    }
}

/// The heap as the allocator counts it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// All bytes that were ever allocated in each class of [`crate::size_class`] and that the policy may place.
    pub placed: &'a [u64; CLASSES],
    /// Live bytes in DRAM and in far memory.
    pub live_bytes: [u64; 2],
    /// The same for limits: as many as may be live, where live bytes are an estimate.
    pub most_bytes: [u64; 2],
    /// Whether live bytes were counted for this decision; they are an estimate otherwise.
    pub is_counted: bool,
    /// The bytes that the program allocates from one count to the next.
    pub count_bytes: u64,
    /// The size of jemalloc's pages.
    pub page_bytes: u64,
}

/// The words that an allocation compares its size with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Sizes up to this lie in DRAM.
    pub dram_max: u64,
    /// Sizes above this lie in far memory.
    pub far_above: u64,
    /// Of the sizes between, this many in 2^32 lie in far memory.
    pub far_fraction: u32,
    /// The largest size that DRAM has room for below its limit.
    pub dram_room_bytes: u64,
    /// The largest size that far memory has room for below its limit.
    pub far_room_bytes: u64,
    /// Bytes that the program allocates until the next decision.
    pub step_bytes: u64,
}

impl Decision {
    /// Everything lies in DRAM.
    pub const DRAM: Decision = Decision {
        dram_max: u64::MAX,
        far_above: u64::MAX,
        far_fraction: 0,
        dram_room_bytes: u64::MAX,
        far_room_bytes: u64::MAX,
        step_bytes: STEP_BYTES.0,
    };

    /// Sizes from `size` lie in far memory.
    const fn threshold(size: u64) -> Decision {
        let below = size.saturating_sub(1);
        Decision { dram_max: below, far_above: below, ..Decision::DRAM }
    }
}

/// The policy, with the histogram that it remembers.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The bytes that were seen last in each class.
    placed: [u64; CLASSES],
    /// Bytes allocated lately in each class.
    recent: [f64; CLASSES],
    /// The sum of past errors, as a share of the next bytes.
    correction: f64,
}

impl Placement {
    /// A policy that has seen nothing.
    pub const fn new() -> Placement {
        Placement { placed: [0; CLASSES], recent: [0.0; CLASSES], correction: 0.0 }
    }

    /// What the next allocations do.
    pub fn decide(&mut self, rules: &Rules, seen: &Seen) -> Decision {
        let step_bytes = step_bytes(rules, seen);
        self.remember(seen);
        let mut decision = match rules.policy {
            Policy::OnlyDram => Decision::DRAM,
            Policy::OnlyFar => Decision::threshold(rules.pinned_below_bytes),
            Policy::Threshold => Decision::threshold(rules.threshold_bytes.max(rules.pinned_below_bytes)),
            Policy::Ratio => self.by_ratio(rules, seen, seen.count_bytes.max(step_bytes * HORIZON_STEPS)),
        };
        decision.step_bytes = step_bytes;
        let [dram_bytes, far_bytes] = seen.most_bytes;
        decision.dram_room_bytes = room_bytes(rules.dram_limit_bytes, dram_bytes, seen.page_bytes);
        decision.far_room_bytes = room_bytes(rules.far_limit_bytes, far_bytes, seen.page_bytes);
        decision
    }

    fn remember(&mut self, seen: &Seen) {
        let memory = (seen.live_bytes.iter().sum::<u64>() / MEMORY_SHARE).max(STEP_BYTES.0) as f64;
        let new = |last: u64, now: u64| now.saturating_sub(last);
        let all_new: u64 = self.placed.iter().zip(seen.placed).map(|(&last, &now)| new(last, now)).sum();
        let keep = memory / (memory + all_new as f64);
        for (class, recent) in self.recent.iter_mut().enumerate() {
            *recent = *recent * keep + new(self.placed[class], seen.placed[class]) as f64;
        }
        self.placed = *seen.placed;
    }

    fn by_ratio(&mut self, rules: &Rules, seen: &Seen, horizon_bytes: u64) -> Decision {
        let [dram_bytes, far_bytes] = seen.live_bytes;
        let live = (dram_bytes + far_bytes) as f64;
        let error = (rules.far_share * live - far_bytes as f64) / horizon_bytes as f64;
        let wanted = rules.far_share + error + self.correction;
        let (min, max) = rules.threshold_bounds_bytes;
        let min = min.max(rules.pinned_below_bytes);
        if wanted <= 0.0 {
            return Decision::DRAM;
        }
        if wanted >= 1.0 {
            return Decision::threshold(min);
        }
        if seen.is_counted {
            self.correction = (self.correction + error * CORRECTION_SHARE).clamp(-1.0, 1.0);
        }
        self.quantile(wanted, min, max.max(min))
    }

    /// The threshold above which `wanted` of the recent bytes lie, between two bounds.
    fn quantile(&self, wanted: f64, min: u64, max: u64) -> Decision {
        let recent = &self.recent;
        let all: f64 = recent.iter().sum();
        let below = |class: usize| class.checked_sub(1).map_or(0, class_bytes);
        let classes_to_max = (0..CLASSES).take_while(|&class| below(class) < max).count();
        let above_max: f64 = recent[classes_to_max..].iter().sum();
        let mut missing = wanted * all;
        if all == 0.0 || missing <= above_max {
            let (dram_max, of) =
                if all == 0.0 { (min.saturating_sub(1), wanted) } else { (max, missing / above_max) };
            return Decision { dram_max, far_fraction: fraction(of), ..Decision::DRAM };
        }
        missing -= above_max;
        for class in (0..classes_to_max).rev().take_while(|&class| class_bytes(class) >= min) {
            if missing < recent[class] {
                return Decision {
                    dram_max: below(class).max(min.saturating_sub(1)),
                    far_above: class_bytes(class).min(max),
                    far_fraction: fraction(missing / recent[class]),
                    ..Decision::DRAM
                };
            }
            missing -= recent[class];
        }
        Decision::threshold(min)
    }
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::new()
    }
}

/// The bytes until the next decision: a share of what is live, and of the room below a limit.
fn step_bytes(rules: &Rules, seen: &Seen) -> u64 {
    if !rules.follow_live_bytes() {
        return STEP_BYTES_FIXED;
    }
    let step = (seen.live_bytes.iter().sum::<u64>() / STEP_SHARE).clamp(STEP_BYTES.0, STEP_BYTES.1);
    // Where no room is left, nothing is left to watch for.
    let quarter = |limit: u64, bytes: u64| match room_bytes(limit, bytes, seen.page_bytes) {
        0 => u64::MAX,
        room => room / 4,
    };
    let [dram_bytes, far_bytes] = seen.most_bytes;
    let near = quarter(rules.dram_limit_bytes, dram_bytes).min(quarter(rules.far_limit_bytes, far_bytes));
    step.min(near.max(STEP_BYTES_NEAR_LIMIT))
}

/// The largest size that fits between live bytes and a limit. It is 0 where the next step would exceed the
/// limit: blocks of a step are not checked one by one.
fn room_bytes(limit_bytes: u64, live_bytes: u64, page_bytes: u64) -> u64 {
    match limit_bytes.saturating_sub(live_bytes) {
        ..STEP_BYTES_NEAR_LIMIT => 0,
        room => largest_within(room, page_bytes),
    }
}

/// A fraction in parts of 2^32.
fn fraction(of_one: f64) -> u32 {
    (of_one * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests;
