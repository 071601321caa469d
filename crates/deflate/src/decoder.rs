//! The fast decoder: whole blocks, from a slice to a vector.
//!
//! The decoder writes output into its own window: in front the history, behind it room for more than any match may
//! write. So it copies every match in wide steps, and writes to the caller's memory only final bytes.

use crate::dictionary::Dictionary;
use crate::error::{DecodeError, Fault};
use crate::header::{BitSource, HeaderReader};
use crate::shared::SharedCodes;
use crate::symbols::LENGTH_MAX;
use crate::tables::{
    DISTANCE_BITS, LITERAL_BITS, NO_DISTANCE, NoDistance, Special, Tables, is_special, match_length,
    shift_without_match,
};
use crate::{Huffman, WINDOW_BYTES};

/// Bytes that are decoded before they are handed out.
const ROOM_BYTES: usize = 16 << 10;

/// The end of the room in the window.
const ROOM_END: usize = WINDOW_BYTES + ROOM_BYTES;

/// Bytes behind the room: four literals, a match, and the rest of its last wide copy.
const SPILL_BYTES: usize = 4 + LENGTH_MAX + 4 * WIDE_BYTES;

/// Bytes of one step of a copy.
const WIDE_BYTES: usize = 16;

/// Decodes blocks with a dictionary. It holds 20 KiB, and 21 KiB more after a block with codes of its own.
///
/// ```
/// use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level};
///
/// let dictionary = Dictionary::new(b"a history that blocks have much in common with");
/// let block = b"this block has much in common with a history";
/// let mut packed = Vec::new();
/// let length = Encoder::new(&dictionary, Level::Dense).compress(Huffman::Fixed, block, &mut packed, block.len());
/// assert!(length.is_some_and(|length| length < 30));
///
/// let mut raw = Vec::new();
/// Decoder::new(&dictionary).decompress(Huffman::Fixed, &packed, &mut raw, 100)?;
/// assert_eq!(raw, block);
/// # Ok::<(), ziptier_deflate::DecodeError>(())
/// ```
pub struct Decoder<'a> {
    dictionary: &'a Dictionary,
    window: Box<[u8; ROOM_END + SPILL_BYTES]>,
    /// Whether the window begins with the history.
    has_history: bool,
    /// Of blocks with codes of their own.
    tables: Option<Box<Tables>>,
}

