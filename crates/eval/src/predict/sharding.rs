//! Ways in which clients choose the shard of a key.
//!
//! - A *ring* of virtual nodes, as `ketama` (Jones, 2007) and the client libraries of memcached and Redis have it,
//!   after Karger and others, "Consistent Hashing and Random Trees" (STOC 1997). Its hash here is not MD5, so it is no
//!   ketama to the byte.
//! - *Jump* consistent hashing: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm" (2014). It has
//!   no table, and shards can be added and removed at the end alone.
//! - The 16,384 *slots* of Redis Cluster: CRC16 of the key, and a table that says which shard has which slot. A further
//!   shard takes as many slots from each of the others as make all of them even.

use std::fmt;

use crate::workload::permutation::mix64;

/// The slots of Redis Cluster.
const SLOTS: usize = 16_384;

/// A way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// A ring of so many virtual nodes for each shard.
    Ring(usize),
    /// Jump consistent hashing.
    Jump,
    /// The slots of Redis Cluster.
    Slots,
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sharding::Ring(virtual_nodes) => write!(f, "ring of {virtual_nodes}"),
            Sharding::Jump => f.write_str("jump"),
            Sharding::Slots => f.write_str("slots"),
        }
    }
}

/// Which shard has which key.
pub(super) enum Map {
    /// Ends of arcs, in order, and their shards.
    Ring(Vec<(u64, u32)>),
    Jump(u32),
    Slots(Vec<u32>),
}

impl Map {
    /// The map of so many shards.
    pub(super) fn new(sharding: Sharding, shards: u32, seed: u64) -> Self {
        match sharding {
            Sharding::Ring(virtual_nodes) => {
                let points = |shard: u32| {
                    let of = mix64(seed ^ mix64(u64::from(shard) + 1));
                    (0..virtual_nodes as u64).map(move |point| (mix64(of.wrapping_add(point)), shard))
                };
                let mut ring: Vec<(u64, u32)> = (0..shards).flat_map(points).collect();
                ring.sort_unstable();
                Map::Ring(ring)
            }
            Sharding::Jump => Map::Jump(shards),
            Sharding::Slots => Map::Slots(slots(shards)),
        }
    }

    /// The shard of a key.
    pub(super) fn shard(&self, key: &[u8], seed: u64) -> u32 {
        match self {
            Map::Ring(ring) => {
                let hash = hash(key, seed);
                let place = ring.partition_point(|(end, _)| *end < hash);
                ring.get(place).unwrap_or(&ring[0]).1
            }
            Map::Jump(shards) => jump(hash(key, seed), *shards),
            Map::Slots(slots) => slots[usize::from(crc16(key)) % SLOTS],
        }
    }
}

fn hash(key: &[u8], seed: u64) -> u64 {
    key.chunks(8).fold(seed, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix64(hash.wrapping_add(u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15))
    })
}

/// The bucket of a hash, by the loop of the paper.
fn jump(mut hash: u64, buckets: u32) -> u32 {
    let (mut bucket, mut next) = (0, 0.0);
    while next < f64::from(buckets) {
        bucket = next as u32;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = f64::from(bucket + 1) * ((1u64 << 31) as f64 / ((hash >> 33) + 1) as f64);
    }
    bucket
}

/// The shard of each slot, after shards were added one by one to a first one. A new shard takes one slot after the
/// other from the shard with the most, until it has its even part.
fn slots(shards: u32) -> Vec<u32> {
    let mut owned: Vec<Vec<usize>> = vec![(0..SLOTS).collect()];
    for new in 1..shards as usize {
        let mut taken = Vec::new();
        while taken.len() < SLOTS / (new + 1) {
            let richest = owned.iter_mut().max_by_key(|slots| slots.len());
            taken.extend(richest.and_then(Vec::pop));
        }
        owned.push(taken);
    }
    let mut owners = vec![0; SLOTS];
    for (owner, slots) in (0..).zip(&owned) {
        slots.iter().for_each(|&slot| owners[slot] = owner);
    }
    owners
}

/// CRC16 as Redis Cluster takes it: CCITT's polynomial, from 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_is_that_of_redis_cluster() {
        // The check value of the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(usize::from(crc16(b"foo")) % SLOTS, 12_182);
    }

    #[test]
    fn slots_stay_even_and_few_move() {
        let mut before = slots(1);
        for shards in 2..=300u32 {
            let after = slots(shards);
            let mut owned = vec![0usize; shards as usize];
            after.iter().for_each(|&owner| owned[owner as usize] += 1);
            let (least, most) = (owned.iter().min().unwrap(), owned.iter().max().unwrap());
            assert!(most - least <= 1, "{shards} shards: {least} to {most}");
            let moved: Vec<_> = before.iter().zip(&after).filter(|(one, other)| one != other).collect();
            assert!(moved.iter().all(|(_, owner)| **owner == shards - 1));
            assert_eq!(moved.len(), SLOTS / shards as usize);
            before = after;
        }
    }

    #[test]
    fn jump_moves_keys_to_the_new_bucket_alone() {
        for buckets in [1, 2, 10, 999] {
            let moved = (0..100_000).map(mix64).filter(|&hash| {
                let (one, other) = (jump(hash, buckets), jump(hash, buckets + 1));
                assert!(one < buckets && (one == other || other == buckets));
                one != other
            });
            let (moved, expected) = (moved.count() as f64, 1e5 / f64::from(buckets + 1));
            assert!((moved - expected).abs() < 5.0 * expected.sqrt(), "{moved} of {expected}");
        }
    }
}
