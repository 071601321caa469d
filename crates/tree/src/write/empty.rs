//! Taking every record out of a leaf at once.

use crossbeam_epoch::Guard;

use super::Writes;
use crate::Error;
use crate::body::Body;
use crate::form::Form;
use crate::leaf::{Leaf, LeafState};
use crate::merge::large_references;
use crate::operation::Operation;
use crate::packing::{Pieces, all_settled};

impl Writes<'_> {
    /// Takes every record out of `leaf`, which the caller owns.
    ///
    /// # Errors
    /// The log's; the leaf is as it was then.
    pub fn empty(&self, leaf: &Leaf, guard: &Guard) -> Result<(), Error> {
        let state = leaf.close(guard);
        let (records, logical_bytes) = all_settled(state);
        let mut new = LeafState::new(Body::empty(), state.high.clone(), state.right);
        new.form = Form::of(state.form.coding());
        let writer = leaf.lock_writer();
        if let Some(journal) = self.journal {
            let range = Operation::DeleteRange { low: &leaf.low(), high: state.high.as_deref() };
            if let Err(error) = journal.append(&range) {
                leaf.reopen(state, guard);
                return Err(error);
            }
        }
        self.tree.account(&Pieces { records: -records, logical_bytes: -logical_bytes, ..Pieces::default() });
        let published = leaf.publish(state, new, guard);
        assert!(published, "nobody changes a closed leaf but its owner");
        // A thread that decided on an update from the former records must look again.
        leaf.note_append();
        drop(writer);
        self.tree.settle_large(Vec::new(), large_references(state), guard);
        Ok(())
    }
}
