//! The memory in which threads pack: kept by each thread from one pack to the next.
//!
//! Not for the packs themselves.

use std::cell::RefCell;

use ziptier_codec::token::Encoder;

use super::coded::{CodedValues, Values};
use super::{Goal, Packer};
use crate::blocks::{BlockCoding, Effort};
use crate::body::{Blocks, Builder};

crate::sync::thread_local! {
    static SCRATCHES: RefCell<Scratches> = RefCell::new(Scratches::default());
}

/// The scratches in which a thread packs: one, and more while it packs a leaf during the work on another.
#[derive(Default)]
struct Scratches {
    #[expect(
        clippy::vec_box,
        reason = "a scratch of several hundred bytes would be moved twice for each pack"
    )]
    idle: Vec<Box<Scratch>>,
    in_background: bool,
}

impl Scratches {
    fn new_scratch(&self) -> Box<Scratch> {
        Box::new(Scratch { in_background: self.in_background, ..Scratch::default() })
    }
}

/// The scratch of a thread that packs.
#[derive(Default)]
pub struct Scratch {
    /// The thread works in the background: where that has a codec of its own, blocks are packed by it.
    in_background: bool,
    pub(crate) builder: Builder,
    pub(crate) encoder: Encoder,
    pub(super) coded: CodedValues,
    /// Values whose token numbers were coded by entropy, or have one width again.
    pub(super) renumbered: Values,
    pub(super) raw: Vec<u8>,
    pub(super) packed: PackedScratch,
}

/// The part of the scratch that is for blocks.
#[derive(Default)]
pub(super) struct PackedScratch {
    pub(super) blocks: Blocks,
    /// The same, cut so that the first body is full.
    pub(super) filled: Blocks,
    /// The contents of blocks that were unpacked.
    pub(super) raw: Vec<u8>,
    /// The contents of a block that is being put together.
    pub(super) contents: Vec<u8>,
    /// The ranges of values in `raw`.
    pub(super) spans: Vec<(usize, usize)>,
    /// Values of edits, and of a block: empty between two packs, kept for their memory.
    pub(super) fresh: Vec<&'static [u8]>,
    pub(super) values: Vec<&'static [u8]>,
}

/// `values`, empty, with its memory: the standard library collects an emptied vector in place.
pub(super) fn emptied<'a>(mut values: Vec<&[u8]>) -> Vec<&'a [u8]> {
    values.clear();
    values.into_iter().map(|_| unreachable!("it was emptied")).collect()
}

impl Scratch {
    /// Runs `work` with a packing scratch of this thread.
    pub fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        let mut scratch = SCRATCHES.with(|scratches| {
            let scratches = &mut *scratches.borrow_mut();
            scratches.idle.pop().unwrap_or_else(|| scratches.new_scratch())
        });
        let result = work(&mut scratch);
        SCRATCHES.with(|scratches| scratches.borrow_mut().idle.push(scratch));
        result
    }

    /// Frees the packing scratch of this thread.
    pub fn release() {
        SCRATCHES.with(|scratches| scratches.borrow_mut().idle = Vec::new());
    }

    /// Frees the codes of tokens that this thread has laid out, since they count for no limit. A background thread
    /// keeps them until the end of a lap.
    pub fn release_codes_of_thread() {
        SCRATCHES.with(|scratches| {
            let scratches = &mut *scratches.borrow_mut();
            if !scratches.in_background {
                scratches.idle.iter_mut().for_each(|scratch| scratch.release_codes());
            }
        });
    }

    /// Says that this thread, which has not packed anything yet, works in the background.
    pub fn work_in_background() {
        SCRATCHES.with(|scratches| scratches.borrow_mut().in_background = true);
    }

    /// Frees what the scratch has laid out of codes.
    pub(crate) fn release_codes(&mut self) {
        self.coded.release_codes();
    }

    /// Bytes of what it has laid out of codes.
    #[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
    pub fn codes_bytes(&self) -> usize {
        self.coded.codes_bytes()
    }

    /// The coding and the effort with which blocks are packed for `goal`.
    pub(super) fn packer<'a>(&self, goal: Goal, coding: &'a BlockCoding) -> Packer<'a> {
        let effort = match goal {
            _ if !goal.keeps_form() => Effort::Dense,
            _ if self.in_background && coding.has_background_codec() => Effort::Dense,
            _ => Effort::Fast,
        };
        Packer { coding, effort }
    }
}
