//! `hashmap`: the standard library's hash map behind one reader-writer lock, every value a box. Keys of 16 bytes lie in
//! its table; keys of other lengths are boxes.
//!
//! It has no order: a scan looks at every key, as it would in any store without one.

use std::borrow::Borrow;
use std::collections::HashMap;

use super::locked_map::{InPlace, Keyed, LockedMapTarget, map};
use crate::target::Records;

/// An uncompressed map without an order.
pub type HashMapTarget = LockedMapTarget<Keyed<HashMap<InPlace, Box<[u8]>>, HashMap<Box<[u8]>, Box<[u8]>>>>;

map!(HashMap, [u8], Box<[u8]>, Box::from, scan);
map!(HashMap, InPlace, InPlace, InPlace::clone, scan);

fn scan<K, Q>(table: &HashMap<K, Box<[u8]>>, from: &Q, limit: usize, records: &mut Records)
where
    K: Borrow<Q> + Ord + AsRef<[u8]>,
    Q: Ord + ?Sized,
{
    let mut found: Vec<_> = table.iter().filter(|(key, _)| (*key).borrow() >= from).collect();
    if limit > 0 && limit < found.len() {
        found.select_nth_unstable_by(limit, |(one, _), (other, _)| one.cmp(other));
        found.truncate(limit);
    }
    found.sort_unstable_by_key(|(one, _)| *one);
    for (key, value) in found.into_iter().take(limit) {
        records.push(key.as_ref(), value);
    }
}
