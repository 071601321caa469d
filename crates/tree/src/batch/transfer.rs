//! Moving and copying: a value goes from one key to another in one step for every reader.
//!
//! It is a batch whose second half depends on the first, so both leaves are locked before the source is read. A large
//! value is shared with its new record, not copied.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::landing::RecordBytes;
use crate::large::Large;
use crate::leaf::Leaf;
use crate::operation::Operation;
use crate::read::{Copied, copy_found};
use crate::record::{Fields, Found, Kind, Lookup, Meta, PutMeta, check_key, key_hash};
use crate::sizes::INLINE_BYTES_MAX;
use crate::tree::Tree;
use crate::update::ATTEMPTS_MAX;
use crate::write::{NewValue, Writes};

/// How a rename or a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transferred {
    /// The target has the source's value, expiry and flags.
    Done,
    /// There is no source; nothing was changed.
    NoSource,
    /// There is a target, which was to be kept; nothing was changed.
    TargetExists,
    /// The caller did not grant a [`Need`]; nothing was changed.
    NotGranted,
}

/// A grant that a rename or a copy asks its caller for before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Time, for somebody else writes to one of the leaves, or one has to be packed first.
    Wait,
    /// Memory, for as many bytes of a large value are read for the log.
    Bytes(u64),
}

/// A source's value: its bytes, and what the new record shares if it is large.
#[derive(Default)]
struct Carried {
    bytes: Vec<u8>,
    large: Option<Arc<Large>>,
}

/// A transfer that a caller asks for.
#[derive(Clone, Copy)]
struct Wish<'k> {
    source: &'k [u8],
    target: &'k [u8],
    keep_source: bool,
    /// Whether a target that is there gives way.
    replace: bool,
}

/// How an attempt ended.
enum Tried<'k> {
    Ended(Transferred),
    /// The leaf of this key is crowded and has two full landings, and the record would make one of them larger still.
    Full(&'k [u8]),
    /// The source has a large value other than the one in [`Carried`], where it is put now: its bytes are to be read
    /// first. Or memory does not know one of the keys any more, or the source was evicted at this moment.
    Again,
    /// Somebody else has a leaf, and the caller may not wait for it.
    Busy,
}

