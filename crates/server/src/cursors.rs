//! The positions of all `SCAN`s in progress.
//!
//! Keys are walked in order, so a position is a key of any length, but a cursor is a number of 64 bits. This table maps
//! one to the other. A scan holds two positions at a time, its newest and the one before, so that a client whose reply
//! got lost may ask again. A cursor that the table no longer has is refused with `invalid cursor`, so that no client is
//! led past keys.
//!
//! No client may end another client's scan:
//!
//! 1. Each position belongs to the connection that made it, and a connection loses its own oldest one when it has too
//!    many.
//! 2. Positions of connections that have closed are kept, because clients with pools go on elsewhere. They go first
//!    when the table is full.
//! 3. After them, the connection whose positions have the most bytes loses its oldest one. A connection that holds less
//!    than its share of the table therefore loses nothing.
//! 4. A step ends the position before it, whoever sends the cursor. So cursors are keyed hashes, which no client can
//!    guess.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most positions of one connection: 64 scans side by side.
const OWN_POSITIONS_MAX: usize = 128;
/// Most positions of connections that have closed.
const ORPHANED_POSITIONS_MAX: usize = 8192;
/// Most bytes of all positions.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of a position besides its key: its entries in three trees.
const POSITION_BYTES: usize = 160;
/// The owner of the positions of closed connections. No connection has this number.
const NOBODY: u64 = 0;
/// Bits of a cursor. Some clients hold cursors in doubles.
const CURSOR_BITS: u32 = 53;

/// The positions of all scans.
#[derive(Debug)]
pub(crate) struct Cursors {
    /// Its key is random, so a cursor of an earlier server means nothing in this one.
    hasher: RandomState,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the newest position.
    newest: u64,
    bytes: usize,
    /// Positions by cursor.
    positions: HashMap<u64, Position>,
    owners: HashMap<u64, Owner>,
    /// Bytes and number of every connection that has positions.
    by_bytes: BTreeSet<(usize, u64)>,
}

#[derive(Debug)]
struct Position {
    /// Positions are numbered in the order in which they are made.
    number: u64,
    /// The key at which the scan goes on.
    from: Box<[u8]>,
    /// The cursor that led here.
    previous: u64,
    owner: u64,
}

#[derive(Debug, Default)]
struct Owner {
    bytes: usize,
    /// Its cursors, by the numbers of their positions.
    cursors: BTreeMap<u64, u64>,
}

