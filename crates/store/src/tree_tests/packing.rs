//! Packs beside eviction, at the memory limit, and with dictionaries that follow each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ziptier_tree::body::Body;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::coding::Coding;
use ziptier_tree::leaf::Leaf;
use ziptier_tree::marks::Mark;
use ziptier_tree::packing::Goal;
use ziptier_tree::pending::Pending;
use ziptier_tree::record::PutMeta;
use ziptier_tree::retention::Retention;
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use crate::core::Core;
use crate::options::Options;
use crate::upkeep::Sweep;
use crossbeam_epoch::Guard;
use ziptier_codec::token::Dictionary;

/// Held bytes once nothing waits for a reader.
fn held(core: &Core) -> u64 {
    while core.tree.gauges.retired.held() > 0 {
        core.tree.reclaim();
    }
    core.tree.gauges.held()
}

/// Packs or joins all leaves while DRAM is as full as it may be; how many changed, and how many were left.
fn work_at_the_limit(core: &Core, work: impl Fn(&Leaf, &Guard) -> bool) -> (u64, u64) {
    let (mut changed, mut left) = (0, 0);
    let mut cursor = Some(Vec::new());
    while let Some(low) = cursor {
        let limit_bytes = held(core);
        core.tree.gauges.set_limit(Some(limit_bytes));
        let guard = core.tree.pin();
        let (leaf, _) = core.tree.locate(&low, &guard);
        let ownership = leaf.try_own().expect("nobody else maintains it");
        let done = work(leaf, &guard);
        (changed, left) = (changed + u64::from(done), left + u64::from(!done));
        cursor = leaf.state(&guard).high.as_ref().map(|high| high.to_vec());
        drop(ownership);
        drop(guard);
        // A leaf more in the index is not asked for.
        assert!(held(core) <= limit_bytes + 1024, "{} of {limit_bytes}", held(core));
    }
    core.tree.gauges.set_limit(None);
    (changed, left)
}

/// A retention of a pack beside which eviction begins or ends.
struct Switches<'c, R> {
    retention: R,
    core: &'c Core,
    begins: bool,
}

impl<R: Retention> Retention for Switches<'_, R> {
    fn decides(&self) -> bool {
        self.retention.decides()
    }

    fn begin(&mut self) {
        self.retention.begin();
    }

    fn begin_leaf(&mut self, leaf: &Leaf, body: &Body, expired_by_ms: u64, guard: &Guard) {
        self.retention.begin_leaf(leaf, body, expired_by_ms, guard);
    }

    fn keeps(&mut self, body: &Body, place: usize) -> bool {
        self.retention.keeps(body, place)
    }

    fn writes(&mut self, record: &Pending<'_>, place: Option<usize>) {
        self.retention.writes(record, place);
    }

    fn commit(&mut self) -> Vec<Mark> {
        self.core.tree.evicts.store(self.begins, Ordering::Release);
        self.retention.commit()
    }
}

#[test]
fn a_pack_that_began_before_eviction_or_ends_after_it_leaves_no_record_without_marks() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let mut from = 0;
    for (begins, is_planned) in [(true, true), (true, false), (false, true), (false, false)] {
        core.reclaimer().set_eviction(!begins).expect("there is no SSD");
        // Two records fill no landing, and the next ones lie between them and behind.
        for n in from..from + 2 {
            core.put(&[n % 2, n], b"value", PutMeta::default()).expect("no limit is set");
        }
        from += 2;
        let guard = core.tree.pin();
        let (leaf, _) = core.tree.locate(b"", &guard);
        let ownership = leaf.try_own().expect("nobody else maintains it");
        leaf.seal(&guard);
        let retention = &mut Switches { retention: core.upkeep().retention(), core: &core, begins };
        core.upkeep().pack(leaf, if is_planned { Goal::Renew } else { Goal::Keep }, retention, &guard);
        let records = leaf.state(&guard).body.len();
        assert_eq!(records, usize::from(from));
        assert!(!begins || leaf.marks.all(&guard).len() >= records);
        drop(ownership);
        drop(guard);
        core.tree.evicts.store(!begins, Ordering::Release);
    }
}

