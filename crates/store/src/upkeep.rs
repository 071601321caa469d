//! The upkeep of a leaf: the form that it needs, and the pack that gives it that form.
//!
//! Not for which leaf is visited: `sweep` goes through all of them, and `reclaimer`, `tierer` and `maintenance` choose.
//! Leaves on SSD keep their images: a pack takes the overlay alone.
//!
//! While a device packs the blocks of one leaf, the thread lays out the next leaves. Leaves that are closed are packed
//! alone, because writers wait for them, and so are leaves that their writers pack.
//!
//! 1. A background thread begins a leaf that is quiet, cools down, or waits in the queue.
//! 2. While the device works, the thread begins leaves to the right of it, or others of the queue.
//! 3. The thread publishes a leaf after all leaves that it began later. Until then each takes appends and answers reads
//!    as before.

mod sweep;

use crossbeam_epoch::Guard;

use crate::places::Moves;
use crate::room::Room;
use crate::s3fifo::{Eviction, S3Fifo};
pub(crate) use sweep::{Sweep, Visited};
use ziptier_tree::form::Form;
use ziptier_tree::leaf::{Leaf, LeafState, Place};
use ziptier_tree::packing::{Goal, Packs, Scratch};
use ziptier_tree::retention::Retention;
use ziptier_tree::tree::Tree;

/// A quiet leaf below this share of a full body is filled from its right neighbours.
const FULL_PCT: usize = 97;
/// Two neighbours that are written to are joined when together they stay below this share of a full body. The halves of
/// a split are well above it.
const JOINED_PCT: usize = 85;
/// A quiet leaf is recoded when more than one record in this many was coded fast. It is condensed when more than one in
/// this many has token numbers of one width. So what is packed again pays for copying the rest.
const LOOSE_SHARE: usize = 4;
/// Leaves to the right that a thread looks at while a device has one. With that one, so many bodies with their values
/// raw are under way at most.
pub(crate) const LEAVES_AHEAD_MAX: usize = 7;

/// Packs leaves as they need it. See the module.
#[derive(Clone, Copy)]
pub(crate) struct Upkeep<'e> {
    pub(crate) tree: &'e Tree,
    pub(crate) room: Room<'e>,
    pub(crate) moves: Moves<'e>,
    pub(crate) eviction: &'e Eviction,
}

