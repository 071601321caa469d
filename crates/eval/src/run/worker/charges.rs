//! The waits of operations that a window did not begin, in an open loop.
//!
//! An operation may come before the window's end and not begin, because of a stall or because a call waited for more
//! operations. Each has waited until now at least. Without these charges, a stall at the end of a window would cost a
//! target nothing.

use crate::run::arrivals::Arrivals;
use crate::run::control::Control;
use crate::run::worker::{Buffers, Worker, Writes};
use crate::workload::mix::{Operation, WHOLE};

/// Operations that wait for more of their kind to go with when a window ends, and when the first of them came.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) operations: usize,
    pub(super) arrival: Option<u64>,
}

impl Worker<'_> {
    /// Records these waits. Of operations that go together, the first waits longest, as in a batch.
    pub(super) fn charge(
        &mut self,
        mut arrivals: Arrivals,
        [waiting_reads, waiting_writes]: [Waiting; 2],
        control: &Control,
    ) {
        let (mut reads, mut writes) = (waiting_reads.operations, waiting_writes.operations);
        self.charge_gathered([waiting_reads, waiting_writes], control);
        while let Some(waited_ns) = arrivals.missed_ns(&mut self.chooser, control) {
            let operation = self.mix.operation(self.chooser.below(u64::from(WHOLE)));
            let (latencies, arrived, together) = match operation {
                Operation::Read => (&mut self.buffers.tally.read_ns, &mut reads, self.multi_get),
                Operation::Scan => (&mut self.buffers.tally.read_ns, &mut 0, 1),
                Operation::Write | Operation::Insert => {
                    (&mut self.buffers.tally.write_ns, &mut writes, self.multi_put)
                }
                _ => (&mut self.buffers.tally.write_ns, &mut 0, 1),
            };
            if *arrived % together == 0 {
                latencies.saturating_record(waited_ns);
            }
            *arrived += 1;
        }
    }

    /// The reads and the writes that wait for more of them.
    pub(super) fn waiting(&self, gathered: &Writes<'_>) -> [Waiting; 2] {
        let Buffers { pending, batch_arrival, .. } = &self.buffers;
        [(pending.len(), *batch_arrival), (gathered.indices.len(), gathered.arrival)]
            .map(|(operations, arrival)| Waiting { operations, arrival })
    }

    /// The same of the calls that wait for more operations.
    fn charge_gathered(&mut self, waiting: [Waiting; 2], control: &Control) {
        if control.ended_at().is_none() {
            return;
        }
        let waited_ns = |one: Waiting| self.elapsed_ns(one.arrival.filter(|_| one.operations > 0)?);
        let [read_ns, write_ns] = waiting.map(waited_ns);
        let tally = &mut self.buffers.tally;
        read_ns.into_iter().for_each(|ns| tally.read_ns.saturating_record(ns));
        write_ns.into_iter().for_each(|ns| tally.write_ns.saturating_record(ns));
    }
}
