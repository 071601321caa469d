//! Beginning and ending eviction while the store runs.
//!
//! 1. A pack that began before eviction did gives its records no marks, and `remember` takes the leaf up. So every leaf
//!    that is published from then on has marks.
//! 2. The thread that begins eviction comes to every leaf, waits for its owner, and takes up what lies there.
//! 3. The thread that ends eviction does the same and drops the marks. A pack that began before may still evict, but it
//!    owns its leaf: nothing is evicted once the last leaf was visited.
//!
//! A store that has evicted goes on to log deletes of keys that are not there: they may lie in its folder.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crossbeam_epoch::Guard;
use ziptier_tree::leaf::{Leaf, NOWHERE};

use super::Reclaimer;
use super::evict::Visits;
use crate::Error;

impl Reclaimer<'_> {
    /// Whether the store may evict.
    ///
    /// # Errors
    /// It has an SSD.
    pub(crate) fn may_evict(&self) -> Result<(), Error> {
        match self.moves.cold {
            None => Ok(()),
            Some(_) => Err(Error::Ssd { reason: "a store that evicts keeps nothing on SSD".to_owned() }),
        }
    }

    /// Begins eviction, or ends it: after that no record is evicted. The caller holds no guard and no lock.
    ///
    /// # Errors
    /// As [`Reclaimer::may_evict`].
    pub(crate) fn set_eviction(&self, evicts: bool) -> Result<(), Error> {
        let _alone = self.pressure.switching.lock();
        if evicts == self.tree.evicts() {
            return Ok(());
        }
        self.may_evict()?;
        if let Some(far) = &self.tree.far {
            far.set_takes_any(!evicts);
        }
        if evicts {
            self.eviction.begin();
            self.tree.evicts.store(true, Release);
            self.visits().visit_all(|leaf, guard| {
                leaf.waits.iter().for_each(|waits| waits.store(NOWHERE, Relaxed));
                self.eviction.take_up(self.tree, leaf, guard);
            });
        } else {
            self.tree.evicts.store(false, Release);
            self.visits().visit_all(|leaf, guard| leaf.marks.forget(&self.tree.gauges, guard));
            self.eviction.end(&self.tree.gauges);
        }
        Ok(())
    }
}

impl Visits<'_> {
    /// Does `work` on every leaf, owned, in key order. A part that is cut off a leaf while the visit waits is visited
    /// after it.
    fn visit_all(&self, work: impl Fn(&Leaf, &Guard)) {
        let mut cursor = Some(Vec::new());
        while let Some(low) = cursor {
            cursor = self.tree.with_leaf_of(&low, |leaf, guard| {
                work(leaf, guard);
                guard.flush();
                leaf.state(guard).high.as_deref().map(<[u8]>::to_vec)
            });
        }
    }
}
