//! Headers of blocks with codes of their own (RFC 1951, section 3.2.7), read with the accelerator's errors.
//!
//! The lengths of the two codes are two sequences here. A run must not continue from one into the other, although the
//! format allows it. The interface has separate errors for each sequence, and the test suite of Intel's library expects
//! them from the device.

use super::inflate::Stop;
use super::input::Bits;
use super::tables::{Found, Table};
use crate::aecs::{DISTANCES, LITERALS, words_of};
use crate::completion::ErrorCode;

/// The order in which the lengths of the code length code are stored.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Code words of literals and lengths, and of distances.
pub(super) type Words = ([u32; LITERALS + 2], [u32; DISTANCES + 2]);

/// Reads a header behind the three bits of the block's type.
pub(super) fn read(bits: &mut Bits<'_>, scratch: &mut Table) -> Result<Words, Stop> {
    let literals = 257 + bits.number(5)? as usize;
    let distances = 1 + bits.number(5)? as usize;
    let stored = 4 + bits.number(4)? as usize;
    if literals > LITERALS {
        return Err(ErrorCode::TooManyLiterals.into());
    }
    if distances > DISTANCES {
        return Err(ErrorCode::TooManyDistances.into());
    }
    let mut lengths = [0; 19];
    for &symbol in &ORDER[..stored] {
        lengths[symbol] = bits.number(3)? as u8;
    }
    let words = words_of::<19>(&lengths).map_err(|_| ErrorCode::CodeLengthsOverSubscribed)?;
    if !scratch.build(&words) {
        return Err(ErrorCode::CodeLengthsOverSubscribed.into());
    }
    let mut sequence = Sequence { bits, code: scratch, last: None };
    let mut literal_lengths = [0; LITERALS];
    let literal_lengths = &mut literal_lengths[..literals];
    sequence.read(literal_lengths, ErrorCode::FirstLiteralRepeats, ErrorCode::WrongLiteralCount)?;
    sequence.last = None;
    let mut distance_lengths = [0; DISTANCES];
    let distance_lengths = &mut distance_lengths[..distances];
    sequence.read(distance_lengths, ErrorCode::FirstDistanceRepeats, ErrorCode::WrongDistanceCount)?;
    if literal_lengths.iter().all(|&length| length == 0) {
        return Err(ErrorCode::NoLiteralCodes.into());
    }
    let literals = words_of(literal_lengths).map_err(|_| ErrorCode::LiteralsOverSubscribed)?;
    let distances = words_of(distance_lengths).map_err(|_| ErrorCode::DistancesOverSubscribed)?;
    Ok((literals, distances))
}

/// Code lengths, in runs.
struct Sequence<'s, 'a> {
    bits: &'s mut Bits<'a>,
    code: &'s Table,
    last: Option<u8>,
}

impl Sequence<'_, '_> {
    fn read(&mut self, lengths: &mut [u8], repeats: ErrorCode, count: ErrorCode) -> Result<(), Stop> {
        let mut at = 0;
        while at < lengths.len() {
            self.bits.refill();
            let symbol = match self.code.find(self.bits.word(), self.bits.available()) {
                Found::Symbol { symbol, bits } => {
                    self.bits.take(bits);
                    symbol
                }
                Found::Undefined => return Err(ErrorCode::BadCodeLengthCode.into()),
                Found::Dry => return Err(Stop::Dry),
            };
            let (length, times) = match symbol {
                16 => (self.last.ok_or(repeats)?, 3 + self.bits.number(2)? as usize),
                17 => (0, 3 + self.bits.number(3)? as usize),
                18 => (0, 11 + self.bits.number(7)? as usize),
                length => (length as u8, 1),
            };
            lengths.get_mut(at..at + times).ok_or(count)?.fill(length);
            self.last = Some(length);
            at += times;
        }
        Ok(())
    }
}
