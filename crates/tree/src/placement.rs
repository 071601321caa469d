//! Decides which values go to far memory: those above a size that keeps DRAM and far memory at a set ratio of bytes.
//!
//! Small values cost more per byte to fetch from far memory, so the border is a *threshold* of size. `TieredMemDB`
//! steps its threshold up and down by a quarter until the ratio fits. That takes long, overshoots, and cannot reach a
//! ratio when all values have one size. This module computes the threshold instead:
//!
//! 1. A histogram of recent sizes gives the size above which the wanted share of bytes lies.
//! 2. In the histogram's class at the border, a fraction of the values goes to far memory.
//! 3. The wanted share corrects the deviation that earlier values and frees have left.
//! 4. A value that would carry the ratio out of its band goes to the other side, whatever its size.
//!
//! Only new values are placed: when frees alone have moved the ratio, `Placement::excess` says how many bytes to
//! move.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A side of the border.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// DRAM.
    Dram,
    /// Far memory.
    Far,
}

/// Classes of sizes to a doubling, as a power of two.
const CLASS_BITS: u32 = 3;
const CLASSES: usize = (64 - CLASS_BITS as usize + 1) << CLASS_BITS;
/// Values between two computations of the threshold.
const PERIOD: u64 = 256;
/// The half-width of the band, in thousandths of the ratio. It lies well inside the promised 5 %, with room for values
/// under way on other threads and for frees, which come at any time.
const BAND_MILLI: u64 = 10;
/// One, as a fraction of the values in the class at the border.
const WHOLE: u64 = 1 << 32;

/// Decides DRAM or far memory for each value. For use by many threads, none of which waits for another.
#[derive(Debug)]
pub struct Placement {
    dram_parts: u64,
    far_parts: u64,
    dram_bytes: AtomicU64,
    far_bytes: AtomicU64,
    placed: AtomicU64,
    /// Bytes of recent values by class of size; halved with each computation.
    recent_bytes: Box<[AtomicU64]>,
    /// Held by the thread that computes the border.
    computing: Mutex<()>,
    /// Class at the border, in the upper half; the fraction of it that goes to far memory, in the lower.
    border: AtomicU64,
    /// Draws the fraction evenly.
    drawn: AtomicU64,
}

impl Placement {
    /// Keeps DRAM to far memory as `dram_parts` to `far_parts`. A side with zero parts gets nothing.
    ///
    /// # Panics
    ///
    /// If both are zero.
    pub fn new(dram_parts: u32, far_parts: u32) -> Placement {
        assert!(dram_parts > 0 || far_parts > 0, "a ratio of nothing to nothing");
        Placement {
            dram_parts: dram_parts.into(),
            far_parts: far_parts.into(),
            dram_bytes: AtomicU64::new(0),
            far_bytes: AtomicU64::new(0),
            placed: AtomicU64::new(0),
            recent_bytes: (0..CLASSES).map(|_| AtomicU64::new(0)).collect(),
            computing: Mutex::new(()),
            border: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
        }
    }

    /// Decides the side of a new value of `bytes` bytes and counts it there. `bytes` includes the allocator's rounding.
    pub(crate) fn place(&self, bytes: u64) -> Side {
        self.recent_bytes[class(bytes)].fetch_add(bytes, Relaxed);
        if self.placed.fetch_add(1, Relaxed) % PERIOD == PERIOD - 1 {
            self.compute_border();
        }
        let side = self.inside_band(self.by_size(bytes), bytes);
        self.counter(side).fetch_add(bytes, Relaxed);
        side
    }

    /// Counts a value that was placed elsewhere than [`Placement::place`] said, for want of room, or that was found
    /// after a restart.
    pub(crate) fn count(&self, side: Side, bytes: u64) {
        self.counter(side).fetch_add(bytes, Relaxed);
    }

    /// Takes a value that was counted off again.
    pub(crate) fn uncount(&self, side: Side, bytes: u64) {
        let before = self.counter(side).fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes are freed of {before}");
    }

    /// Bytes counted on a side.
    pub(crate) fn bytes(&self, side: Side) -> u64 {
        self.counter(side).load(Relaxed)
    }

    /// The share of all bytes that belongs in DRAM, 0 to 1.
    pub(crate) fn dram_share(&self) -> f64 {
        self.dram_parts as f64 / (self.dram_parts + self.far_parts) as f64
    }