impl<'a> Decoder<'a> {
    /// A decoder of blocks that were made with this dictionary.
    pub fn new(dictionary: &'a Dictionary) -> Decoder<'a> {
        let window = vec![0; ROOM_END + SPILL_BYTES].into_boxed_slice();
        let window = window.try_into().expect("the window has the length of its type");
        Decoder { dictionary, window, has_history: false, tables: None }
    }

    /// Appends the block in `packed` to `out`, and returns its length, at most `max_bytes`.
    ///
    /// With [`Huffman::Canned`] the block must have been written with the canned codes of this dictionary. Otherwise it
    /// may be any raw DEFLATE stream whose distances are within the window. No bytes may follow the stream. `packed`
    /// may be any bytes: an error leaves `out` unchanged, and reserves at most `max_bytes` in it.
    ///
    /// # Panics
    ///
    /// If canned codes are asked for and the dictionary has none.
    pub fn decompress(
        &mut self,
        huffman: Huffman,
        packed: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<usize, DecodeError> {
        let before = out.len();
        let history = self.dictionary.history();
        let history_start = WINDOW_BYTES - history.len();
        if !std::mem::replace(&mut self.has_history, true) {
            self.window[history_start..WINDOW_BYTES].copy_from_slice(history);
        }
        let mut run = Run {
            bits: Bits::new(packed),
            output: Output {
                window: &mut self.window,
                at: WINDOW_BYTES,
                end: WINDOW_BYTES + max_bytes.min(ROOM_BYTES),
                handed_out: WINDOW_BYTES,
                first: history_start,
                left: max_bytes,
                has_history: &mut self.has_history,
                out,
            },
        };
        let result = match huffman {
            Huffman::Canned => run.codes(&self.dictionary.canned().paired),
            Huffman::Fixed | Huffman::Dynamic => run.blocks(&mut self.tables),
        };
        let result = result.and_then(|()| run.finish());
        let position = run.bits.position().min(packed.len());
        match result {
            Ok(()) => Ok(out.len() - before),
            Err(fault) => {
                out.truncate(before);
                Err(DecodeError { position, fault })
            }
        }
    }
}

/// The input as bits, lowest first, with zeros behind its end.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    input: &'a [u8],
    /// The last bytes of the input, in the highest bits.
    last: u64,
    /// Next byte to load.
    at: usize,
    word: u64,
    filled: u32,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Bits<'a> {
        let last = match input.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => {
                let mut last = [0; 8];
                last[8 - input.len()..].copy_from_slice(input);
                u64::from_le_bytes(last)
            }
        };
        Bits { input, last, at: 0, word: 0, filled: 0 }
    }

    /// Makes 56 bits available, zeros behind the end of the input. `false` if the input ended long ago.
    #[inline(always)]
    fn refill(&mut self) -> bool {
        let next = match self.input.get(self.at..self.at + 8) {
            Some(bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            None if self.at > self.input.len() + 16 => return false,
            None => self.tail(),
        };
        self.word |= next << self.filled;
        self.at += ((63 - self.filled) >> 3) as usize;
        self.filled |= 56;
        true
    }

    /// The rest of the input, less than eight bytes.
    fn tail(&self) -> u64 {
        let before = self.at + 8 - self.input.len();
        if before < 8 { self.last >> (8 * before) } else { 0 }
    }

    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.word >>= bits;
        self.filled -= bits;
    }

    /// The byte after the last one of which bits were taken.
    fn position(&self) -> usize {
        self.at - (self.filled / 8) as usize
    }

    /// How many bits were taken.
    pub(crate) fn bit(&self) -> usize {
        8 * self.at - self.filled as usize
    }

    /// Whether bits were taken that are not there.
    fn is_overrun(&self) -> bool {
        self.position() > self.input.len()
    }
}

impl BitSource for Bits<'_> {
    #[inline]
    fn word(&self) -> u64 {
        self.word
    }

    #[inline]
    fn available(&self) -> u32 {
        self.filled
    }

    #[inline]
    fn pull(&mut self) -> bool {
        self.refill()
    }

    #[inline]
    fn take(&mut self, bits: u32) {
        self.skip(bits);
    }
}

/// The window, and the positions in it.
struct Output<'a> {
    window: &'a mut [u8; ROOM_END + SPILL_BYTES],
    /// The position of the next byte.
    at: usize,
    /// The end of the room, or of the permitted output.
    end: usize,
    /// Bytes before it are in `out`.
    handed_out: usize,
    /// The start of the history.
    first: usize,
    /// Bytes that may follow after `handed_out`.
    left: usize,
    has_history: &'a mut bool,
    out: &'a mut Vec<u8>,
}

impl Output<'_> {
    /// Hands out the decoded bytes, and makes room.
    #[cold]
    fn make_room(&mut self) -> Result<(), Fault> {
        self.hand_out()?;
        let kept = self.at - WINDOW_BYTES;
        *self.has_history = false;
        self.window.copy_within(kept..self.at, 0);
        self.first = self.first.saturating_sub(kept);
        self.at = WINDOW_BYTES;
        self.handed_out = WINDOW_BYTES;
        self.end = WINDOW_BYTES + self.left.min(ROOM_BYTES);
        Ok(())
    }

    fn hand_out(&mut self) -> Result<(), Fault> {
        let made = self.at - self.handed_out;
        self.left = self.left.checked_sub(made).ok_or(Fault::OutputTooLong)?;
        self.out.extend_from_slice(&self.window[self.handed_out..self.at]);
        self.handed_out = self.at;
        Ok(())
    }
}

struct Run<'a> {
    bits: Bits<'a>,
    output: Output<'a>,
}

