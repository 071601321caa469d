//! Workloads: the shares of reads, writes, deletes and scans, and the order in which keys are loaded before.

pub(crate) mod distribution;
pub(crate) mod pace;
pub(crate) mod permutation;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Shares of the four operations, in per cent; together 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Point reads.
    pub read: u32,
    /// Puts.
    pub write: u32,
    /// Deletions.
    pub delete: u32,
    /// Scans of [`SCAN_RECORDS`] records.
    pub scan: u32,
}

/// Records that one scan asks for.
pub const SCAN_RECORDS: usize = 100;

/// In which order keys are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadOrder {
    /// At random, by all threads.
    Random,
    /// One after the other, by one thread.
    Sequential,
}

/// A named mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// As printed in the results.
    pub name: String,
    /// The shares of its operations.
    pub mix: Mix,
    /// The order of loading its keys.
    pub load: LoadOrder,
}

/// The workload that is loading itself.
const FILL: &str = "fillseq";

/// Name, shares of reads and writes, and order of loading. The first five are those of the published evaluation of the
/// store's codecs. The others are those of `db_bench` from RocksDB's evaluation.
const NAMED: [(&str, u32, u32, LoadOrder); 8] = [
    ("read_only", 100, 0, LoadOrder::Random),
    ("write_only", 0, 100, LoadOrder::Random),
    ("read_write_8_2", 80, 20, LoadOrder::Random),
    ("read_write_5_5", 50, 50, LoadOrder::Random),
    ("read_write_2_8", 20, 80, LoadOrder::Random),
    (FILL, 0, 100, LoadOrder::Sequential),
    ("readrandom", 100, 0, LoadOrder::Sequential),
    ("readrandomwriterandom", 80, 20, LoadOrder::Sequential),
];
/// The number of workloads that run by default.
const USUAL: usize = 5;

impl Workload {
    /// One of the named workloads.
    pub fn named(name: &str) -> Result<Self, Error> {
        NAMED
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(name, read, write, load)| Workload {
                name: name.into(),
                mix: Mix { read, write, delete: 0, scan: 0 },
                load,
            })
            .ok_or_else(|| Error::Unknown {
                what: "workload",
                given: name.into(),
                known: NAMED.map(|(name, ..)| name).join(", "),
            })
    }

    /// Whether it is the loading of the keys that is measured, and nothing after it.
    pub fn is_fill(&self) -> bool {
        self.name == FILL
    }

    /// The five that are run unless others are asked for.
    pub fn usual() -> Vec<Workload> {
        NAMED[..USUAL].iter().filter_map(|(name, ..)| Self::named(name).ok()).collect()
    }

    /// A mix such as `read=80,write=20,delete=0,scan=0`; what is left out is 0, and the sum must be 100.
    pub fn mixed(text: &str) -> Result<Self, Error> {
        let bad = || {
            Error::invalid(
                "--mix",
                text,
                "give shares in per cent that add up to 100, such as read=80,write=20,delete=0,scan=0",
            )
        };
        let mut mix = Mix { read: 0, write: 0, delete: 0, scan: 0 };
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(bad)?;
            let slot = match name.trim() {
                "read" => &mut mix.read,
                "write" => &mut mix.write,
                "delete" => &mut mix.delete,
                "scan" => &mut mix.scan,
                _ => return Err(bad()),
            };
            *slot = share.trim().parse().ok().filter(|&share| share <= 100).ok_or_else(bad)?;
        }
        if mix.read + mix.write + mix.delete + mix.scan != 100 {
            return Err(bad());
        }
        Ok(Workload { name: mix.to_string(), mix, load: LoadOrder::Random })
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}_w{}_d{}_s{}", self.read, self.write, self.delete, self.scan)
    }
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A point read.
    Read,
    /// A put.
    Write,
    /// A deletion.
    Delete,
    /// A scan of [`SCAN_RECORDS`] records.
    Scan,
}

impl Mix {
    /// The operations in it.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> {
        let shares = [
            (self.read, Operation::Read),
            (self.write, Operation::Write),
            (self.delete, Operation::Delete),
            (self.scan, Operation::Scan),
        ];
        shares.into_iter().filter(|(share, _)| *share > 0).map(|(_, operation)| operation)
    }

    /// The operation that an even number below 100 stands for.
    #[inline]
    pub(crate) fn operation(&self, percent: u64) -> Operation {
        let percent = percent as u32;
        if percent < self.read {
            Operation::Read
        } else if percent < self.read + self.write {
            Operation::Write
        } else if percent < self.read + self.write + self.delete {
            Operation::Delete
        } else {
            Operation::Scan
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_add_up_to_a_hundred() {
        let mixed = Workload::mixed("read=70,write=20,delete=5,scan=5").unwrap();
        assert_eq!(mixed.name, "r70_w20_d5_s5");
        let count = |wanted| (0..100).filter(|&p| mixed.mix.operation(p) == wanted).count();
        assert_eq!(
            [Operation::Read, Operation::Write, Operation::Delete, Operation::Scan].map(count),
            [70, 20, 5, 5]
        );
        for bad in ["", "read=80", "read=80,write=30", "read=x", "get=100", "read=4294967295,write=101"] {
            assert!(Workload::mixed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_named_workloads_are_those_of_the_published_evaluation() {
        assert_eq!(Workload::usual().len(), 5);
        assert!(
            Workload::named("fillseq").unwrap().is_fill() && !Workload::usual().iter().any(Workload::is_fill)
        );
        assert_eq!(Workload::named("read_write_2_8").unwrap().mix.write, 80);
        assert!(Workload::named("read").unwrap_err().to_string().contains("read_only"));
    }
}
