//! The memory that a leaf's state holds, as the gauges count it.

use super::{LeafState, Memo, STATE_BYTES};
use crate::body::Body;
use crate::landing::Landing;
use crate::memory::{Gauges, allocated_bytes};

/// Adds (or takes) what a state holds to (or from) the gauges.
pub(super) fn hold(gauges: &Gauges, state: &LeafState, add: bool) {
    for landing in state.landings() {
        landing.count(gauges, add);
    }
    let shadowing = i64::from(is_shadowing(state));
    gauges.shadowing.change(if add { shadowing } else { -shadowing });
    hold_body(gauges, &state.body, add);
    if let Some(stored) = &state.stored {
        let bytes = stored_bytes(stored);
        if add { gauges.index.add(bytes) } else { gauges.index.take(bytes) }
    }
}

/// Accounts for `new` in the place of `old`: only for what differs.
pub(super) fn hold_changed(gauges: &Gauges, old: &LeafState, new: &LeafState) {
    if !old.body.is_same(&new.body) {
        hold_body(gauges, &new.body, true);
        hold_body(gauges, &old.body, false);
    }
    if is_shadowing(new) != is_shadowing(old) {
        gauges.shadowing.change(i64::from(is_shadowing(new)) - i64::from(is_shadowing(old)));
    }
    if !old.has_stored_of(new) {
        new.stored.iter().for_each(|stored| gauges.index.add(stored_bytes(stored)));
        old.stored.iter().for_each(|stored| gauges.index.take(stored_bytes(stored)));
    }
    landings_only_in(new, old).for_each(|landing| landing.count(gauges, true));
    landings_only_in(old, new).for_each(|landing| landing.count(gauges, false));
}

/// Bytes that are asked of the allocator for what a checkpoint remembers.
fn stored_bytes(stored: &Memo) -> usize {
    size_of_val(&**stored) + 2 * size_of::<usize>()
}

fn is_shadowing(state: &LeafState) -> bool {
    state.below.is_some() && !state.body.is_empty()
}

fn hold_body(gauges: &Gauges, body: &Body, add: bool) {
    let gauge = match () {
        () if body.is_far() => &gauges.index,
        () if body.is_packed() => &gauges.packed_body,
        () if body.is_coded() => &gauges.coded_body,
        () => &gauges.raw_body,
    };
    if add {
        gauge.add(body.dram_bytes())
    } else {
        gauge.take(body.dram_bytes())
    }
    if body.is_far() {
        let far = &gauges.far_body;
        if add { far.add_held(body.far_bytes()) } else { far.take_held(body.far_bytes()) }
    }
}

fn landings_only_in<'a>(state: &'a LeafState, other: &'a LeafState) -> impl Iterator<Item = &'a Landing> {
    state.landings().filter(|landing| !other.landings().any(|kept| std::ptr::eq(*landing, kept)))
}

/// Bytes that only the replaced state still holds.
#[derive(Clone, Copy, Default)]
pub(super) struct Dead {
    pub(super) asked: usize,
    pub(super) held: usize,
    pub(super) far: usize,
}

impl Dead {
    /// Bytes that a state holds, without the state itself.
    pub(super) fn of(state: &LeafState) -> Self {
        let mut dead = Self::default();
        let asked = state.body.dram_bytes();
        dead.add(asked, allocated_bytes(asked));
        dead.far = state.body.far_bytes();
        if let Some(stored) = &state.stored {
            dead.add(stored_bytes(stored), allocated_bytes(stored_bytes(stored)));
        }
        for landing in state.landings() {
            dead.add(landing.capacity() + size_of::<Landing>() + 16, landing.held_bytes());
        }
        dead
    }

    pub(super) fn count(&mut self, old: &LeafState, new: &LeafState) {
        self.add(STATE_BYTES, allocated_bytes(STATE_BYTES));
        if !old.body.is_same(&new.body) {
            let asked = old.body.dram_bytes();
            self.add(asked, allocated_bytes(asked));
            self.far += old.body.far_bytes();
        }
        if let Some(stored) = old.stored.as_ref().filter(|_| !old.has_stored_of(new)) {
            self.add(stored_bytes(stored), allocated_bytes(stored_bytes(stored)));
        }
        for landing in landings_only_in(old, new) {
            self.add(landing.capacity() + size_of::<Landing>() + 16, landing.held_bytes());
        }
    }

    fn add(&mut self, asked: usize, held: usize) {
        self.asked += asked;
        self.held += held;
    }
}
