//! `btreemap` and `btreemap-inline`: the standard library's ordered map behind one reader-writer lock.
//!
//! Every value is a box. Every key of `btreemap` is a box, too. Those of `btreemap-inline` lie within its nodes if they
//! have 16 bytes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::locked_map::{InPlace, Keyed, LockedMapTarget, OpenedMap, map};
use crate::target::Records;

type Boxed = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// An uncompressed ordered map.
pub type BTreeMapTarget = LockedMapTarget<Boxed>;

/// An uncompressed ordered map for keys of one length, which wait for no allocation of their own.
pub type BTreeMapInlineTarget = LockedMapTarget<Keyed<BTreeMap<InPlace, Box<[u8]>>, Boxed>>;

map!(BTreeMap, [u8], Box<[u8]>, Box::from, scan);
map!(BTreeMap, InPlace, InPlace, InPlace::clone, scan);

impl OpenedMap for Boxed {
    fn for_keys(_: Option<usize>) -> Self {
        Self::default()
    }
}

fn scan<K, Q>(map: &BTreeMap<K, Box<[u8]>>, from: &Q, limit: usize, records: &mut Records)
where
    K: Borrow<Q> + Ord + AsRef<[u8]>,
    Q: Ord + ?Sized,
{
    for (key, value) in map.range::<Q, _>((Bound::Included(from), Bound::Unbounded)).take(limit) {
        records.push(key.as_ref(), value);
    }
}