/// Packs of one leaf.
impl<'e> Upkeep<'e> {
    /// The retention of a pack that a thread waits for. Probation may end in it.
    pub(crate) fn retention(&self) -> Option<S3Fifo<'e>> {
        S3Fifo::of(self.tree, self.eviction, true)
    }

    /// The retention of a pack that no thread waits for, and that may be given up.
    pub(crate) fn background_retention(&self) -> Option<S3Fifo<'e>> {
        S3Fifo::of(self.tree, self.eviction, false)
    }

    /// Runs `work` with what packs of this thread need. Records stay that `retention` keeps.
    pub(crate) fn with_packs<R>(
        &self,
        retention: &mut dyn Retention,
        guard: &Guard,
        work: impl FnOnce(&mut Packs<'_>) -> R,
    ) -> R {
        Scratch::with(|scratch| work(&mut Packs::new(self.tree, self.moves.host, retention, guard, scratch)))
    }

    /// Packs `leaf`, which the caller owns, as [`Packs::pack`] does. `false` if the leaf is on SSD, and its overlay has
    /// no room for the landing.
    pub(crate) fn pack(&self, leaf: &Leaf, goal: Goal, retention: &mut dyn Retention, guard: &Guard) -> bool {
        #[cfg(test)]
        self.tree.stats.tried_merges.raise();
        match leaf.state(guard).below {
            Some(_) => self.moves.pack_upper(leaf, guard),
            None => self.with_packs(retention, guard, |packs| packs.pack(leaf, goal)),
        }
    }

    /// As [`Upkeep::pack`], for work in the background: see [`Packs::pack_while`].
    pub(crate) fn pack_while(
        &self,
        leaf: &Leaf,
        goal: Goal,
        retention: &mut dyn Retention,
        guard: &Guard,
        meanwhile: &mut dyn FnMut(),
    ) -> bool {
        #[cfg(test)]
        self.tree.stats.tried_merges.raise();
        match leaf.state(guard).below {
            Some(_) => self.moves.pack_upper(leaf, guard),
            None => self.with_packs(retention, guard, |packs| packs.pack_while(leaf, goal, meanwhile)),
        }
    }

    /// Gives `leaf`, which the caller owns, its form, and leaves to its right theirs while a device has its blocks.
    /// `false` if memory has no room for that, or a damaged value keeps the leaf in its coding.
    fn settle_with_next(
        &self,
        leaf: &Leaf,
        goal: Goal,
        all_quiet: bool,
        left: &mut usize,
        guard: &Guard,
    ) -> bool {
        let state = leaf.state(guard);
        let was_hot = state.form.is_hot();
        // A landing that is sealed already is packed first, so that the open one can be.
        if state.sealed.is_some() && state.open.is_some() {
            let kept = if all_quiet { Goal::Settle } else { Goal::Keep };
            let retention = &mut self.background_retention();
            if !self.pack_while(leaf, kept, retention, guard, &mut || ()) {
                return false;
            }
        }
        leaf.seal(guard);
        let retention = &mut self.background_retention();
        let mut next = || self.settle_next(leaf, all_quiet, left, guard);
        let packed = self.pack_while(leaf, goal, retention, guard, &mut next);
        // A damaged value keeps its leaf in its coding.
        let state = leaf.state(guard);
        let stays = !goal.keeps_form()
            && (state.form.keeps_damage() || self.goal(state, true, all_quiet) == Some(goal));
        let settled = packed && !stays;
        if settled {
            self.count_settled(goal, was_hot);
        }
        settled
    }

    fn settle_next(&self, leaf: &Leaf, all_quiet: bool, left: &mut usize, guard: &Guard) {
        let mut next = leaf.state(guard).right(guard);
        while let Some(leaf) = next
            && *left > 0
        {
            *left -= 1;
            next = leaf.state(guard).right(guard);
            if !all_quiet && !leaf.stays_quiet() {
                continue;
            }
            let Some(_ownership) = leaf.try_own() else { continue };
            let state = leaf.state(guard);
            if !state.closed
                && self.room.has_place_for(&[state])
                && let Some(goal) = self.goal(state, true, all_quiet)
            {
                self.settle_with_next(leaf, goal, all_quiet, left, guard);
            }
        }
    }

    /// Counts the work on a leaf.
    pub(crate) fn count_settled(&self, goal: Goal, was_hot: bool) {
        match goal {
            Goal::Heat => self.tree.stats.heated.raise(),
            Goal::Renew | Goal::Recode if was_hot => self.tree.stats.cooled.raise(),
            Goal::Renew | Goal::Recode => self.tree.stats.recoded.raise(),
            Goal::Condense => self.tree.stats.condensed.raise(),
            Goal::Relax => self.tree.stats.relaxed.raise(),
            Goal::Keep | Goal::Settle => self.tree.stats.packs_background.raise(),
        }
    }

    /// Packs `leaf`, which the caller owns and other threads write to; `false` if memory has no room for that.
    fn settle_written(&self, leaf: &Leaf, goal: Goal, guard: &Guard) -> bool {
        let was_hot = leaf.state(guard).form.is_hot();
        // Records of the open landing may change when others expire.
        leaf.seal(guard);
        let retention = &mut self.background_retention();
        let settled = self.pack_while(leaf, goal, retention, guard, &mut || ());
        if settled {
            self.count_settled(goal, was_hot);
        }
        settled
    }

    /// Merges both landings of `leaf`, which the caller owns, and gives the body the form of `goal`.
    pub(crate) fn settle_leaf(&self, leaf: &Leaf, goal: Goal, guard: &Guard) {
        let state = leaf.state(guard);
        // A landing that is sealed already is packed first, so that the open one can be.
        if state.sealed.is_some() && state.open.is_some() {
            self.pack(leaf, Goal::Keep, &mut self.retention(), guard);
        }
        leaf.seal(guard);
        self.pack(leaf, goal, &mut self.retention(), guard);
    }

    /// The pack that brings a leaf that nobody writes to to its dense form, if it would be smaller then.
    pub(crate) fn denser(&self, state: &LeafState) -> Option<Goal> {
        self.goal(state, true, true).filter(|goal| matches!(goal, Goal::Recode | Goal::Condense))
    }

    /// The pack that a leaf needs, if any. Where all leaves are to be `dense`, one whose values were coded fast needs
    /// another pack.
    pub(crate) fn goal(&self, state: &LeafState, quiet: bool, dense: bool) -> Option<Goal> {
        if quiet
            && !state.form.is_hot()
            && !state.form.keeps_damage()
            && !state.body.is_empty()
            && state.place() != Place::Ssd
            && let Some(current) = self.tree.dictionaries.current()
        {
            // Dense tokens save 1 to 2 % in twice the time. Dense blocks save much more.
            let dense = dense || current.blocks().is_some();
            let is_loose = usize::from(state.form.loose()) * LOOSE_SHARE > state.body.len();
            if dense && is_loose || state.form.generation() != Some(current.generation()) {
                return Some(if dense { Goal::Recode } else { Goal::Renew });
            }
            if dense && is_plain(state) {
                return Some(Goal::Condense);
            }
        }
        let expired = state.body.earliest_expiry_ms().is_some_and(|at| at <= self.tree.expiry_now_ms());
        let settles = quiet && state.is_unsettled();
        let kept = if dense { Goal::Settle } else { Goal::Keep };
        (expired || settles || state.sealed.is_some()).then_some(kept)
    }

    /// Whether a leaf and its right neighbour, which may be written to, fit one body with room to grow.
    pub(crate) fn is_small(&self, state: &LeafState, guard: &Guard) -> bool {
        // Most leaves are large enough alone: the neighbour is looked at only where it may matter.
        let is_large = |bytes: usize, records: usize| {
            records * 100 >= self.tree.limits.records_full * JOINED_PCT
                || bytes * 100 >= self.tree.limits.bytes_full * JOINED_PCT
        };
        if is_large(state.body.asked_bytes(), state.body.len()) {
            return false;
        }
        let Some(right) = state.right(guard) else { return false };
        let pair = [state, right.state(guard)];
        let records = pair.iter().map(|state| state.body.len()).sum::<usize>();
        let bytes = pair.iter().map(|state| state.body.asked_bytes()).sum::<usize>();
        !is_large(bytes, records)
            && pair.iter().all(|state| may_be_cut(state))
            && pair[0].form.generation() == pair[1].form.generation()
    }

    /// How full a leaf is, by records or by bytes.
    fn full_pct(&self, state: &LeafState) -> usize {
        let records_pct = state.body.len() * 100 / self.tree.limits.records_full;
        records_pct.max(state.body.asked_bytes() * 100 / self.tree.limits.bytes_full)
    }

    /// Whether a leaf has room that records of its right neighbour could fill. A neighbour that is to be recoded comes
    /// first, or its records would have both leaves recoded.
    fn has_room(&self, state: &LeafState, dense: bool, guard: &Guard) -> bool {
        let Some(right) = state.right(guard) else { return false };
        let right = right.state(guard);
        // A neighbour's first record may not fit, however much room there is; blocks are cut.
        let record_pct =
            right.body.asked_bytes() * 100 / self.tree.limits.bytes_full / right.body.len().max(1);
        self.full_pct(state) < FULL_PCT
            && state.body.asked_bytes() * 100 / self.tree.limits.bytes_full + record_pct < FULL_PCT
            && [state, right].iter().all(|state| may_be_cut(state) && !state.is_unsettled())
            && state.form.generation() == right.form.generation()
            && self.goal(right, true, dense).is_none_or(Goal::keeps_form)
    }
}

