//! Iteration over records, as callers of the store know it.

use ziptier_tree::range;

use super::OpenValue;
use crate::Error;

/// Iterator over keys and values in key order. See [`Store::range`](crate::Store::range).
pub struct Range<'s>(pub(super) range::Range<'s>);

impl Range<'_> {
    /// As [`Iterator::next`], but a large value is only shared, not read.
    ///
    /// # Errors
    /// As [`Iterator::next`]; damage of a large value shows when it is read.
    pub fn next_opened(&mut self) -> Option<Result<(Vec<u8>, OpenValue), Error>> {
        let opened = self.0.next_opened()?;
        Some(opened.map(|(key, value)| (key, OpenValue(value))).map_err(Error::from))
    }

    /// Goes to the next record, and passes at most `leaves_max` leaves on the way: all records of a leaf may have
    /// expired. If the next record lies behind these, returns a key for another range to go on from. `None` at a record
    /// and at the end.
    ///
    /// # Errors
    /// As [`Iterator::next`].
    pub fn look_ahead(&mut self, leaves_max: usize) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.look_ahead(leaves_max)?)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map_err(Error::from))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map_err(Error::from))
    }
}