impl Run<'_> {
    fn blocks(&mut self, own: &mut Option<Box<Tables>>) -> Result<(), Fault> {
        loop {
            let header = self.bits.number(3).ok_or(Fault::InputEnds)?;
            match header >> 1 {
                0 => self.stored()?,
                1 => self.codes(&SharedCodes::fixed().paired)?,
                2 => {
                    let tables = own.get_or_insert_default();
                    self.header(tables)?;
                    self.codes(tables)?;
                }
                _ => return Err(Fault::BlockType),
            }
            if header & 1 == 1 {
                return Ok(());
            }
        }
    }

    fn header(&mut self, tables: &mut Tables) -> Result<(), Fault> {
        let mut reader = HeaderReader::new();
        let lengths = reader.read(&mut self.bits)?;
        let (literals, distances) = lengths.filter(|_| !self.bits.is_overrun()).ok_or(Fault::InputEnds)?;
        tables.build(literals, distances)
    }

    fn stored(&mut self) -> Result<(), Fault> {
        self.bits.skip(self.bits.filled & 7);
        let lengths = self.bits.number(32).filter(|_| !self.bits.is_overrun()).ok_or(Fault::InputEnds)?;
        let length = lengths & 0xFFFF;
        if lengths >> 16 != !lengths & 0xFFFF {
            return Err(Fault::StoredLength);
        }
        let start = self.bits.position();
        let bytes = self.bits.input.get(start..start + length).ok_or(Fault::InputEnds)?;
        for part in bytes.chunks(ROOM_BYTES) {
            if self.output.at + part.len() > self.output.end {
                self.output.make_room()?;
            }
            let end = self.output.at + part.len();
            if end > self.output.end {
                return Err(Fault::OutputTooLong);
            }
            self.output.window[self.output.at..end].copy_from_slice(part);
            self.output.at = end;
        }
        self.bits = Bits { at: start + length, word: 0, filled: 0, ..self.bits };
        Ok(())
    }

    /// Hands out the rest, if the input ends where the stream does.
    fn finish(&mut self) -> Result<(), Fault> {
        if self.bits.is_overrun() {
            return Err(Fault::InputEnds);
        }
        if self.bits.position() < self.bits.input.len() {
            return Err(Fault::BytesAfterEnd);
        }
        self.output.hand_out()
    }

    /// Decodes symbols up to the end of a block.
    ///
    /// Literals and matches alternate unpredictably, so a branch on them would cost more than the work. Every look-up
    /// writes literals *and* copies a match, either of which may be empty.
    #[inline(always)]
    fn codes(&mut self, tables: &Tables) -> Result<(), Fault> {
        // State that every symbol changes has to stay in registers, so the code takes no reference to it.
        let (mut bits, mut at) = (self.bits, self.output.at);
        let result = loop {
            if at > self.output.end {
                self.output.at = at;
                if let Err(fault) = self.output.make_room() {
                    break Err(fault);
                }
                at = self.output.at;
            }
            if !bits.refill() {
                break Err(Fault::InputEnds);
            }
            let mut entry = tables.literals[bits.word as usize & ((1 << LITERAL_BITS) - 1)];
            let mut length = match_length(entry);
            if is_special(entry) {
                match special(bits, tables, entry) {
                    Ok(found) => (bits, entry, length) = found,
                    Err(fault) => break Err(fault),
                }
                if entry == END {
                    break Ok(());
                }
            }
            bits.skip(entry & 63);
            let no_match = shift_without_match(entry);
            let window = &mut *self.output.window;
            window[at..at + 2].copy_from_slice(&[(entry >> 8) as u8, (entry >> 16) as u8]);
            at += (entry >> 6 & 3) as usize;
            let mut distance = tables.distances[bits.word as usize & ((1 << DISTANCE_BITS) - 1)];
            distance = (u64::from(distance) >> no_match) as u32;
            if distance & NO_DISTANCE != 0 {
                match longer_distance(bits, tables, distance) {
                    Ok(found) => (bits, distance) = found,
                    Err(fault) => break Err(fault),
                }
            }
            let taken = (bits.word & ((1 << (distance & 63)) - 1)) >> (distance >> 8 & 15);
            bits.skip(distance & 63);
            let distance = (distance >> 16) as usize + taken as usize;
            if distance > at - self.output.first {
                break Err(Fault::BeforeStart);
            }
            // Without a match, copies from bytes that were not written lately, so that the load does not wait for
            // stores.
            let from = (at - distance) >> no_match;
            copy(window, from, at, length);
            at += length;
        };
        (self.bits, self.output.at) = (bits, at);
        result
    }
}

