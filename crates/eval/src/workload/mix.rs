//! The shares of operations in a workload.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The sum of all shares of a [`Mix`].
pub(crate) const WHOLE: u32 = 1_000_000;

/// Shares of the operations, in millionths; together a million.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Point reads.
    pub read: u32,
    /// Puts of keys that exist, unless another operation deleted them.
    pub write: u32,
    /// Deletions.
    pub delete: u32,
    /// Scans.
    pub scan: u32,
    /// Puts of new keys, each behind the last.
    pub insert: u32,
    /// Reads of a key, each followed by a put of the same key; both are one operation.
    pub read_modify_write: u32,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A point read.
    Read,
    /// A put of a key that exists, unless another operation deleted it.
    Write,
    /// A deletion.
    Delete,
    /// A scan.
    Scan,
    /// A put of a new key.
    Insert,
    /// A read of a key and a put of the same key.
    ReadModifyWrite,
}

impl Operation {
    const ALL: [Operation; SHARES.len()] = [
        Operation::Read,
        Operation::Write,
        Operation::Delete,
        Operation::Scan,
        Operation::Insert,
        Operation::ReadModifyWrite,
    ];

    /// Whether it stores a value.
    pub fn writes(self) -> bool {
        matches!(self, Operation::Write | Operation::Insert | Operation::ReadModifyWrite)
    }
}

/// Names of shares in `--mix` and their letters in the names of mixes, in the order of [`Mix::shares`].
const SHARES: [(&str, char); 6] =
    [("read", 'r'), ("write", 'w'), ("delete", 'd'), ("scan", 's'), ("insert", 'i'), ("rmw", 'm')];

impl Mix {
    /// Reads and writes in per cent, and nothing else.
    pub(crate) fn percent(read: u32, write: u32) -> Self {
        Mix { read: read * (WHOLE / 100), write: write * (WHOLE / 100), ..Mix::default() }
    }

    /// Weights of any sum: read, write, delete, scan, insert, read-modify-write. Nothing if one is no weight, or none
    /// is above 0.
    pub(crate) fn weighted(weights: [f64; 6]) -> Option<Self> {
        let sum: f64 = weights.iter().sum();
        if !weights.iter().all(|weight| (0.0..=1e9).contains(weight)) || sum <= 0.0 {
            return None;
        }
        let mut shares = weights.map(|weight| (weight / sum * f64::from(WHOLE)).round() as u32);
        // Rounding is made good where it changes least.
        let largest = (0..shares.len()).max_by_key(|&at| shares[at])?;
        shares[largest] = shares[largest] + WHOLE - shares.iter().sum::<u32>();
        let [read, write, delete, scan, insert, read_modify_write] = shares;
        Some(Mix { read, write, delete, scan, insert, read_modify_write })
    }

    /// A mix such as `read=80,write=20,delete=0,scan=0`; what is left out is 0, and the sum must be 100.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::invalid(
                "--mix",
                text,
                "give shares of read, write, delete, scan, insert and rmw in per cent that add up to 100, such as \
                 read=80,write=20",
            )
        };
        let mut weights = [0.0; SHARES.len()];
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(bad)?;
            let at = SHARES.iter().position(|(known, _)| *known == name.trim()).ok_or_else(bad)?;
            weights[at] =
                share.trim().parse().ok().filter(|share| (0.0..=100.0).contains(share)).ok_or_else(bad)?;
        }
        if (weights.iter().sum::<f64>() - 100.0).abs() > 1e-6 {
            return Err(bad());
        }
        Mix::weighted(weights).ok_or_else(bad)
    }

    /// Such as `80 % read, 20 % write`.
    pub(crate) fn in_words(&self) -> String {
        let shares = self.shares().into_iter().zip(SHARES).filter(|(share, _)| *share > 0);
        let rounded = |share| (percent(share) * 10.0).round() / 10.0;
        let words = shares.map(|(share, (name, _))| format!("{} % {name}", rounded(share)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The operations in it.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> {
        self.shares().into_iter().zip(Operation::ALL).filter(|(share, _)| *share > 0).map(|(_, one)| one)
    }

    fn shares(&self) -> [u32; SHARES.len()] {
        [self.read, self.write, self.delete, self.scan, self.insert, self.read_modify_write]
    }

    /// The operation that an even number below [`WHOLE`] stands for.
    #[inline]
    pub(crate) fn operation(&self, number: u64) -> Operation {
        let mut left = number as u32;
        for (share, operation) in [
            (self.read, Operation::Read),
            (self.write, Operation::Write),
            (self.delete, Operation::Delete),
            (self.scan, Operation::Scan),
            (self.insert, Operation::Insert),
        ] {
            if left < share {
                return operation;
            }
            left -= share;
        }
        Operation::ReadModifyWrite
    }
}

fn percent(share: u32) -> f64 {
    f64::from(share) / f64::from(WHOLE / 100)
}

/// Shares in per cent; those of inserts and of read-modify-writes only where there are any.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (share, (_, letter))) in self.shares().into_iter().zip(SHARES).enumerate() {
            if at < 4 || share > 0 {
                let between = if at > 0 { "_" } else { "" };
                write!(f, "{between}{letter}{}", percent(share))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole() {
        let mix = Mix::parse("read=69.5,write=20,delete=5,scan=3,insert=2,rmw=0.5").unwrap();
        assert_eq!(mix.to_string(), "r69.5_w20_d5_s3_i2_m0.5");
        let count = |wanted| (0..u64::from(WHOLE)).filter(|&p| mix.operation(p) == wanted).count();
        let all = [
            Operation::Read,
            Operation::Write,
            Operation::Delete,
            Operation::Scan,
            Operation::Insert,
            Operation::ReadModifyWrite,
        ];
        assert_eq!(all.map(count), [695_000, 200_000, 50_000, 30_000, 20_000, 5_000]);
        for bad in ["", "read=80", "read=80,write=30", "read=x", "get=100", "read=4294967295,write=101"] {
            assert!(Mix::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn weights_of_any_sum_become_shares() {
        let thirds = Mix::weighted([1.0, 1.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
        assert_eq!(thirds.shares().iter().sum::<u32>(), WHOLE);
        assert!(thirds.shares().iter().all(|share| [0, 333_333, 333_334].contains(share)), "{thirds:?}");
        assert!(
            Mix::weighted([0.0; 6]).is_none() && Mix::weighted([-1.0, 2.0, 0.0, 0.0, 0.0, 0.0]).is_none()
        );
    }
}
