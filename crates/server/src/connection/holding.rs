//! A connection's share of the budget of all clients.

use std::sync::atomic::Ordering::Relaxed;

use super::{Connection, FREE_BYTES};
use crate::shared::Shared;

impl Connection {
    /// Takes the bytes that the connection holds from the budget. If the budget has too little, drops the arriving
    /// request, and then has clients disconnected. `false` if this connection is to be closed.
    pub(super) fn keeps_within(&mut self, shared: &Shared) -> bool {
        let held = self.holds();
        if held <= FREE_BYTES {
            self.free(held, shared);
            return true;
        }
        if self.takes_for(held, shared) {
            self.free(held, shared);
            return true;
        }
        if self.give_up() {
            shared.note_refusal(held);
            return self.keeps_within(shared);
        }
        shared.evict_clients();
        let is_taken = shared.budget.take_beyond(held - self.held_bytes);
        if is_taken {
            self.note_held(held);
        } else if !self.client.info.killed.swap(true, Relaxed) {
            shared.budget.evicted.fetch_add(1, Relaxed);
        }
        is_taken
    }

    /// Bytes of memory that the connection holds.
    fn holds(&self) -> usize {
        let parser = self.parser.as_ref().map_or(0, |parser| parser.held_bytes());
        let reply = self.client.streaming.as_ref().map_or(0, |streaming| streaming.held_bytes());
        let buffers = self.input.capacity() + self.output.held_bytes() + self.socket.held_bytes();
        buffers + parser + reply + self.job_bytes.unwrap_or(0) + self.client.info.names_bytes()
    }

    /// Raises the connection's share of the budget to `bytes`, if there is room.
    pub(super) fn takes_for(&mut self, bytes: usize, shared: &Shared) -> bool {
        let more = bytes.saturating_sub(self.held_bytes);
        let is_taken = more == 0 || shared.budget.take(more);
        if is_taken && more > 0 {
            self.note_held(bytes);
        }
        is_taken
    }

    /// Gives back the share beyond `bytes`. If the connection had a few bytes outside the budget, it takes them now.
    pub(super) fn free(&mut self, bytes: usize, shared: &Shared) {
        match self.held_bytes.checked_sub(bytes) {
            Some(0) => return,
            Some(less) => shared.budget.give(less),
            None => shared.budget.take_always(bytes - self.held_bytes),
        }
        self.note_held(bytes);
    }

    fn note_held(&mut self, bytes: usize) {
        self.held_bytes = bytes;
        self.client.info.held_bytes.store(bytes, Relaxed);
        self.client.info.job_bytes.store(self.job_bytes.unwrap_or(0), Relaxed);
    }
}
