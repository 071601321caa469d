//! `null`: stores nothing and answers from the oracle, so that a run of it shows what the harness itself costs.
//!
//! Its answers are right, so they are copied and compared as for any target. The target itself only turns the key back
//! into its number and copies the value once. Any store must do that as well, so its figures are an upper bound of the
//! harness's share.

use std::sync::{Arc, OnceLock};

use crate::data::oracle::Oracle;
use crate::target::{Answers, Config, Records, Target, TargetError};

/// A target without a store.
#[derive(Debug)]
pub struct NullTarget {
    oracles: Vec<Arc<Oracle>>,
    sorted: OnceLock<Vec<Vec<u8>>>,
}

impl NullTarget {
    #[inline]
    fn find(&self, key: &[u8]) -> Option<(&Oracle, u64)> {
        self.oracles.iter().find_map(|oracle| oracle.index(key).map(|index| (&**oracle, index)))
    }

    #[inline]
    fn current(&self, key: &[u8]) -> Option<&[u8]> {
        let (oracle, index) = self.find(key)?;
        oracle.current(index)
    }

    fn sorted(&self) -> &[Vec<u8>] {
        self.sorted.get_or_init(|| {
            let mut keys: Vec<Vec<u8>> = self
                .oracles
                .iter()
                .flat_map(|oracle| (0..oracle.len()).map(|index| oracle.key(index)))
                .collect();
            if !self.oracles.iter().all(|oracle| oracle.is_in_order()) {
                keys.sort_unstable();
            }
            keys
        })
    }
}

impl Target for NullTarget {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        Ok(NullTarget { oracles: config.oracles.clone(), sorted: OnceLock::new() })
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let found = self.current(key);
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        for key in keys {
            batch.push(self.current(key));
        }
        Ok(())
    }

    #[inline]
    fn put(&self, _: &[u8], value: &[u8]) -> Result<(), TargetError> {
        std::hint::black_box(value);
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(self.find(key).is_some_and(|(oracle, index)| oracle.existed(index)))
    }

    /// Nobody knows the keys of a trace, so every look-up in it misses.
    fn may_forget(&self) -> bool {
        self.oracles.is_empty()
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        let keys = self.sorted();
        let start = keys.partition_point(|key| key.as_slice() < from);
        let live = keys[start..].iter().filter_map(|key| self.current(key).map(|value| (key, value)));
        for (key, value) in live.take(limit) {
            records.push(key, value);
        }
        Ok(())
    }
}