    /// The size from which values go to far memory. Of the class that begins at this size, only a part goes.
    #[cfg(test)]
    pub(crate) fn threshold_bytes(&self) -> u64 {
        class_start((self.border.load(Relaxed) >> 32) as usize)
    }

    /// The side that holds more than its share, and how many bytes would have to move to the other.
    pub(crate) fn excess(&self) -> (Side, u64) {
        let (dram, far) = (self.bytes(Side::Dram), self.bytes(Side::Far));
        let wanted = self.far_share(dram + far);
        if far > wanted { (Side::Far, far - wanted) } else { (Side::Dram, wanted - far) }
    }

    fn counter(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Dram => &self.dram_bytes,
            Side::Far => &self.far_bytes,
        }
    }

    /// Bytes of `total` that belong in far memory.
    fn far_share(&self, total: u64) -> u64 {
        let parts = u128::from(self.dram_parts + self.far_parts);
        (u128::from(total) * u128::from(self.far_parts) / parts) as u64
    }

    fn by_size(&self, bytes: u64) -> Side {
        let border = self.border.load(Relaxed);
        let far = match class(bytes).cmp(&((border >> 32) as usize)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            // Multiples of the golden ratio fall evenly on the unit interval.
            std::cmp::Ordering::Equal => {
                let draw = self.drawn.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                draw < border & (WHOLE - 1)
            }
        };
        if far { Side::Far } else { Side::Dram }
    }

    /// `side`, unless placing the value there would carry the ratio out of its band, or further out.
    fn inside_band(&self, side: Side, bytes: u64) -> Side {
        let (mut dram, mut far) = (self.bytes(Side::Dram), self.bytes(Side::Far));
        match side {
            Side::Dram => dram += bytes,
            Side::Far => far += bytes,
        }
        let (dram, far) =
            (u128::from(dram) * u128::from(self.far_parts), u128::from(far) * u128::from(self.dram_parts));
        let band = u128::from(1000 + BAND_MILLI);
        match side {
            Side::Far if far * 1000 > dram * band => Side::Dram,
            Side::Dram if dram * 1000 > far * band => Side::Far,
            side => side,
        }
    }

    /// The bytes that should go to far memory are its share of the recent bytes, and the bytes that it now lacks. The
    /// border is the size at which the largest values make up that many bytes.
    fn compute_border(&self) {
        let Ok(_computing) = self.computing.try_lock() else { return };
        let recent: Vec<u64> = self.recent_bytes.iter().map(|bytes| bytes.load(Relaxed)).collect();
        let total: u64 = recent.iter().sum();
        let (over, bytes) = self.excess();
        let share = self.far_share(total);
        let wanted =
            if over == Side::Dram { share.saturating_add(bytes) } else { share.saturating_sub(bytes) };
        self.border.store(border(&recent, wanted.min(total)), Relaxed);
        for (bytes, seen) in self.recent_bytes.iter().zip(recent) {
            bytes.fetch_sub(seen - seen / 2, Relaxed);
        }
    }
}

/// The class in which the largest values reach `wanted` bytes, and the fraction of it that they need.
fn border(recent: &[u64], wanted: u64) -> u64 {
    let mut above = 0;
    for (class, &bytes) in recent.iter().enumerate().rev() {
        if bytes > 0 && above + bytes >= wanted {
            let fraction = u128::from(wanted - above) * u128::from(WHOLE - 1) / u128::from(bytes);
            return (class as u64) << 32 | fraction as u64;
        }
        above += bytes;
    }
    0
}

/// Eight classes to a doubling, each size below eight alone.
fn class(bytes: u64) -> usize {
    if bytes < 1 << CLASS_BITS {
        return bytes as usize;
    }
    let shift = bytes.ilog2() - CLASS_BITS;
    ((shift as usize) << CLASS_BITS) + (bytes >> shift) as usize
}

/// The smallest size of a class.
#[cfg(test)]
fn class_start(class: usize) -> u64 {
    if class < 2 << CLASS_BITS {
        return class as u64;
    }
    let shift = (class >> CLASS_BITS) - 1;
    (((class & ((1 << CLASS_BITS) - 1)) | 1 << CLASS_BITS) as u64) << shift
}

#[cfg(test)]
mod tests;
