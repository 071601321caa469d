//! `hashmap`: the standard library's hash map behind one reader-writer lock, keys in its table and every value a box.
//!
//! It has no order: a scan looks at every key, as it would in any store without one.

use std::collections::HashMap;

use super::locked_map::{LockedMapTarget, keys_in_place};
use crate::data::keys::Key;
use crate::target::Records;

type Table = HashMap<Key, Box<[u8]>>;

/// An uncompressed map without an order.
pub type HashMapTarget = LockedMapTarget<Table>;

keys_in_place!(Table, scan);

fn scan(table: &Table, from: &Key, limit: usize, records: &mut Records) {
    let mut found: Vec<_> = table.iter().filter(|&(key, _)| key >= from).collect();
    if limit > 0 && limit < found.len() {
        found.select_nth_unstable_by_key(limit, |(key, _)| **key);
        found.truncate(limit);
    }
    found.sort_unstable_by_key(|(key, _)| **key);
    for (key, value) in found.into_iter().take(limit) {
        records.push(key, value);
    }
}