impl Writes<'_> {
    /// Gives `target` what `source` has, and deletes `source` unless it is kept. The same key twice is left alone.
    pub fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
    ) -> Result<Transferred, Error> {
        self.transfer_granted(source, target, keep_source, replace, &mut |_| true)
    }

    /// As [`Writes::transfer`], if `grant` says yes to all that it needs. After [`ATTEMPTS_MAX`] attempts other writers
    /// of `source` wait.
    pub fn transfer_granted(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
        grant: &mut dyn FnMut(Need) -> bool,
    ) -> Result<Transferred, Error> {
        check_key(source)?;
        check_key(target)?;
        self.host.wait_for_retired();
        let wish = Wish { source, target, keep_source, replace };
        let mut carried = Carried::default();
        let mut turn = None;
        let (mut attempts, mut waits) = (0, false);
        loop {
            if let Some(journal) = self.journal {
                journal.wait_for_room()?;
            }
            if attempts == ATTEMPTS_MAX {
                turn = Some(self.tree.turns.take(key_hash(source)));
            }
            attempts += 1;
            if turn.is_none() && !self.wait_for_turns([source, target], grant) {
                return Ok(Transferred::NotGranted);
            }
            self.bring_up(source)?;
            if !replace {
                self.bring_up(target)?;
            }
            match self.try_transfer(wish, &mut carried, waits) {
                // Both leaves were locked when it was found out how much it takes.
                Err(Error::MemoryLimit(_)) => {
                    self.host.make_room(source.len() + target.len() + INLINE_BYTES_MAX)?;
                    continue;
                }
                Err(error) => return Err(error),
                Ok(Tried::Ended(transferred)) => {
                    drop((turn, carried));
                    if transferred == Transferred::Done && source != target {
                        self.host.after_batch();
                    }
                    return Ok(transferred);
                }
                Ok(Tried::Busy) if grant(Need::Wait) => {
                    waits = true;
                    continue;
                }
                Ok(Tried::Full(key)) if grant(Need::Wait) => {
                    self.host.pack_full(key, false, attempts)?;
                    continue;
                }
                Ok(Tried::Busy | Tried::Full(_)) => return Ok(Transferred::NotGranted),
                Ok(Tried::Again) => {}
            }
            if !self.tree.read_carried(source, &mut carried, grant)? {
                return Ok(Transferred::NotGranted);
            }
        }
    }

    /// Waits until no other update has its turn for one of `keys`; `false` if the caller does not grant that.
    fn wait_for_turns(&self, keys: [&[u8]; 2], grant: &mut dyn FnMut(Need) -> bool) -> bool {
        let may_go_on = !self.tree.turns.holds_up(keys.into_iter()) || grant(Need::Wait);
        if may_go_on {
            self.tree.turns.wait_for_all(keys.into_iter());
        }
        may_go_on
    }

    fn try_transfer<'k>(
        &self,
        wish: Wish<'k>,
        carried: &mut Carried,
        waits: bool,
    ) -> Result<Tried<'k>, Error> {
        let Wish { source, target, keep_source, .. } = wish;
        let guard = self.tree.pin();
        let keys = [source.min(target), source.max(target)];
        let Some((locked, leaf_of)) = self.tree.lock_leaves(keys.into_iter(), waits, &guard) else {
            return Ok(Tried::Busy);
        };
        let (first, last) = (locked[leaf_of[0]].leaf, locked[leaf_of[1]].leaf);
        let (of_source, of_target) = if source <= target { (first, last) } else { (last, first) };
        let found = match self.tree.find_source(wish, of_source, of_target, &guard) {
            Ok(found) => found,
            Err(ended) => return Ok(ended),
        };
        let mut inline = Vec::new();
        let Some(copied) = copy_unless_gone(found, &mut inline) else { return Ok(Tried::Again) };
        let (mut value, meta): (NewValue<'_>, Meta) = match copied {
            Copied::Inline(meta) => (NewValue::Inline(&inline), meta),
            Copied::Large(large, meta) => {
                let is_read = carried.large.as_ref().is_some_and(|read| Arc::ptr_eq(read, &large));
                if self.journal.is_some() && !is_read {
                    carried.large = Some(large);
                    return Ok(Tried::Again);
                }
                (NewValue::Large { large: Some(large), raw: &carried.bytes }, meta)
            }
            Copied::Damaged(reason) => return Err(self.tree.damaged(source, reason)),
        };
        let inline_bytes = if let NewValue::Inline(bytes) = &value { bytes.len() } else { 0 };
        self.host.admit(source.len() + target.len() + inline_bytes)?;

        let fields = Fields::of(PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags });
        self.log_transfer(wish, &value, &fields)?;
        let number = self.tree.commits.begin();
        let mut record = RecordBytes::default();
        value.lay_out(&mut record, Fields { batch: Some(number), ..fields }, target, Kind::Raw);
        self.append_growing(of_target, &record, key_hash(target), &guard);
        self.tree.count_write(target, &value);
        value.written();
        if !keep_source {
            let fields = Fields { batch: Some(number), ..Fields::default() };
            NewValue::None.lay_out(&mut record, fields, source, Kind::Tombstone);
            self.append_growing(of_source, &record, key_hash(source), &guard);
            self.tree.count_write(source, &NewValue::None);
        }
        self.commit(number, locked, &guard);
        Ok(Tried::Ended(Transferred::Done))
    }

    /// Logs a transfer that is applied next, if there is a log.
    fn log_transfer(&self, wish: Wish<'_>, value: &NewValue<'_>, fields: &Fields) -> Result<(), Error> {
        let Some(journal) = self.journal else { return Ok(()) };
        let delete = (!wish.keep_source).then_some(Operation::Delete { key: wish.source });
        let put = Operation::put(wish.target, value.raw(), fields);
        journal.append_all(&mut [put].into_iter().chain(delete))?;
        let logged_bytes = put.bytes() + delete.map_or(0, |delete| delete.bytes());
        self.tree.stats.own().logged_bytes.add(logged_bytes);
        Ok(())
    }
}