/// The records of all leaves that were coded fast.
fn loose(core: &Core) -> usize {
    let guard = core.tree.pin();
    let first = core.tree.locate(b"", &guard).0;
    let leaves = std::iter::successors(Some(first), |leaf| leaf.state(&guard).right(&guard));
    leaves.map(|leaf| usize::from(leaf.state(&guard).form.loose())).sum()
}

#[test]
fn values_that_settle_in_a_quiet_leaf_are_coded_once() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let words = ["compressed ", "values ", "of a ", "quiet ", "leaf "];
    let mut random = fastrand::Rng::with_seed(3);
    let mut put = |n: u32| {
        let value: String = (0..30).map(|_| words[random.usize(..words.len())]).collect();
        core.put(&n.to_be_bytes(), value.as_bytes(), PutMeta::default()).expect("no limit is set");
    };
    (0..20_000).for_each(&mut put);
    core.settle();
    assert!(core.tree.dictionaries.has_current());
    assert_eq!(loose(&core), 0, "a settled store has dense codes");
    let before = core.tree.stats.recoded.get();
    (0..20_000).step_by(500).for_each(&mut put);
    core.settle();
    assert_eq!(
        (loose(&core), core.tree.stats.recoded.get()),
        (0, before),
        "dense codes need no second parse"
    );

    // A writer's pack codes fast, and one value in a leaf is not worth a second parse of all.
    put(0);
    let guard = core.tree.pin();
    let (leaf, _) = core.tree.locate(&0u32.to_be_bytes(), &guard);
    let ownership = leaf.try_own().expect("nobody else maintains it");
    leaf.seal(&guard);
    core.upkeep().pack(leaf, Goal::Keep, &mut core.upkeep().retention(), &guard);
    drop(ownership);
    drop(guard);
    assert_eq!(loose(&core), 1);
    core.settle();
    assert_eq!((loose(&core), core.tree.stats.recoded.get()), (1, before));
}

/// All leaves of a store that grows come from its first ones.
#[test]
fn leaves_that_are_split_come_to_the_current_dictionary() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let words = ["split ", "leaves ", "are coded ", "once, ", "and not ", "again; "];
    let mut random = fastrand::Rng::with_seed(5);
    let mut value = || -> String { (0..20).map(|_| words[random.usize(..words.len())]).collect() };
    let mut put = |n: u32| core.put(&n.to_be_bytes(), value().as_bytes(), PutMeta::default()).unwrap();
    (0..20_000).step_by(2).for_each(&mut put);
    core.settle();
    // One leaf has a large value, which takes long to code.
    let large = "a long value ".repeat(20_000);
    core.put(&5_001u32.to_be_bytes(), large.as_bytes(), PutMeta::default()).unwrap();
    core.settle();
    let before = core.tree.dictionaries.generation().expect("there is a dictionary");
    let stays = {
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(&5_001u32.to_be_bytes(), &guard);
        leaf.low()..state.high.clone().expect("it is not the last")
    };
    let sample = words.concat().repeat(9);
    let tokens = Dictionary::train(&[sample.as_bytes()], 10, before + 1).expect("the sample is sound");
    core.tree.dictionaries.adopt(Coding::Tokens(Arc::new(tokens)));

    (1..20_000).step_by(2).filter(|n| *n != 5_001).for_each(&mut put);
    let guard = core.tree.pin();
    let first = core.tree.locate(b"", &guard).0;
    let leaves = std::iter::successors(Some(first), |leaf| leaf.state(&guard).right(&guard));
    let (mut all, mut kept) = (0, 0);
    for leaf in leaves {
        let state = leaf.state(&guard);
        all += 1;
        if state.form.generation() == Some(before) {
            kept += usize::from(state.body.larges().next().is_some());
            // The last leaf has room for all that comes.
            assert!(stays.contains(&leaf.low()) || state.high.is_none(), "a leaf kept its dictionary");
        }
    }
    assert!(all > 100 && kept == 1, "{kept} of {all}");
    let mut found = Vec::new();
    for n in 0..20_000u32 {
        found.clear();
        assert!(core.read(&n.to_be_bytes(), &mut found).unwrap().is_some());
        assert!(words.iter().any(|word| found.starts_with(word.as_bytes())) || found == large.as_bytes());
    }
}

