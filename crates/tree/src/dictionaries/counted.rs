//! The count of the bytes that a training takes.

use crate::memory::Gauges;

/// Bytes that are counted as held for dictionaries until this is dropped.
pub(super) struct Counted<'a> {
    gauges: &'a Gauges,
    bytes: usize,
}

impl<'a> Counted<'a> {
    pub(super) fn new(gauges: &'a Gauges, bytes: usize) -> Self {
        gauges.dictionary.add_held(bytes);
        Self { gauges, bytes }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.gauges.dictionary.take_held(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_held_as_long_as_they_are_counted() {
        let gauges = Gauges::default();
        let counted = Counted::new(&gauges, 4096);
        assert_eq!(gauges.dictionary.held(), 4096);
        drop(counted);
        assert_eq!(gauges.dictionary.held(), 0);
    }
}
