//! An open target without its type.
//!
//! A program has a dozen types of targets, and each test of the harness adds one. A run asks all of them through
//! [`AnyTarget`], and so is compiled once. Only the loops that load, operate and replay are compiled for each type: a
//! call through a table would be a part of what they measure.

use std::sync::Arc;

use crate::run::control::Control;
use crate::run::every_key::Load;
use crate::run::replay::feed::Inbox;
use crate::run::replay::owner::{Owner, Replayer};
use crate::run::tally::Mistakes;
use crate::run::worker::{Operator, Worker, multiplex};
use crate::target::{Batch, Config, Counters, Records, Target, TargetError, Work};
use crate::workload::mix::Operation;

/// One of the targets of a run.
pub(crate) type Instance = Arc<dyn AnyTarget>;

/// Opens an instance.
pub(crate) type Open = fn(&Config) -> Result<Instance, TargetError>;

/// The [`Open`] of a type.
pub(crate) fn open<T: Target + 'static>(config: &Config) -> Result<Instance, TargetError> {
    Ok(Arc::new(T::open(config)?))
}

/// The loops on a target, and the calls outside of them. The calls are those of [`Target`].
pub(crate) trait AnyTarget: Send + Sync {
    /// Loads a thread's part of the keys.
    fn load(&self, load: &Load<'_>, thread: u64) -> Mistakes;

    /// Makes the operations of a worker until told to stop, or until its quota is done.
    fn operate(&self, worker: &mut Worker<'_>, control: &Control);

    /// Reads so many keys, one by one.
    fn read_many(&self, worker: &mut Worker<'_>, reads: u64);

    /// Makes the requests of a trace until its end, or until told to stop.
    fn replay(&self, owner: &mut Owner<'_>, inbox: &Inbox, control: &Control);

    /// The number of keys that a check looks up at once.
    fn checked_at_once(&self) -> usize;

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError>;

    /// Looks up several keys at once, and gives each answer with the position of its key.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        answer: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TargetError>;

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError>;

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError>;

    fn refuses(&self, operation: Operation) -> Option<String>;

    fn may_forget(&self) -> bool;

    fn loaded(&self) -> Result<(), TargetError>;

    fn held_bytes(&self) -> Option<u64>;

    fn work(&self) -> Work;

    fn processors(&self) -> Option<Vec<usize>>;

    fn rest(&self) -> Result<(), TargetError>;

    fn settle(&self) -> Result<(), TargetError>;

    fn describe(&self) -> String;

    fn counters(&self) -> Counters;
}

impl<T: Target> AnyTarget for T {
    fn load(&self, load: &Load<'_>, thread: u64) -> Mistakes {
        load.part(self, thread)
    }

    fn operate(&self, worker: &mut Worker<'_>, control: &Control) {
        if worker.has_connections() {
            return multiplex(self, worker, control);
        }
        Operator::new(self, worker).run(control);
    }

    fn read_many(&self, worker: &mut Worker<'_>, reads: u64) {
        Operator::new(self, worker).read_many(reads);
    }

    fn replay(&self, owner: &mut Owner<'_>, inbox: &Inbox, control: &Control) {
        Replayer::new(self, owner).run(inbox, control);
    }

    fn checked_at_once(&self) -> usize {
        T::CHECKED_AT_ONCE
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        Target::get(self, key, value)
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        answer: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TargetError> {
        let mut batch = T::Batch::default();
        Target::multi_get(self, keys, &mut batch)?;
        (0..keys.len()).for_each(|position| answer(position, batch.answer(position)));
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Target::delete(self, key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        Target::scan(self, from, limit, records)
    }

    fn refuses(&self, operation: Operation) -> Option<String> {
        Target::refuses(self, operation)
    }

    fn may_forget(&self) -> bool {
        Target::may_forget(self)
    }

    fn loaded(&self) -> Result<(), TargetError> {
        Target::loaded(self)
    }

    fn held_bytes(&self) -> Option<u64> {
        Target::held_bytes(self)
    }

    fn work(&self) -> Work {
        Target::work(self)
    }

    fn processors(&self) -> Option<Vec<usize>> {
        Target::processors(self)
    }

    fn rest(&self) -> Result<(), TargetError> {
        Target::rest(self)
    }

    fn settle(&self) -> Result<(), TargetError> {
        Target::settle(self)
    }

    fn describe(&self) -> String {
        Target::describe(self)
    }

    fn counters(&self) -> Counters {
        Target::counters(self)
    }
}
