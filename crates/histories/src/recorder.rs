//! Runs clients beside each other, and keeps what they asked and what was answered.

use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History as Actions};

use crate::KEYS;
use crate::model::{Answer, Call, Evicting, Keeping, Loss, Step};

/// One of several that work on the same keys.
pub trait Client: Send {
    /// Makes the call and returns its answer.
    fn call(&mut self, call: &Call) -> Answer;
}

/// A call between two tickets.
struct Entry {
    client: usize,
    called: u64,
    answered: u64,
    call: Call,
    answer: Answer,
}

/// All calls of all clients.
pub struct History {
    seed: u64,
    entries: Vec<Entry>,
}

/// Has each client make `calls` calls beside the others, then the first one read all keys.
/// The same seed gives the same calls; the answers depend on who comes first.
pub fn record<C: Client>(seed: u64, clients: &mut [C], calls: usize) -> History {
    let tickets = AtomicU64::new(0);
    let start = Barrier::new(clients.len());
    let mut entries: Vec<Entry> = std::thread::scope(|scope| {
        let threads: Vec<_> = (clients.iter_mut().enumerate())
            .map(|(number, client)| {
                let (tickets, start) = (&tickets, &start);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed ^ (number as u64 + 1) << 48);
                    let mut next = (number as u64 + 1) * 1_000_000_000;
                    start.wait();
                    let mut one = |_| {
                        if random.u8(..4) == 0 {
                            std::thread::yield_now();
                        }
                        next += 1000;
                        entry(number, client, any_call(&mut random, next), tickets)
                    };
                    (0..calls).map(&mut one).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    entries.extend((0..KEYS).map(|key| entry(0, &mut clients[0], Call::Get(key), &tickets)));
    History { seed, entries }
}

fn entry<C: Client>(number: usize, client: &mut C, call: Call, tickets: &AtomicU64) -> Entry {
    let called = tickets.fetch_add(1, Ordering::SeqCst);
    let answer = client.call(&call);
    let answered = tickets.fetch_add(1, Ordering::SeqCst);
    Entry { client: number, called, answered, call, answer }
}

/// A call on few keys, the first of them more often, so that updates meet batches.
fn any_call(random: &mut fastrand::Rng, value: u64) -> Call {
    let key = random.usize(..KEYS).min(random.usize(..KEYS));
    let other = (key + random.usize(1..KEYS)) % KEYS;
    let replace = random.bool();
    let puts = |random: &mut fastrand::Rng| {
        let mut keys: Vec<usize> = (0..KEYS).collect();
        random.shuffle(&mut keys);
        keys.truncate(random.usize(2..=5));
        keys.into_iter().map(|key| (key, value + key as u64 * 100)).collect()
    };
    match random.u8(..32) {
        0..=4 => Call::Get(key),
        5 => Call::HasExpiry(key),
        6 | 7 => Call::Put(key, value),
        8 | 9 => Call::PutNew(key, value),
        10 | 11 => Call::Swap(key, value),
        12 => Call::Take(key),
        13..=17 => Call::Add(key, 1),
        18 => Call::Delete(key),
        19 => Call::Expire(key),
        20 => Call::Persist(key),
        21 => Call::ExpireNow(key),
        22..=25 => Call::PutAll(puts(random)),
        26 => Call::PutAllNew(puts(random)),
        27..=29 => Call::Rename { source: key, target: other, replace },
        _ => Call::Copy { source: key, target: other, replace },
    }
}

impl History {
    /// Finds an order of all calls that agrees with real time and explains every answer.
    ///
    /// # Errors
    /// The whole history, if there is no such order, and the call near which to look.
    pub fn check(&self, loss: Loss) -> Result<(), String> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.called);
        if is_linearizable(&entries, loss) {
            return Ok(());
        }
        let explained =
            (1..entries.len()).rev().find(|&calls| is_linearizable(&entries[..calls], loss)).unwrap_or(0);
        let Entry { client, called, call, answer, .. } = entries[explained];
        Err(format!(
            "no order of these calls explains the answers; without what was called from {called} on \
             (client {client}, {call:?} -> {answer:?}) there is one:\n{self}"
        ))
    }

    /// Calls of all clients.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody called.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Calls that began while another one was under way.
    pub fn overlapping(&self) -> usize {
        let mut entries: Vec<(u64, u64)> =
            self.entries.iter().map(|entry| (entry.called, entry.answered)).collect();
        entries.sort_unstable();
        let mut latest = 0;
        let mut overlapping = 0;
        for (at, (called, answered)) in entries.into_iter().enumerate() {
            overlapping += usize::from(at > 0 && called < latest);
            latest = latest.max(answered);
        }
        overlapping
    }
}

fn is_linearizable(entries: &[&Entry], loss: Loss) -> bool {
    let mut events: Vec<(u64, usize, Action<Step>)> = Vec::with_capacity(2 * entries.len());
    for entry in entries {
        events.push((entry.called, entry.client, Action::Call((entry.call.clone(), None))));
        let answered = (entry.call.clone(), Some(entry.answer.clone()));
        events.push((entry.answered, entry.client, Action::Response(answered)));
    }
    events.sort_by_key(|event| event.0);
    let actions =
        Actions::from_actions(events.into_iter().map(|(_, client, action)| (client, action)).collect());
    match loss {
        Loss::Never => WGLChecker::<Keeping>::is_linearizable(actions),
        Loss::Evicted => WGLChecker::<Evicting>::is_linearizable(actions),
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: called..answered, client, call, answer", self.seed)?;
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| entry.called);
        for Entry { client, called, answered, call, answer } in entries {
            writeln!(f, "{called:>5}..{answered:<5} {client} {call:?} -> {answer:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn history(calls: &[(usize, u64, u64, Call, Answer)]) -> History {
        let entry = |(client, called, answered, call, answer): &(usize, u64, u64, Call, Answer)| Entry {
            client: *client,
            called: *called,
            answered: *answered,
            call: call.clone(),
            answer: answer.clone(),
        };
        History { seed: 0, entries: calls.iter().map(entry).collect() }
    }

    #[test]
    fn an_update_that_undoes_a_batch_is_caught() {
        let undone = [
            (0, 0, 1, Call::Put(0, 10), Answer::Done(true)),
            (0, 2, 5, Call::PutAll(vec![(0, 500), (1, 500)]), Answer::Done(true)),
            (1, 3, 6, Call::Add(0, 1), Answer::Value(Some(11))),
        ];
        let read = |value| (0, 7, 8, Call::Get(0), Answer::Value(Some(value)));
        let with = |value| [undone.to_vec(), vec![read(value)]].concat();
        for loss in [Loss::Never, Loss::Evicted] {
            history(&with(500)).check(loss).expect("the sum came first");
            history(&with(11)).check(loss).expect_err("the batch was undone");
        }
    }

    #[test]
    fn a_cache_may_lose_a_key_and_never_an_update() {
        let lost =
            [(0, 0, 1, Call::Put(0, 10), Answer::Done(true)), (0, 2, 3, Call::Get(0), Answer::Value(None))];
        history(&lost).check(Loss::Never).expect_err("a key vanished");
        history(&lost).check(Loss::Evicted).expect("a cache may lose it");
        let back = (0, 4, 5, Call::Get(0), Answer::Value(Some(10)));
        history(&[lost.to_vec(), vec![back]].concat()).check(Loss::Evicted).expect_err("it came back");
    }

    /// A map behind a lock, whose `Add` lets go of the lock between reading and writing if it is broken.
    struct Locked<'a> {
        map: &'a Mutex<[Option<u64>; KEYS]>,
        is_broken: bool,
    }

    impl Client for Locked<'_> {
        fn call(&mut self, call: &Call) -> Answer {
            let lock = || self.map.lock().expect("nobody panics");
            match call {
                Call::Get(key) => Answer::Value(lock()[*key]),
                Call::Swap(key, value) => Answer::Value(lock()[*key].replace(*value)),
                Call::Take(key) => Answer::Value(lock()[*key].take()),
                Call::Add(key, added) => {
                    let mut map = lock();
                    let sum = map[*key].unwrap_or(0) + added;
                    if self.is_broken {
                        drop(map);
                        std::thread::yield_now();
                        map = lock();
                    }
                    map[*key] = Some(sum);
                    Answer::Value(Some(sum))
                }
                _ => Answer::Refused,
            }
        }
    }

    #[test]
    fn a_map_behind_a_lock_passes_and_a_broken_one_is_caught() {
        let check = |is_broken, seed| {
            let map = Mutex::default();
            let mut clients: Vec<Locked> = (0..4).map(|_| Locked { map: &map, is_broken }).collect();
            record(seed, &mut clients, 48).check(Loss::Never)
        };
        for seed in 0..20 {
            check(false, seed).expect("a lock is linearizable");
        }
        assert!((0..10_000).any(|seed| check(true, seed).is_err()), "lost updates were never noticed");
    }
}
