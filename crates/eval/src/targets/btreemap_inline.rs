//! `btreemap-inline`: the standard library's ordered map behind one reader-writer lock, keys within its nodes and every
//! value a box.

use std::collections::BTreeMap;

use super::locked_map::{LockedMapTarget, keys_in_place};
use crate::data::keys::Key;
use crate::target::Records;

type Table = BTreeMap<Key, Box<[u8]>>;

/// An uncompressed ordered map for keys of one length, which wait for no allocation of their own.
pub type BTreeMapInlineTarget = LockedMapTarget<Table>;

keys_in_place!(Table, scan);

fn scan(table: &Table, from: &Key, limit: usize, records: &mut Records) {
    for (key, value) in table.range(*from..).take(limit) {
        records.push(key, value);
    }
}
