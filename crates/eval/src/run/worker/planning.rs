//! The operations of a worker, planned in groups: which operation on which key comes next.
//!
//! Keys are computed, and the oracle's memory of a whole group is asked for before it is read. So the harness's own
//! waits for memory overlap.

use crate::data::oracle::Forecast;
use crate::run::worker::Worker;
use crate::workload::mix::{Operation, WHOLE};

/// Operations planned ahead: enough for the waits for memory to overlap, few enough to stay in the first cache.
pub(super) const PLANNED: usize = 16;

impl Worker<'_> {
    /// Plans operations on keys, and forecasts their answers.
    pub(super) fn plan_group(
        &mut self,
        plan: &mut [(Operation, u64); PLANNED],
        forecasts: &mut [Forecast; PLANNED],
    ) {
        for slot in &mut *plan {
            *slot = self.plan();
        }
        for (forecast, &(operation, index)) in forecasts.iter_mut().zip(&*plan) {
            *forecast =
                self.oracle.forecast(index, matches!(operation, Operation::Write | Operation::Insert));
        }
    }

    /// Plans reads of as many keys.
    pub(super) fn plan_reads(&mut self, plan: &mut [u64], forecasts: &mut [Forecast]) {
        for slot in &mut *plan {
            *slot = self.chooser.read();
            self.oracle.warm(*slot);
        }
        for (forecast, &index) in forecasts.iter_mut().zip(&*plan) {
            *forecast = self.oracle.forecast(index, false);
        }
    }

    #[inline]
    fn plan(&mut self) -> (Operation, u64) {
        let operation = if self.mix.read == WHOLE {
            Operation::Read
        } else {
            let number = self.chooser.below(u64::from(WHOLE));
            self.mix.operation(number)
        };
        let index = match operation {
            Operation::Read | Operation::Scan => self.existing(|worker| worker.chooser.read()),
            Operation::Write | Operation::Delete | Operation::ReadModifyWrite => self.existing(|worker| {
                let index = worker.chooser.write();
                worker.oracle.own(index, worker.thread, worker.threads)
            }),
            Operation::Insert => match self.new_key() {
                Some(index) => index,
                None => return (Operation::Read, 0),
            },
        };
        self.oracle.warm(index);
        (operation, index)
    }

    /// A key of those that `choose` gives: one that was loaded, or that was inserted and exists.
    #[inline]
    fn existing(&mut self, choose: impl Fn(&mut Self) -> u64) -> u64 {
        let index = choose(self);
        if index < self.oracle.loaded() { index } else { self.inserted_or_other(index, choose) }
    }

    #[cold]
    fn inserted_or_other(&mut self, mut index: u64, choose: impl Fn(&mut Self) -> u64) -> u64 {
        while index >= self.oracle.loaded() && !self.oracle.existed(index) {
            index = choose(self);
        }
        index
    }

    /// The next key that this thread inserts, if there is room for its answer.
    fn new_key(&mut self) -> Option<u64> {
        let index = self.inserted(self.buffers.inserts.planned);
        if index >= self.oracle.len() {
            self.buffers.inserts.lack_room = true;
            return None;
        }
        self.buffers.inserts.planned += 1;
        Some(index)
    }

    /// The key that this thread inserts after so many others.
    fn inserted(&self, others: u64) -> u64 {
        let loaded = self.oracle.loaded();
        let first = loaded + (self.threads + self.thread - loaded % self.threads) % self.threads;
        first + others * self.threads
    }

    /// Goes on behind the keys that this thread inserted in windows before.
    pub(super) fn go_on_inserting(&mut self) {
        let done = self.buffers.inserts.done;
        self.buffers.inserts.planned = done;
        if done > 0 {
            self.chooser.inserted(self.inserted(done - 1));
        }
    }

    /// Tells that a planned key was inserted.
    pub(super) fn has_inserted(&mut self, index: u64) {
        self.buffers.inserts.done += 1;
        self.chooser.inserted(index);
    }
}