/// Whether a leaf may give records to a neighbour, or take some.
fn may_be_cut(state: &LeafState) -> bool {
    !state.form.is_hot() && !state.closed && state.place() != Place::Ssd
}

/// Whether a leaf has enough values that could be coded by entropy. Values that tokens make no smaller lie raw, and the
/// state counts them, too. So the body has the last word.
fn is_plain(state: &LeafState) -> bool {
    let Form::Coded { tokens, plain, .. } = &state.form else { return false };
    let are_many = |values: usize| values * LOOSE_SHARE > state.body.len();
    are_many((*plain).into()) && tokens.codes().is_some() && are_many(state.body.plain())
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use ziptier_accel::{Device, Injection, Misfortune, Model, ModelOptions, Status};
    use ziptier_codec::block::iaa::Iaa;
    use ziptier_codec::block::{
        BlockCodec, BlockError, Counters, Done, Engine, Huffman, Job, Path, Setting, Task, run_job,
    };
    use ziptier_codec::format::Format;
    use ziptier_tree::blocks::{BlockCoding, Effort, ReadAhead};
    use ziptier_tree::codec_options::{BlockOptions, CodecChoice};
    use ziptier_tree::coding::Coding;
    use ziptier_tree::record::PutMeta;

    use crate::core::Core;
    use crate::options::Options;

    const KEYS: u32 = 3000;

    fn value(number: u32, version: u32) -> Vec<u8> {
        format!("the value of {number} in version {version}; ").repeat(1 + (number * 7 % 5) as usize).into()
    }

    /// Holds blocks that are to be packed until somebody asks for them again and again, and does them, the last first,
    /// in software.
    struct Holding {
        software: Arc<dyn Engine>,
        /// The most jobs that were held at a time, those that compress and those that decompress.
        compress_max: AtomicUsize,
        decompress_max: AtomicUsize,
    }

    struct HoldingContext<'a> {
        engine: &'a Holding,
        software: Box<dyn BlockCodec + 'a>,
        held: Vec<Job>,
        /// How often somebody asked since the last submission.
        asked: u32,
    }

    const PATIENCE: u32 = 20;

    impl Holding {
        fn new() -> Arc<Self> {
            let software = Setting::new(Format::Deflate).engine_named("software").unwrap();
            Arc::new(Self { software, compress_max: 0.into(), decompress_max: 0.into() })
        }

        /// The most jobs held since this was last asked.
        fn most(&self) -> [usize; 2] {
            [&self.compress_max, &self.decompress_max].map(|max| max.swap(0, Relaxed))
        }
    }

    impl Engine for Holding {
        fn name(&self) -> &'static str {
            "holding"
        }

        fn format(&self) -> Format {
            Format::Deflate
        }

        fn is_asynchronous(&self) -> bool {
            true
        }

        fn counters(&self) -> &Counters {
            self.software.counters()
        }

        fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
            let (software, held) = (self.software.open()?, Vec::new());
            Ok(Box::new(HoldingContext { engine: self, software, held, asked: 0 }))
        }
    }

    impl BlockCodec for HoldingContext<'_> {
        fn compress(
            &mut self,
            raw: &[u8],
            out: &mut Vec<u8>,
            max: usize,
        ) -> Result<Option<usize>, BlockError> {
            self.software.compress(raw, out, max)
        }

        fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, bytes: usize) -> Result<(), BlockError> {
            self.software.decompress(packed, out, bytes)
        }

        fn submit(&mut self, job: Job) -> Result<(), Job> {
            self.asked = 0;
            self.held.push(job);
            let packed = self.held.iter().filter(|job| compresses(job)).count();
            self.engine.compress_max.fetch_max(packed, Relaxed);
            self.engine.decompress_max.fetch_max(self.held.len() - packed, Relaxed);
            Ok(())
        }

        fn reap(&mut self, done: &mut Vec<Done>, _wait: bool) {
            self.asked += 1;
            let (asked, software) = (self.asked, &mut *self.software);
            // One look is for free: it belongs to a submission.
            let ends = |job: &mut Job| asked > 1 && !compresses(job) || asked > PATIENCE;
            done.extend(self.held.extract_if(.., ends).map(|job| run_job(software, job)));
            done.reverse();
        }
    }

    fn compresses(job: &Job) -> bool {
        matches!(job.task, Task::Compress { .. })
    }

    /// A store without background threads whose blocks this engine packs.
    fn core_on(engine: Arc<dyn Engine>, block: BlockOptions) -> Core {
        let options =
            Options { codec: CodecChoice::Deflate, background_threads: 0, block, ..Options::default() };
        let core = Core::new(&options);
        core.tree.dictionaries.adopt(Coding::Blocks(BlockCoding::on(engine, options.block)));
        core
    }

    fn put_all(core: &Core, version: u32) {
        for number in 0..KEYS {
            core.put(&number.to_be_bytes(), &value(number, version), PutMeta::default()).unwrap();
        }
    }

    fn check_all(core: &Core, version: u32) {
        for number in 0..KEYS {
            let mut found = Vec::new();
            assert!(core.read(&number.to_be_bytes(), &mut found).unwrap().is_some());
            assert_eq!(found, value(number, version));
        }
    }

    /// The most blocks of any body.
    fn blocks_max(core: &Core) -> usize {
        let guard = core.tree.pin();
        let mut leaf = Some(core.tree.locate(&[], &guard).0);
        let mut most = 0;
        while let Some(own) = leaf {
            most = most.max(own.state(&guard).body.blocks());
            leaf = own.state(&guard).right(&guard);
        }
        most
    }

    #[test]
    fn the_next_bodies_are_laid_out_while_a_device_has_the_blocks_of_one() {
        for context_cache in [true, false] {
            let engine = Holding::new();
            let core = core_on(engine.clone(), BlockOptions { context_cache, ..BlockOptions::default() });
            put_all(&core, 0);
            core.settle();
            check_all(&core, 0);
            engine.most();
            // Every leaf has a landing and blocks that were packed fast.
            put_all(&core, 1);
            core.settle();
            let [packed, unpacked] = engine.most();
            let of_a_body = blocks_max(&core);
            assert!(of_a_body > 4 && unpacked > 4, "{of_a_body} {unpacked}");
            // Without contexts that are kept, nothing is under way when the next body is laid out.
            assert_eq!(packed > 2 * of_a_body, context_cache, "{packed} of {of_a_body}");
            check_all(&core, 1);
        }
    }

    #[test]
    fn leaves_in_the_queue_are_packed_together() {
        let engine = Holding::new();
        let core = core_on(engine.clone(), BlockOptions::default());
        put_all(&core, 0);
        core.settle();
        let guard = core.tree.pin();
        let mut leaf = Some(core.tree.locate(&[], &guard).0);
        for number in (0..KEYS).step_by(40) {
            core.put(&number.to_be_bytes(), &value(number, 1), PutMeta::default()).unwrap();
        }
        let mut queued = 0;
        while let Some(own) = leaf {
            own.seal(&guard);
            assert!(core.backlog.queue.push(own));
            queued += 1;
            leaf = own.state(&guard).right(&guard);
        }
        engine.most();
        let (mut packs, mut calls) = (0, 0);
        while let Some(leaf) = core.backlog.queue.pop() {
            packs += core.maintenance().pack_queued(&leaf, &guard);
            calls += 1;
        }
        assert_eq!(packs, queued);
        assert!(calls * 3 < queued, "{calls} of {queued}");
        // A leaf that a writer has packed meanwhile is no pack.
        let packed = core.tree.stats.packs_background.get();
        core.maintenance().pack_queued(core.tree.locate(&[], &guard).0, &guard);
        assert_eq!(core.tree.stats.packs_background.get(), packed);
        assert!(engine.most()[0] > 4);
        for number in (0..KEYS).step_by(40) {
            let mut found = Vec::new();
            core.read(&number.to_be_bytes(), &mut found).unwrap();
            assert_eq!(found, value(number, 1));
        }
    }

    /// A body that grows by a size class of the allocator takes more than its landing frees.
    #[test]
    fn a_pack_of_the_queue_that_memory_has_no_room_for_does_not_count() {
        let options = Options {
            codec: CodecChoice::None,
            background_threads: 0,
            landing_bytes: 256,
            ..Options::default()
        };
        let core = Core::new(&options);
        let mut given_up = 0;
        for number in 0..48_u32 {
            let key = number.to_be_bytes();
            core.put(&key, &[7; 100], PutMeta::default()).unwrap();
            let guard = core.tree.pin();
            let (leaf, _) = core.tree.locate(&key, &guard);
            leaf.seal(&guard);
            let packs_within = |limit_bytes| {
                core.set_memory_limit(limit_bytes);
                let before = core.tree.stats.packs_background.get();
                core.maintenance().pack_queued(leaf, &guard);
                core.tree.stats.packs_background.get() - before
            };
            let packs = packs_within(Some(1));
            let is_given_up = leaf.state(&guard).sealed.is_some();
            assert_eq!(packs, u64::from(!is_given_up), "record {number}");
            assert_eq!(packs_within(None), u64::from(is_given_up), "record {number}");
            given_up += u32::from(is_given_up);
        }
        assert!(given_up > 0);
    }

    #[test]
    fn blocks_under_way_outlive_idle_contexts_and_those_given_up_do_not_keep_them() {
        let engine = Holding::new();
        let coding = BlockCoding::on(engine, BlockOptions::default());
        let contents = [value(3, 1), value(4, 1), vec![7; 300]];
        let begun = contents.iter().map(|raw| coding.begin_pack(Effort::Fast, raw)).collect();
        (0..3).for_each(|_| coding.release_idle());
        drop(coding.begin_pack(Effort::Fast, b"given up"));
        let frames = coding.finish_pack(Effort::Fast, begun);
        let ahead = ReadAhead::of(&coding, frames.iter().map(Vec::as_slice));
        for (frame, contents) in frames.iter().zip(&contents) {
            let (mut now, mut before) = (Vec::new(), Vec::new());
            coding.unpack(frame, &mut now).unwrap();
            ahead.append(&coding, frame, &mut before).unwrap();
            assert!(now == *contents && before == *contents);
        }
        (0..2).for_each(|_| coding.release_idle());
        assert_eq!(coding.contexts_kept(), 0);
    }

    #[test]
    fn a_device_that_fails_while_leaves_are_packed_together_costs_no_value() {
        let status = Misfortune::Status;
        let fault = Misfortune::PageFault { is_write: true, offset: 0 };
        let some = |one_in| Injection { one_in, ..Injection::default() };
        // And whether it comes to the device's work being done by software.
        let cases = [
            (some(vec![(3, Misfortune::QueueFull)]), false),
            (some(vec![(2, Misfortune::Late { jobs: 5 })]), false),
            (some(vec![(5, status(Status::Hardware)), (9, fault)]), true),
            (Injection { plan: vec![(700, Misfortune::Stuck)], ..Injection::default() }, true),
            (Injection { lost_after: Some(900), ..Injection::default() }, true),
        ];
        let paths = [Path::Auto, Path::Hardware];
        let cases = paths.iter().flat_map(|path| cases.iter().map(move |case| (*path, case.clone())));
        for (path, (injection, falls_back)) in cases {
            let model = Model::with_injection(&ModelOptions::default(), injection).unwrap();
            let devices: Vec<Arc<dyn Device>> = vec![Arc::new(model)];
            let setting = Setting::new(Format::Deflate).with_huffman(Huffman::Dynamic).with_path(path);
            // The test waits for no job that never ends. A job that ends has all the time that its thread may need.
            let job_time_max = Duration::from_millis(if falls_back { 200 } else { 60_000 });
            let engine = Arc::new(Iaa::on(&setting, devices, job_time_max).unwrap());
            let core = core_on(engine.clone(), BlockOptions::default());
            put_all(&core, 0);
            core.settle();
            put_all(&core, 1);
            core.settle();
            check_all(&core, 1);
            let counted = engine.counters().snapshot();
            assert_eq!(core.tree.stats.stats().damaged, 0);
            assert_eq!(counted.fallbacks > 0, falls_back && path == Path::Auto, "{counted}");
            assert_eq!(counted.faults > 0, falls_back, "{counted}");
        }
    }
}
