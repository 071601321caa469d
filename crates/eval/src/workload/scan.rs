//! How many records a scan asks for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::workload::zipf::{DEFAULT_THETA, Zipf};

/// Records that one scan asks for: from `min` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanLength {
    /// Fewest.
    pub min: u64,
    /// Most.
    pub max: u64,
    /// Whether short scans are more frequent, by Zipf's law; otherwise every length is as frequent.
    pub prefers_short: bool,
}

impl Default for ScanLength {
    fn default() -> Self {
        ScanLength { min: 100, max: 100, prefers_short: false }
    }
}

impl fmt::Display for ScanLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "{}", self.min),
            false => write!(f, "{}..{}", self.min, self.max),
        }
    }
}

/// Draws lengths of scans.
#[derive(Debug, Clone)]
pub(crate) struct ScanLengths {
    min: u64,
    count: u64,
    zipf: Option<Zipf>,
}

impl ScanLengths {
    pub(crate) fn new(length: ScanLength) -> Self {
        let count = length.max - length.min + 1;
        let zipf = (length.prefers_short && count > 2).then(|| Zipf::new(count, DEFAULT_THETA));
        ScanLengths { min: length.min, count, zipf }
    }

    /// The length of the next scan, by an even number in `[0, 1)`.
    pub(crate) fn draw(&self, uniform: impl FnOnce() -> f64) -> usize {
        let more = match &self.zipf {
            _ if self.count == 1 => 0,
            Some(zipf) => zipf.rank(uniform()),
            None => (uniform() * self.count as f64) as u64,
        };
        (self.min + more) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_lie_between_the_bounds() {
        let drawn = |prefers_short| {
            let lengths = ScanLengths::new(ScanLength { min: 1, max: 10, prefers_short });
            (0..1_000).map(|i| lengths.draw(|| f64::from(i) / 1_000.0)).collect::<Vec<_>>()
        };
        let (even, short) = (drawn(false), drawn(true));
        for length in 1..=10 {
            assert_eq!(even.iter().filter(|drawn| **drawn == length).count(), 100);
        }
        assert!(short.iter().all(|length| (1..=10).contains(length)));
        assert!(short.iter().filter(|length| **length == 1).count() > 300);
        assert_eq!(ScanLengths::new(ScanLength::default()).draw(|| 0.9), 100);
    }
}
