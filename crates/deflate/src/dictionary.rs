//! Data that many blocks share: history and canned codes, with the tables prepared from them.

use crate::WINDOW_BYTES;
use crate::matches::HistoryIndex;
use crate::shared::{CannedLengths, SharedCodes};
use crate::train::{train_codes, train_history};

/// A preset history and, if they were trained, canned codes. Immutable; threads share it.
pub struct Dictionary {
    history: Box<[u8]>,
    index: HistoryIndex,
    canned: Option<Box<(CannedLengths, SharedCodes)>>,
}

impl Dictionary {
    /// A dictionary of bytes to which blocks may refer as if the bytes stood before them, the most useful last. Of more
    /// than [`WINDOW_BYTES`] bytes, only the last ones count.
    pub fn new(history: &[u8]) -> Dictionary {
        let history = &history[history.len().saturating_sub(WINDOW_BYTES)..];
        Dictionary { history: history.into(), index: HistoryIndex::new(history), canned: None }
    }

    /// Trains history and canned codes on samples. The samples should look like the blocks to come.
    ///
    /// Samples of 20 to 500 times `max_bytes` in all make sense. Training takes some 30 ms per MiB, and 50 ms more. The
    /// same samples give the same dictionary. The parts to be stored are [`history`](Self::history) and
    /// [`codes`](Self::codes).
    pub fn train(samples: &[&[u8]], max_bytes: usize) -> Dictionary {
        let history = train_history(samples, max_bytes);
        let codes = train_codes(&history, samples);
        Dictionary::new(&history).with_codes(&codes)
    }

    /// The same with canned codes.
    #[must_use]
    pub fn with_codes(self, lengths: &CannedLengths) -> Dictionary {
        let shared =
            SharedCodes::new(&lengths.literals, &lengths.distances).expect("canned codes were checked");
        Dictionary { canned: Some(Box::new((lengths.clone(), shared))), ..self }
    }

    /// The bytes that blocks may refer to.
    pub fn history(&self) -> &[u8] {
        &self.history
    }

    /// The lengths of the canned codes, if there are any.
    pub fn codes(&self) -> Option<&CannedLengths> {
        self.canned.as_ref().map(|canned| &canned.0)
    }

    /// Bytes of heap that it holds.
    pub fn memory_bytes(&self) -> usize {
        let canned = self.canned.as_ref().map_or(0, |canned| size_of_val(&**canned) + canned.1.heap_bytes());
        self.history.len() + self.index.heap_bytes() + canned
    }

    pub(crate) fn index(&self) -> &HistoryIndex {
        &self.index
    }

    pub(crate) fn canned(&self) -> &SharedCodes {
        &self.canned.as_ref().expect("canned codes are asked of a dictionary that has them").1
    }
}
