//! Keeps answers of a timed model, so that it need not compute them again.
//!
//! Software decompresses more slowly than the modelled device, so that a prediction would show the software. So a
//! repeated job is answered from memory. It must have the same source, compared byte by byte, the same state and the
//! same flags. The strict inflater does all other jobs, and finds every error.
//!
//! The answers lie in shared pages outside the allocator. So neither the allocator's figures nor the anonymous memory
//! of the process includes them. [`ModelUsage`](super::ModelUsage) reports their bytes.

use std::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::usage::note_memo_growth;
use crate::aecs::DecompressState;
use crate::completion::Outcome;

/// Reserved bytes. Pages come with their first use. When the space is full, the oldest answers go.
const BYTES: usize = 256 << 20;

/// States that are told apart. Jobs that share a dictionary share one.
const STATES: usize = 16;

const STATE_BYTES: usize = DecompressState::BYTES;

/// Places for answers, found by hash, and where they begin.
const PLACES: usize = 1 << 19;
const TABLE: usize = (STATES * STATE_BYTES).next_multiple_of(4096);
const ANSWERS: usize = TABLE + 8 * PLACES;
const ANSWER_BYTES: usize = BYTES - ANSWERS;

/// Of an answer: hash, state, flags, bytes of source and of output, outcome.
const HEAD_BYTES: usize = 8 + 8 + 8 + 8 + 64;

/// The parts of a job that determine its answer.
pub(super) struct Asked<'a> {
    /// Operation flags below, decompression flags above.
    pub(super) flags: u64,
    pub(super) source: &'a [u8],
    /// Empty if none is read.
    pub(super) state: &'a [u8],
}

/// The answers of all models that were opened together.
pub(super) struct Memo {
    pages: NonNull<[u8]>,
    /// The number of the state in each slot, 0 for none. Numbers are not used again.
    states: [u64; STATES],
    states_seen: u64,
    /// The position of the next answer, counted on from round to round. The first round is 1, so that 0 in the table
    /// marks an empty entry.
    next: usize,
    /// The part of the process's total that this memo has reported.
    noted: usize,
}

// SAFETY: it owns its pages, as a `Vec` does.
unsafe impl Send for Memo {}

impl Memo {
    /// An empty one, if there is address space for it.
    pub(super) fn new() -> Option<Memo> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        let pages = NonNull::new(slice_from_raw_parts_mut(start.cast::<u8>(), BYTES))?;
        Some(Memo { pages, states: [0; STATES], states_seen: 0, next: ANSWER_BYTES, noted: 0 })
    }

    /// Bytes that it takes at most.
    fn used(&self) -> usize {
        ANSWERS + (self.next - ANSWER_BYTES).min(ANSWER_BYTES)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are mapped, hold zeros or what was written, and are borrowed with `self`.
        unsafe { self.pages.as_ref() }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { self.pages.as_mut() }
    }

    /// The answer that was given, and its output.
    pub(super) fn find(&self, asked: &Asked<'_>) -> Option<(Outcome, &[u8])> {
        let state = self.state(asked.state)?;
        let hash = hash_of(asked.source, state);
        let at = self.number(TABLE + 8 * (hash as usize % PLACES)) as usize;
        if at == 0 || at + ANSWER_BYTES < self.next {
            return None;
        }
        let at = ANSWERS + at % ANSWER_BYTES;
        let sizes = self.number(at + 24);
        let (source_bytes, output_bytes) = (sizes as u32 as usize, (sizes >> 32) as usize);
        if [self.number(at), self.number(at + 8), self.number(at + 16)] != [hash, state, asked.flags]
            || source_bytes != asked.source.len()
        {
            return None;
        }
        let outcome = Outcome::from_bytes(self.bytes()[at + 32..].first_chunk::<64>().copied()?);
        let (source, rest) = self.bytes()[at + HEAD_BYTES..].split_at(source_bytes);
        (source == asked.source).then_some((outcome, &rest[..output_bytes]))
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, asked: &Asked<'_>, outcome: &Outcome, output: &[u8]) {
        let bytes = HEAD_BYTES + asked.source.len() + output.len();
        if bytes > ANSWER_BYTES / 64 || !matches!(asked.state.len(), 0 | STATE_BYTES) {
            return;
        }
        let state = self.state(asked.state).unwrap_or_else(|| self.keep_state(asked.state));
        let hash = hash_of(asked.source, state);
        if self.next % ANSWER_BYTES + bytes > ANSWER_BYTES {
            self.next = self.next.next_multiple_of(ANSWER_BYTES);
        }
        let begin = self.next;
        // The next answer overwrites the oldest, which is then no longer found.
        self.next += bytes.next_multiple_of(8);
        let sizes = asked.source.len() as u64 | (output.len() as u64) << 32;
        let mut at = ANSWERS + begin % ANSWER_BYTES;
        let mut put = |part: &[u8]| {
            self.bytes_mut()[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        [hash, state, asked.flags, sizes].iter().for_each(|number| put(&number.to_le_bytes()));
        [outcome.as_bytes(), asked.source, output].into_iter().for_each(&mut put);
        let place = TABLE + 8 * (hash as usize % PLACES);
        self.bytes_mut()[place..place + 8].copy_from_slice(&(begin as u64).to_le_bytes());
        let used = self.used();
        note_memo_growth(used as i64 - self.noted as i64);
        self.noted = used;
    }

    /// The number of a state that is kept; 0 for none at all.
    fn state(&self, state: &[u8]) -> Option<u64> {
        if state.is_empty() {
            return Some(0);
        }
        let slots = self.bytes()[..STATES * STATE_BYTES].chunks_exact(STATE_BYTES);
        let known = self.states.iter().zip(slots);
        known.filter(|(number, _)| **number > 0).find(|(_, kept)| *kept == state).map(|(number, _)| *number)
    }

    fn keep_state(&mut self, state: &[u8]) -> u64 {
        let slot = self.states_seen as usize % STATES;
        self.states_seen += 1;
        self.states[slot] = self.states_seen;
        self.bytes_mut()[slot * STATE_BYTES..(slot + 1) * STATE_BYTES].copy_from_slice(state);
        self.states_seen
    }

    fn number(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.bytes()[at..].first_chunk().expect("numbers lie within the pages"))
    }
}