impl Tree {
    /// The record of the source, if the attempt may go on; otherwise how it ends. The caller holds the writer locks of
    /// both leaves.
    fn find_source<'g, 'k>(
        &self,
        wish: Wish<'k>,
        of_source: &Leaf,
        of_target: &Leaf,
        guard: &'g Guard,
    ) -> Result<Found<'g>, Tried<'k>> {
        let Wish { source, target, keep_source, replace } = wish;
        let find = |leaf: &Leaf, key| match leaf.state(guard).find(key, key_hash(key), &self.commits).0 {
            Lookup::Found(found) if !self.is_over(found.expires_at_ms) => Some(found),
            _ => None,
        };
        let is_only_below =
            |leaf: &Leaf, key| leaf.state(guard).is_only_below(key, key_hash(key), &self.commits);
        if is_only_below(of_source, source) || !replace && is_only_below(of_target, target) {
            return Err(Tried::Again);
        }
        let Some(found) = find(of_source, source) else {
            return Err(Tried::Ended(Transferred::NoSource));
        };
        if !replace && find(of_target, target).is_some() {
            return Err(Tried::Ended(Transferred::TargetExists));
        }
        if source == target {
            return Err(Tried::Ended(Transferred::Done));
        }
        let written = [Some((of_target, target)), Some((of_source, source)).filter(|_| !keep_source)];
        let takes_no_more = |leaf: &Leaf| {
            let state = leaf.state(guard);
            self.is_full(state) && state.is_crowded()
        };
        match written.into_iter().flatten().find(|(leaf, _)| takes_no_more(leaf)) {
            Some((_, key)) => Err(Tried::Full(key)),
            None => Ok(found),
        }
    }

    /// Reads the bytes of a large value, which the log needs, under no lock. `false` if the caller does not grant them.
    fn read_carried(
        &self,
        source: &[u8],
        carried: &mut Carried,
        grant: &mut dyn FnMut(Need) -> bool,
    ) -> Result<bool, Error> {
        let Some(large) = &carried.large else { return Ok(true) };
        carried.bytes = Vec::new();
        if !grant(Need::Bytes(large.len())) {
            return Ok(false);
        }
        carried.bytes.reserve_exact(large.len() as usize);
        self.read_large(source, large, &mut carried.bytes).map(|()| true)
    }
}