/// An entry that no symbol has.
const END: u32 = u32::MAX;

/// Follows an entry of [`Special`] meaning, to an ordinary one without a match, and the length of a match.
#[inline(never)]
fn special<'a>(mut bits: Bits<'a>, tables: &Tables, mut entry: u32) -> Result<(Bits<'a>, u32, usize), Fault> {
    if Special::of(entry) == Special::Longer {
        bits.skip(entry & 63);
        let next = bits.word as usize & ((1 << (entry >> 12 & 15)) - 1);
        entry = tables.literals[(entry >> 16) as usize + next];
        if !is_special(entry) {
            return Ok((bits, entry, match_length(entry)));
        }
    }
    bits.skip(entry & 63);
    match Special::of(entry) {
        Special::End => Ok((bits, END, 0)),
        Special::Length => {
            let extra_bits = entry >> 12 & 15;
            let extra = bits.word as usize & ((1 << extra_bits) - 1);
            Ok((bits, extra_bits, (entry >> 16) as usize + extra))
        }
        _ => Err(Fault::Symbol),
    }
}

#[cold]
fn longer_distance<'a>(
    mut bits: Bits<'a>,
    tables: &Tables,
    mut entry: u32,
) -> Result<(Bits<'a>, u32), Fault> {
    if NoDistance::of(entry) == NoDistance::Longer {
        bits.skip(DISTANCE_BITS as u32);
        let next = bits.word as usize & ((1 << (entry >> 12 & 15)) - 1);
        entry = tables.distances[(entry >> 16) as usize + next];
        if entry & NO_DISTANCE == 0 {
            return Ok((bits, entry));
        }
    }
    Err(if NoDistance::of(entry) == NoDistance::BeyondWindow { Fault::BeyondWindow } else { Fault::Distance })
}

/// Repeats `length` bytes. Up to four wide steps behind them are overwritten.
#[inline(always)]
fn copy(window: &mut [u8; ROOM_END + SPILL_BYTES], mut from: usize, mut to: usize, length: usize) {
    if to - from < WIDE_BYTES {
        copy_near(window, to, to - from, length);
        return;
    }
    let end = to + length;
    loop {
        copy_step::<WIDE_BYTES>(window, from, to);
        copy_step::<WIDE_BYTES>(window, from + WIDE_BYTES, to + WIDE_BYTES);
        from += 2 * WIDE_BYTES;
        to += 2 * WIDE_BYTES;
        if to >= end {
            return;
        }
    }
}

#[inline(always)]
fn copy_step<const BYTES: usize>(window: &mut [u8; ROOM_END + SPILL_BYTES], from: usize, to: usize) {
    let bytes: [u8; BYTES] = window[from..from + BYTES].try_into().expect("as many bytes as were asked for");
    window[to..to + BYTES].copy_from_slice(&bytes);
}

/// A copy that overlaps itself within a wide step.
#[inline(never)]
fn copy_near(window: &mut [u8; ROOM_END + SPILL_BYTES], to: usize, distance: usize, length: usize) {
    // The least multiple of the distance that is a step of eight bytes or more.
    let period = distance * 8usize.div_ceil(distance);
    let single = (period - distance).min(length);
    for at in to..to + single {
        window[at] = window[at - distance];
    }
    for at in (to + single..to + length).step_by(8) {
        copy_step::<8>(window, at - period, at);
    }
}
