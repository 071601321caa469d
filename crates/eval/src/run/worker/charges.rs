//! The waits of operations that a window did not begin, in an open loop.
//!
//! An operation may come before the window's end and not begin, because of a stall or because a call waited for more
//! operations. Each has waited until now at least. Without these charges, a stall at the end of a window would cost a
//! target nothing.

use crate::run::arrivals::Arrivals;
use crate::run::control::Control;
use crate::run::worker::{Worker, Writes};
use crate::workload::mix::{Operation, WHOLE};

impl Worker<'_> {
    /// Records these waits. Of operations that go together, the first waits longest, as in a batch.
    pub(super) fn charge(&mut self, mut arrivals: Arrivals, gathered: &Writes<'_>, control: &Control) {
        let (mut reads, mut writes) = (self.buffers.pending.len(), gathered.indices.len());
        self.charge_gathered(gathered, control);
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

    /// The same of the calls that wait for more operations.
    fn charge_gathered(&mut self, gathered: &Writes<'_>, control: &Control) {
        if control.ended_at().is_none() {
            return;
        }
        let waited_ns = |calls: usize, first: Option<u64>| self.elapsed_ns(first.filter(|_| calls > 0)?);
        let read_ns = waited_ns(self.buffers.pending.len(), self.buffers.batch_arrival);
        let write_ns = waited_ns(gathered.indices.len(), gathered.arrival);
        let tally = &mut self.buffers.tally;
        read_ns.into_iter().for_each(|ns| tally.read_ns.saturating_record(ns));
        write_ns.into_iter().for_each(|ns| tally.write_ns.saturating_record(ns));
    }
}
