//! The sequential map that explains a history: each call with its answer, and how both change eight keys.

use todc_utils::specifications::Specification;

use crate::KEYS;

/// One request on keys `0..KEYS`. Values are integers, so that [`Call::Add`] can count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// The value of a key: [`Answer::Value`].
    Get(usize),
    /// Whether a key has an expiry: [`Answer::Value`] with 1 or 0, or none for no key.
    HasExpiry(usize),
    /// Puts a value without an expiry: [`Answer::Done`] with `true`.
    Put(usize, u64),
    /// Puts a value if the key is absent: [`Answer::Done`].
    PutNew(usize, u64),
    /// Puts a value and gives the former one: [`Answer::Value`].
    Swap(usize, u64),
    /// Deletes a key and gives its value: [`Answer::Value`].
    Take(usize),
    /// Adds to a value, an absent one being 0, and keeps the expiry: [`Answer::Value`] with the sum.
    Add(usize, u64),
    /// Deletes a key: [`Answer::Done`] with whether there was one.
    Delete(usize),
    /// Gives a key an expiry that no test lives to see: [`Answer::Done`] with whether there was one.
    Expire(usize),
    /// Takes the expiry away: [`Answer::Done`] with whether there was one to take.
    Persist(usize),
    /// Gives a key an expiry that has passed, which deletes it: [`Answer::Done`] with whether there was one.
    ExpireNow(usize),
    /// Puts all in one step: [`Answer::Done`] with `true`.
    PutAll(Vec<(usize, u64)>),
    /// Puts all in one step if all keys are absent: [`Answer::Done`].
    PutAllNew(Vec<(usize, u64)>),
    /// Moves value and expiry to another key: [`Answer::Done`], `false` without a source, or with a target that may not
    /// be replaced.
    Rename {
        /// The key that goes.
        source: usize,
        /// The key that has the value afterwards.
        target: usize,
        /// Whether a target that exists is replaced.
        replace: bool,
    },
    /// As [`Call::Rename`], but the source stays.
    Copy {
        /// The key that is read.
        source: usize,
        /// The key that has the same value afterwards.
        target: usize,
        /// Whether a target that exists is replaced.
        replace: bool,
    },
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A value, or that there is none.
    Value(Option<u64>),
    /// Whether it was done.
    Done(bool),
    /// Refused for want of memory: nothing was changed.
    Refused,
}

/// Whether keys may vanish by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A key is there until somebody deletes it.
    Never,
    /// A cache may evict any key at any time, but no key goes back to an older value.
    Evicted,
}

/// A call with its answer; a call that is under way has none.
pub(crate) type Step = (Call, Option<Answer>);

/// A value, and whether it has an expiry.
type Held = Option<(u64, bool)>;
type Map = [Held; KEYS];

/// The map that keeps all keys.
pub(crate) struct Keeping;
/// The map that may evict.
pub(crate) struct Evicting;

impl Specification for Keeping {
    type State = Map;
    type Operation = Step;

    fn init() -> Map {
        Map::default()
    }

    fn apply(step: &Step, map: &Map) -> (bool, Map) {
        explained(step, map)
    }
}

impl Specification for Evicting {
    type State = Map;
    type Operation = Step;

    fn init() -> Map {
        Map::default()
    }

    fn apply(step: &Step, map: &Map) -> (bool, Map) {
        explained(step, &without_evicted(step, map))
    }
}

/// The map less the keys that must have been evicted before, as the answer says that they are absent.
fn without_evicted((call, answer): &Step, map: &Map) -> Map {
    let mut map = *map;
    let Some(answer) = answer else { return map };
    let absent = *answer == Answer::Value(None);
    let not_done = *answer == Answer::Done(false);
    let done = *answer == Answer::Done(true);
    match call {
        Call::Get(key) | Call::HasExpiry(key) | Call::Swap(key, _) | Call::Take(key) if absent => {
            map[*key] = None
        }
        Call::Delete(key) | Call::Expire(key) | Call::ExpireNow(key) if not_done => map[*key] = None,
        // A key without an expiry gives the same answer.
        Call::Persist(key) if not_done && map[*key].is_some_and(|(_, expires)| expires) => map[*key] = None,
        Call::PutNew(key, _) if done => map[*key] = None,
        // The sum is only what was added.
        Call::Add(key, added) if *answer == Answer::Value(Some(*added)) => map[*key] = None,
        Call::PutAllNew(puts) if done => puts.iter().for_each(|(key, _)| map[*key] = None),
        Call::Rename { source, target, replace } | Call::Copy { source, target, replace } => {
            if not_done && (*replace || map[*target].is_none()) {
                map[*source] = None;
            } else if done && !replace {
                map[*target] = None;
            }
        }
        _ => {}
    }
    map
}

/// Whether the map gives this answer, and the map afterwards.
fn explained((call, answer): &Step, map: &Map) -> (bool, Map) {
    let mut after = *map;
    let expected = match call {
        _ if *answer == Some(Answer::Refused) => Answer::Refused,
        Call::Get(key) => Answer::Value(map[*key].map(|(value, _)| value)),
        Call::HasExpiry(key) => Answer::Value(map[*key].map(|(_, expires)| u64::from(expires))),
        Call::Put(key, value) => put(&mut after, &[(*key, *value)]),
        Call::PutNew(key, value) => put_new(&mut after, &[(*key, *value)]),
        Call::PutAll(puts) => put(&mut after, puts),
        Call::PutAllNew(puts) => put_new(&mut after, puts),
        Call::Swap(key, value) => {
            after[*key] = Some((*value, false));
            Answer::Value(map[*key].map(|(value, _)| value))
        }
        Call::Take(key) => Answer::Value(after[*key].take().map(|(value, _)| value)),
        Call::Add(key, added) => {
            let (value, expires) = map[*key].unwrap_or_default();
            after[*key] = Some((value + added, expires));
            Answer::Value(Some(value + added))
        }
        Call::Delete(key) | Call::ExpireNow(key) => Answer::Done(after[*key].take().is_some()),
        Call::Expire(key) => {
            after[*key] = map[*key].map(|(value, _)| (value, true));
            Answer::Done(map[*key].is_some())
        }
        Call::Persist(key) => {
            after[*key] = map[*key].map(|(value, _)| (value, false));
            Answer::Done(map[*key].is_some_and(|(_, expires)| expires))
        }
        Call::Rename { source, target, replace } | Call::Copy { source, target, replace } => {
            let done = map[*source].is_some() && (*replace || map[*target].is_none());
            if done {
                after[*target] = map[*source];
                if matches!(call, Call::Rename { .. }) {
                    after[*source] = None;
                }
            }
            Answer::Done(done)
        }
    };
    (*answer == Some(expected), after)
}

fn put(map: &mut Map, puts: &[(usize, u64)]) -> Answer {
    puts.iter().for_each(|(key, value)| map[*key] = Some((*value, false)));
    Answer::Done(true)
}

fn put_new(map: &mut Map, puts: &[(usize, u64)]) -> Answer {
    if puts.iter().any(|(key, _)| map[*key].is_some()) {
        return Answer::Done(false);
    }
    put(map, puts)
}
