//! Decides when the server has to disconnect a client.

use std::sync::atomic::Ordering::Relaxed;

use super::Connection;
use crate::shared::{Counters, Shared};

/// Bytes of an unfinished request that make a client active. One that sends fewer is as idle as a silent one.
const ACTIVE_BYTES: usize = 4 << 10;

/// The counts before a turn.
pub(super) struct Before {
    active_s: u64,
    commands: u64,
    bytes_out: u64,
}

impl Connection {
    /// Takes the client for active, since a turn of it begins.
    pub(super) fn note_turn(&self, shared: &Shared, counters: &Counters) -> Before {
        Before {
            active_s: self.client.info.active_s.swap(shared.seconds(), Relaxed),
            commands: counters.commands.get(),
            bytes_out: counters.bytes_out.get(),
        }
    }

    /// Takes that back if the turn ran and sent nothing, and brought few bytes.
    pub(super) fn note_silence(&mut self, before: &Before, counters: &Counters) {
        let has_run = counters.commands.get() != before.commands || self.job_bytes.is_some();
        self.trickled_bytes += self.turn_bytes;
        let is_active =
            has_run || counters.bytes_out.get() != before.bytes_out || self.trickled_bytes >= ACTIVE_BYTES;
        if is_active {
            self.trickled_bytes = 0;
        } else {
            self.client.info.active_s.store(before.active_s, Relaxed);
        }
    }

    /// Whether the client was killed, was idle for too long at `now_s`, or takes its replies too slowly. It must also
    /// go if it holds replaced or deleted values for which there is no room. A client that waits for the disk, for a
    /// turn, or for a running request, is not idle. One whose request trickles in is.
    pub(crate) fn has_to_go(&mut self, shared: &Shared, now_s: u64) -> bool {
        let (info, timeout_s) = (&self.client.info, shared.settings.timeout_s.load(Relaxed));
        let idle_s = now_s.saturating_sub(info.active_s.load(Relaxed));
        let waits = self.held || self.queued || self.job_bytes.is_some();
        info.killed.load(Relaxed)
            || (timeout_s > 0 && idle_s > timeout_s && !waits)
            || self.is_too_slow(shared)
            || (self.client.streaming.is_some() && !self.keeps_within(shared))
    }

    /// Whether the client has more unsent replies than `client-output-buffer-limit` allows, or has had for too long.
    pub(super) fn is_too_slow(&mut self, shared: &Shared) -> bool {
        let Some(limit) = shared.settings.normal_output_limit() else {
            self.slow_since_s = None;
            return false;
        };
        let to_come = self.client.streaming.as_ref().map_or(0, |streaming| streaming.owned_bytes());
        let unsent = (self.output.unsent().len() + to_come) as u64;
        if limit.soft_bytes == 0 || unsent <= limit.soft_bytes {
            self.slow_since_s = None;
        }
        let is_soft = limit.soft_bytes > 0 && unsent > limit.soft_bytes && {
            let now_s = shared.seconds();
            now_s.saturating_sub(*self.slow_since_s.get_or_insert(now_s)) > limit.soft_s
        };
        is_soft || (limit.hard_bytes > 0 && unsent > limit.hard_bytes)
    }
}