impl Cursors {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), table: Mutex::default() }
    }

    /// The key at which the scan of `cursor` goes on. Its predecessor is forgotten.
    pub(crate) fn position(&self, cursor: u64) -> Option<Box<[u8]>> {
        let mut table = self.table();
        let position = table.positions.get(&cursor)?;
        let (from, previous) = (position.from.clone(), position.previous);
        table.remove(previous);
        Some(from)
    }

    /// A new cursor of connection `owner` for a scan that has come from `previous` (0 at its start) and goes on at the
    /// key `from`.
    pub(crate) fn advance(&self, owner: u64, previous: u64, from: &[u8]) -> u64 {
        let mut table = self.table();
        let (number, cursor) = loop {
            table.newest += 1;
            let cursor = self.hasher.hash_one(table.newest) >> (u64::BITS - CURSOR_BITS);
            if cursor != 0 && !table.positions.contains_key(&cursor) {
                break (table.newest, cursor);
            }
        };
        table.insert(cursor, Position { number, from: from.into(), previous, owner });
        table.keep_bounds(owner, OWN_POSITIONS_MAX);
        cursor
    }

    /// Connection `owner` has closed.
    pub(crate) fn orphan(&self, owner: u64) {
        let mut table = self.table();
        let Some(cursors) = table.owners.get(&owner).map(|owner| owner.cursors.values().copied()) else {
            return;
        };
        for cursor in cursors.collect::<Vec<_>>() {
            if let Some(position) = table.remove(cursor) {
                table.insert(cursor, Position { owner: NOBODY, ..position });
            }
        }
        table.keep_bounds(NOBODY, ORPHANED_POSITIONS_MAX);
    }

    /// Connection `owner` closed before it got its newest cursors, so nobody knows them.
    pub(crate) fn forget(&self, owner: u64) {
        let mut table = self.table();
        while table.owners.contains_key(&owner) {
            table.remove_oldest(owner);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, cursor: u64, position: Position) {
        let (bytes, owner, number) = (position.from.len() + POSITION_BYTES, position.owner, position.number);
        self.change_owner(owner, |owner| {
            owner.bytes += bytes;
            owner.cursors.insert(number, cursor);
        });
        self.bytes += bytes;
        self.positions.insert(cursor, position);
    }

    fn remove(&mut self, cursor: u64) -> Option<Position> {
        let position = self.positions.remove(&cursor)?;
        let bytes = position.from.len() + POSITION_BYTES;
        self.change_owner(position.owner, |owner| {
            owner.bytes -= bytes;
            owner.cursors.remove(&position.number);
        });
        self.bytes -= bytes;
        Some(position)
    }

    fn change_owner(&mut self, number: u64, change: impl FnOnce(&mut Owner)) {
        let owner = self.owners.entry(number).or_default();
        self.by_bytes.remove(&(owner.bytes, number));
        change(owner);
        if owner.cursors.is_empty() {
            self.owners.remove(&number);
        } else if number != NOBODY {
            self.by_bytes.insert((owner.bytes, number));
        }
    }

    /// Forgets positions of `owner` beyond `positions_max`, and positions of all owners beyond their bytes.
    fn keep_bounds(&mut self, owner: u64, positions_max: usize) {
        while self.owners.get(&owner).is_some_and(|owner| owner.cursors.len() > positions_max) {
            self.remove_oldest(owner);
        }
        while self.bytes > BYTES_MAX {
            let largest = self.by_bytes.last().map_or(NOBODY, |&(_, number)| number);
            self.remove_oldest(if self.owners.contains_key(&NOBODY) { NOBODY } else { largest });
        }
    }

    fn remove_oldest(&mut self, owner: u64) {
        let oldest = self.owners.get(&owner).and_then(|owner| owner.cursors.first_key_value());
        if let Some((_, &cursor)) = oldest {
            self.remove(cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_reply_can_be_asked_for_again() {
        let cursors = Cursors::new();
        let first = cursors.advance(1, 0, b"a");
        let second = cursors.advance(1, first, b"b");
        assert_eq!(cursors.position(first).unwrap().as_ref(), b"a");
        assert_eq!(cursors.position(second).unwrap().as_ref(), b"b");
        assert!(cursors.position(first).is_none());
    }

    #[test]
    fn a_cursor_does_not_tell_the_next_one() {
        let cursors = Cursors::new();
        let made: Vec<u64> = (0..64).map(|_| cursors.advance(1, 0, b"a")).collect();
        assert!(made.iter().all(|cursor| (1..1 << 53).contains(cursor)));
        let steps: BTreeSet<u64> = made.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert_eq!(steps.len(), made.len() - 1);
    }

    #[test]
    fn a_connection_that_abandons_scans_loses_its_own_only() {
        let cursors = Cursors::new();
        let others = cursors.advance(1, 0, b"others");
        let own = cursors.advance(2, 0, b"own");
        for _ in 0..OWN_POSITIONS_MAX {
            cursors.advance(2, 0, b"abandoned");
        }
        assert!(cursors.position(own).is_none());
        assert!(cursors.position(others).is_some());
    }

    #[test]
    fn a_closed_connection_leaves_its_scans_to_others_for_a_while() {
        let cursors = Cursors::new();
        let (live, left) = (cursors.advance(1, 0, b"live"), cursors.advance(2, 0, b"left"));
        cursors.orphan(2);
        cursors.orphan(3);
        assert!(cursors.position(left).is_some());
        for connection in 4..4 + ORPHANED_POSITIONS_MAX as u64 {
            cursors.advance(connection, 0, b"abandoned");
            cursors.orphan(connection);
        }
        assert!(cursors.position(left).is_none());
        assert!(cursors.position(live).is_some());
        assert_eq!(cursors.table().positions.len(), ORPHANED_POSITIONS_MAX + 1);
    }

    #[test]
    fn cursors_that_nobody_got_are_forgotten() {
        let cursors = Cursors::new();
        let (others, got) = (cursors.advance(1, 0, b"others"), cursors.advance(2, 0, b"a"));
        cursors.orphan(2);
        let lost = cursors.advance(2, got, b"b");
        cursors.forget(2);
        cursors.forget(3);
        assert!(cursors.position(lost).is_none());
        assert!(cursors.position(got).is_some() && cursors.position(others).is_some());
        assert_eq!(cursors.table().positions.len(), 2);
    }

    #[test]
    fn long_keys_of_many_cost_nobody_a_small_share() {
        let cursors = Cursors::new();
        let small = cursors.advance(1, 0, b"small");
        let left = cursors.advance(2, 0, b"left");
        cursors.orphan(2);
        for connection in 3..1000 {
            cursors.advance(connection, 0, &vec![b'k'; 64 << 10]);
        }
        assert!(cursors.table().bytes <= BYTES_MAX);
        assert!(cursors.position(small).is_some());
        assert!(cursors.position(left).is_none());
    }

    #[test]
    fn an_empty_table_holds_nothing() {
        let cursors = Cursors::new();
        let first = cursors.advance(1, 0, b"a");
        let second = cursors.advance(1, first, b"b");
        let mut table = cursors.table();
        assert!(table.remove(first).is_some() && table.remove(second).is_some());
        assert!(table.owners.is_empty() && table.by_bytes.is_empty() && table.bytes == 0);
    }
}
