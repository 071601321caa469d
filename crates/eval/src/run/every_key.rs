//! What is done with every key of a store: loading it before the measurement, and checking it after that.

use std::thread;

use crate::data::keys::KeyList;
use crate::data::oracle::Oracle;
use crate::run::instance::Instance;
use crate::run::spaces::Spaces;
use crate::run::tally::Mistakes;
use crate::run::worker::wrong_answer;
use crate::target::Target;
use crate::workload::LoadOrder;
use crate::workload::permutation::Permutation;

/// Keys that were never written and must not be found.
const ABSENT_KEYS: u64 = 1_000;

/// The loading of one store.
pub(crate) struct Load<'a> {
    oracle: &'a Oracle,
    order: LoadOrder,
    random: Permutation,
    threads: u64,
}

/// Puts every key once.
pub(crate) fn load(
    target: &Instance,
    oracle: &Oracle,
    threads: u64,
    order: LoadOrder,
    mistakes: &mut Mistakes,
) {
    let random = Permutation::new(oracle.loaded(), 0x10ad);
    let threads = if order == LoadOrder::Sequential { 1 } else { threads };
    let load = &Load { oracle, order, random, threads };
    if threads == 1 {
        return mistakes.merge(target.load(load, 0));
    }
    thread::scope(|scope| {
        let parts: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || target.load(load, thread))).collect();
        for part in parts {
            mistakes.merge(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
}

impl Load<'_> {
    /// Puts the keys of one of the threads.
    pub(crate) fn part<T: Target>(&self, target: &T, thread: u64) -> Mistakes {
        let Load { oracle, order, random, threads } = self;
        let mut part = Mistakes::default();
        let mut positions = (thread..oracle.loaded()).step_by(*threads as usize).peekable();
        let (mut indices, mut keys, mut room) = (Vec::new(), KeyList::default(), oracle.room());
        while positions.peek().is_some() && part.gone.is_none() {
            indices.extend(positions.by_ref().take(T::LOADED_AT_ONCE).map(|position| match order {
                LoadOrder::Random => random.at(position),
                LoadOrder::Sequential => position,
            }));
            let done = match indices.as_slice() {
                &[index] => target.put(oracle.key_in(index, &mut room), oracle.begin_put(index)),
                indices => {
                    keys.clear();
                    indices.iter().for_each(|&index| keys.push(oracle.key_in(index, &mut room)));
                    let values = indices.iter().map(|&index| oracle.begin_put(index));
                    target.multi_put(&keys.iter().zip(values).collect::<Vec<_>>())
                }
            };
            if let Err(error) = done {
                part.fail("put", indices[0], &error);
            }
            indices.drain(..).for_each(|index| oracle.finish(index));
        }
        part
    }
}

/// Reads every key that was ever written and checks it.
pub(crate) fn check_all(target: &Instance, oracle: &Oracle, mistakes: &mut Mistakes) {
    if target.checked_at_once() > 1 {
        return check_all_in_groups(target, oracle, mistakes);
    }
    let (mut value, mut room) = (Vec::new(), oracle.room());
    for index in 0..oracle.used() {
        let before = oracle.observe(index);
        match target.get(oracle.key_in(index, &mut room), &mut value) {
            Ok(found) if oracle.accepts(index, before, found.then_some(value.as_slice())) => {}
            Ok(found) => mistakes.add(|| wrong_answer("get", index, found)),
            Err(error) => mistakes.fail("get", index, &error),
        }
        if mistakes.gone.is_some() {
            return;
        }
    }
}

fn check_all_in_groups(target: &Instance, oracle: &Oracle, mistakes: &mut Mistakes) {
    let (mut keys, mut room) = (KeyList::default(), oracle.room());
    let end = oracle.used();
    for first in (0..end).step_by(target.checked_at_once()) {
        let group = first..(first + target.checked_at_once() as u64).min(end);
        let before: Vec<_> = group.clone().map(|index| oracle.observe(index)).collect();
        keys.clear();
        group.for_each(|index| keys.push(oracle.key_in(index, &mut room)));
        let done = target.multi_get(&keys.iter().collect::<Vec<_>>(), &mut |position, answer| {
            let index = first + position as u64;
            if !oracle.accepts(index, before[position], answer) {
                mistakes.add(|| wrong_answer("multi_get", index, answer.is_some()));
            }
        });
        if let Err(error) = done {
            mistakes.fail("multi_get", first, &error);
        }
        if mistakes.gone.is_some() {
            return;
        }
    }
}

/// Reads keys that were never written: none may be found.
pub(crate) fn check_absent(target: &Instance, spaces: &Spaces, mistakes: &mut Mistakes) {
    let mut value = Vec::new();
    let end = spaces.measured.len();
    for index in end..end + ABSENT_KEYS {
        if mistakes.gone.is_some() {
            return;
        }
        match target.get(&spaces.measured.key(index), &mut value) {
            Ok(false) => {}
            Ok(true) => mistakes
                .add(|| format!("get of key number {index}, which was never written, found something")),
            Err(error) => mistakes.fail("get", index, &error),
        }
    }
}