/// As [`copy_found`]. `None` if eviction, which packs a leaf beside its writers, took the record of a large value: no
/// record may refer to that value again.
fn copy_unless_gone(found: Found<'_>, inline: &mut Vec<u8>) -> Option<Copied> {
    match copy_found(found, inline) {
        Copied::Large(large, _) if large.is_retired() => None,
        copied => Some(copied),
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(any(miri, shuttle))))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::alone::Alone;
    use crate::batch::Batch;
    use crate::body::Body;
    use crate::codec_options::CodecChoice;
    use crate::marks::Mark;
    use crate::multi_get::{MULTI_GET_ROUNDS, Values};
    use crate::packing::Goal;
    use crate::pending::Pending;
    use crate::record::PutMeta;
    use crate::retention::Retention;

    /// Drops all records.
    struct DropsAll;

    impl Retention for DropsAll {
        fn decides(&self) -> bool {
            true
        }

        fn begin(&mut self) {}

        fn begin_leaf(&mut self, _: &Leaf, _: &Body, _: u64, _: &Guard) {}

        fn keeps(&mut self, _: &Body, _: usize) -> bool {
            false
        }

        fn writes(&mut self, _: &Pending<'_>, _: Option<usize>) {}

        fn commit(&mut self) -> Vec<Mark> {
            Vec::new()
        }
    }

    /// The value would count as retired for as long as its new name lives.
    #[test]
    fn a_large_value_whose_record_was_evicted_meanwhile_gets_no_other_name() {
        let alone = Alone::new(CodecChoice::None);
        for (key, bytes) in [(&b"large"[..], 3000), (b"small", 10)] {
            alone.put(key, &vec![7; bytes], PutMeta::default()).unwrap();
        }
        alone.settle();
        let guard = alone.tree.pin();
        let (leaf, state) = alone.tree.locate(b"large", &guard);
        let Lookup::Found(found) = state.find(b"large", key_hash(b"large"), &alone.tree.commits).0 else {
            panic!("it is there")
        };
        assert!(copy_unless_gone(found, &mut Vec::new()).is_some());
        let _ownership = leaf.try_own().unwrap();
        alone.pack_with(leaf, Goal::Keep, &mut DropsAll, &guard);
        assert_eq!(leaf.state(&guard).body.len(), 0);
        assert!(copy_unless_gone(found, &mut Vec::new()).is_none());
    }

    #[test]
    fn a_caller_that_may_not_wait_is_told_that_a_batch_is_being_written() {
        let alone = Alone::new(CodecChoice::None);
        alone.set_memory_limit(Some(64 << 20));
        alone.put(b"a", b"value", PutMeta::default()).unwrap();
        let batch = Batch::new().put(b"x", b"1").put(b"y", b"2");
        let moved = |grants: bool| {
            let mut needs = Vec::new();
            let moved = alone.writes().transfer_granted(b"a", b"b", true, true, &mut |need| {
                needs.push(need);
                grants
            });
            (moved, needs)
        };
        let guard = alone.tree.pin();
        // One leaf has all keys.
        let locked = alone.tree.lock_leaf(b"", &guard);
        assert_eq!(alone.writes().write_waiting(&batch, false), Ok(None));
        assert_eq!(moved(false), (Ok(Transferred::NotGranted), vec![Need::Wait]));
        drop(locked);
        let long = alone.tree.long_batches.lock();
        let many = (0..1000_u32).fold(Batch::new(), |many, n| many.put(&n.to_be_bytes(), &[7; 100]));
        assert_eq!(alone.writes().write_waiting(&many, false), Ok(None));
        drop(long);
        assert!(alone.read(b"x", &mut Vec::new()).unwrap().is_none());
        assert_eq!(alone.writes().write_waiting(&batch, false), Ok(Some(true)));
        assert_eq!(moved(false), (Ok(Transferred::Done), vec![]));
        // So does a key that has its turn hold up its own writers, and no others.
        let turn = alone.tree.turns.take(key_hash(b"a"));
        let of_that_key = Batch::new().put(b"a", b"value").put(b"z", b"3");
        assert_eq!(alone.writes().write_waiting(&of_that_key, false), Ok(None));
        assert_eq!(moved(false), (Ok(Transferred::NotGranted), vec![Need::Wait]));
        assert_eq!(alone.writes().write_waiting(&batch, false), Ok(Some(true)));
        drop(turn);
        assert_eq!(alone.writes().write_waiting(&of_that_key, false), Ok(Some(true)));
        std::thread::scope(|scope| {
            let locked = alone.tree.lock_leaf(b"", &guard);
            let (asked, is_asked) = std::sync::mpsc::channel();
            let alone = &alone;
            let waiting = scope.spawn(move || {
                alone.writes().transfer_granted(b"a", b"c", true, true, &mut |need| asked.send(need).is_ok())
            });
            assert_eq!(is_asked.recv(), Ok(Need::Wait));
            drop(locked);
            assert_eq!(waiting.join().unwrap(), Ok(Transferred::Done));
        });
    }

    /// A key that counts its look-ups. Beside so many of the next ones a batch is committed.
    struct Busy<'c> {
        alone: &'c Alone,
        looks: &'c Cell<usize>,
        left: &'c Cell<usize>,
    }

    impl AsRef<[u8]> for Busy<'_> {
        fn as_ref(&self) -> &[u8] {
            self.looks.set(self.looks.get() + 1);
            if self.left.get() > 0 {
                self.left.set(self.left.get() - 1);
                self.alone.tree.commits.commit(self.alone.tree.commits.begin());
            }
            b"a"
        }
    }

    #[test]
    fn a_multi_get_does_not_wait_for_a_long_batch() {
        let alone = Alone::new(CodecChoice::None);
        alone.put(b"a", b"value", PutMeta::default()).unwrap();
        let (mut values, looks, left) = (Values::default(), Cell::new(0), Cell::new(0));
        let keys = [Busy { alone: &alone, looks: &looks, left: &left }];
        alone.reads().multi_get(&keys, u64::MAX, &mut values).unwrap();
        let _long = alone.tree.commits.begin();
        // A commit beside every look at the keys but the last, which holds commits up.
        left.set(MULTI_GET_ROUNDS * looks.get());
        alone.reads().multi_get(&keys, u64::MAX, &mut values).unwrap();
        assert_eq!((values.get(0), left.get()), (Some(&b"value"[..]), 0));
    }
}