#[test]
fn the_sweep_codes_no_value_twice_with_the_same_dictionary() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let words = ["written ", "once, ", "coded ", "once, ", "read ", "often; "];
    let mut random = fastrand::Rng::with_seed(4);
    let mut put = |n: u32| {
        let value: String = (0..20).map(|_| words[random.usize(..words.len())]).collect();
        core.put(&n.to_be_bytes(), value.as_bytes(), PutMeta::default()).expect("no limit is set");
    };
    (0..20_000).for_each(&mut put);
    core.settle();
    (0..20_000).for_each(&mut put);
    let lap = || {
        let mut sweep = Sweep::default();
        while !core.reclaimer().sweep(&mut sweep, 64) {}
    };
    let before = core.tree.stats.recoded.get();
    // All leaves are quiet from the second lap on.
    (0..3).for_each(|_| lap());
    assert_eq!(core.tree.gauges.landing.held(), 0, "the sweep has merged all landings");
    assert!(loose(&core) > 10_000, "{} values were coded fast", loose(&core));
    assert_eq!(core.tree.stats.recoded.get(), before, "a quiet leaf needs no second parse");
    {
        // Another thread gave the leaf the current dictionary a moment ago.
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(b"", &guard);
        let _ownership = leaf.try_own().expect("nobody else maintains it");
        core.upkeep().settle_leaf(leaf, Goal::Renew, &guard);
        assert!(state.form.loose() > 0 && leaf.state(&guard).form.loose() == state.form.loose());
    }

    // A dense parse of all is for those who ask for it.
    core.settle();
    assert_eq!(loose(&core), 0);
    assert!(core.tree.stats.recoded.get() > before);
}

#[test]
fn background_work_takes_no_memory_that_the_limit_does_not_have() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let value = |n: u32| [&n.to_be_bytes()[..], &[7; 96][..n as usize * 7 % 97]].concat();
    let all_there = |count: u32| {
        (0..count).for_each(|n| {
            let mut found = Vec::new();
            core.read(&n.to_be_bytes(), &mut found).expect("it is whole").expect("it is there");
            assert_eq!(found, value(n));
        });
    };
    for n in (0..20_000u32).filter(|n| n % 3 > 0).chain((0..20_000).step_by(3)) {
        core.put(&n.to_be_bytes(), &value(n), PutMeta::default()).expect("no limit is set");
    }
    let pack = |leaf: &Leaf, guard: &Guard| {
        leaf.seal(guard);
        core.upkeep().pack_while(
            leaf,
            Goal::Keep,
            &mut core.upkeep().background_retention(),
            guard,
            &mut || (),
        )
    };
    let (packed, left) = work_at_the_limit(&core, pack);
    assert!(packed > 0 && left > 0, "{packed} packed, {left} left");
    all_there(20_000);
    let join = |leaf: &Leaf, guard: &Guard| {
        core.upkeep()
            .with_packs(&mut core.upkeep().background_retention(), guard, |packs| packs.join_right(leaf))
    };
    assert!(work_at_the_limit(&core, join).0 > 0, "no leaf was joined with another one");
    all_there(20_000);
    // Nothing is in the way of what needs no room.
    for n in 0..20_000u32 {
        core.modify(&n.to_be_bytes(), Wanted::Presence, |_| Update::Delete).expect("no limit is set");
    }
    let (_, left) = work_at_the_limit(&core, pack);
    assert_eq!((left, core.tree.ranges().count_keys()), (0, 0));
}