impl Drop for Memo {
    fn drop(&mut self) {
        note_memo_growth(-(self.noted as i64));
        // SAFETY: the pages were mapped by `new`, and nobody refers to them any more. It cannot fail with what `mmap`
        // returned.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), BYTES) };
    }
}

/// A hash that is quick rather than good, because the found source is compared.
fn hash_of(source: &[u8], state: u64) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let (words, tail) = source.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let hash =
        words.iter().fold(mix(state, source.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let hash = mix(hash, u64::from_le_bytes(last));
    hash ^ hash >> 32
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::completion::Status;

    fn outcome(number: u32) -> Outcome {
        let mut outcome = Outcome::new(Status::Success);
        outcome.set_crc32(number);
        outcome
    }

    #[test]
    fn only_the_same_question_has_the_answer() {
        let mut memo = Memo::new().unwrap();
        let states = [[1; STATE_BYTES], [2; STATE_BYTES]];
        let asked = |source, state| Asked { flags: 7, source, state };
        memo.keep(&asked(b"source", &[]), &outcome(1), b"one");
        memo.keep(&asked(b"source", &states[0]), &outcome(2), b"two");
        memo.keep(&asked(b"", &states[1]), &outcome(3), b"");
        for (question, answer) in [
            (asked(b"source", &[][..]), Some((outcome(1), &b"one"[..]))),
            (asked(b"source", &states[0]), Some((outcome(2), b"two"))),
            (asked(b"", &states[1]), Some((outcome(3), b""))),
            (asked(b"source", &states[1]), None),
            (asked(b"sourcE", &[]), None),
            (asked(b"", &[]), None),
            (Asked { flags: 6, source: b"source", state: &[] }, None),
        ] {
            assert_eq!(memo.find(&question), answer);
        }
    }

    #[test]
    fn the_oldest_answers_go_and_none_is_confused_with_another() {
        let mut memo = Memo::new().unwrap();
        let (mut source, output) = (vec![0; 300_000], vec![5; 700_000]);
        let count = 3 * (ANSWER_BYTES / 1_000_000) as u32;
        for number in 0..count {
            source[..4].copy_from_slice(&number.to_le_bytes());
            let state = [number as u8; STATE_BYTES];
            let state = if number % 2 == 0 { &state[..] } else { &[] };
            memo.keep(&Asked { flags: 0, source: &source, state }, &outcome(number), &output);
        }
        let (mut found, mut last) = (0, false);
        for number in (0..count).filter(|number| number % 2 == 1) {
            source[..4].copy_from_slice(&number.to_le_bytes());
            let answer = memo.find(&Asked { flags: 0, source: &source, state: &[] });
            assert!(answer.is_none_or(|(told, bytes)| told == outcome(number) && bytes == output));
            last = answer.is_some();
            found += u32::from(last);
        }
        assert!(last && (count / 8..count / 2).contains(&found), "{found} of {count}");
    }
}
