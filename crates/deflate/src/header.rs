//! The header of a block with codes of its own (RFC 1951, section 3.2.7).

use crate::bits::BitWriter;
use crate::error::Fault;
use crate::huffman::{Canonical, limited_lengths};
use crate::symbols::{DISTANCES_ANY, LITERALS};

/// The order in which the lengths of the code length code are stored.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Extra bits of the code length symbols 16, 17 and 18.
const REPEAT_EXTRA: [u32; 3] = [2, 3, 7];

/// Bits of the code length code at most.
const CODE_LENGTH_BITS: usize = 7;

/// Bits of a header at most: three for the type, the counts, and 320 lengths of 14 bits.
pub(crate) const HEADER_BITS_MAX: usize = 3 + 14 + 19 * 3 + 320 * 14;

/// A header, ready to be written.
pub(crate) struct Header {
    /// Code length symbols, with extra bits from bit 8 on.
    symbols: [u16; LITERALS + DISTANCES_ANY],
    used: usize,
    literals: usize,
    distances: usize,
    lengths: [u8; 19],
    stored_lengths: usize,
    /// Bits that it takes, without the three of the block's type.
    pub(crate) bits: usize,
}

impl Header {
    pub(crate) fn new(literals: &[u8], distances: &[u8]) -> Header {
        let trimmed = |lengths: &[u8], least: usize| {
            lengths.iter().rposition(|&length| length > 0).map_or(least, |last| least.max(last + 1))
        };
        let (literals, distances) =
            (&literals[..trimmed(literals, 257)], &distances[..trimmed(distances, 1)]);
        let mut header = Header {
            symbols: [0; LITERALS + DISTANCES_ANY],
            used: 0,
            literals: literals.len(),
            distances: distances.len(),
            lengths: [0; 19],
            stored_lengths: 0,
            bits: 0,
        };
        // The format lets a run continue from one code into the other. Intel's accelerator reports that as an error, so
        // no run does so here.
        header.run_lengths(literals);
        header.run_lengths(distances);
        header.measure();
        header
    }

    fn run_lengths(&mut self, mut lengths: &[u8]) {
        while let Some((&first, rest)) = lengths.split_first() {
            let run = 1 + rest.iter().take_while(|&&length| length == first).count();
            let mut left = run;
            if first == 0 {
                while left >= 3 {
                    let times = left.min(138);
                    if times <= 10 {
                        self.push(17, times - 3)
                    } else {
                        self.push(18, times - 11)
                    }
                    left -= times;
                }
            } else {
                self.push(usize::from(first), 0);
                left -= 1;
                while left >= 3 {
                    let times = left.min(6);
                    self.push(16, times - 3);
                    left -= times;
                }
            }
            (0..left).for_each(|_| self.push(usize::from(first), 0));
            lengths = &lengths[run..];
        }
    }

    fn push(&mut self, symbol: usize, extra: usize) {
        self.symbols[self.used] = (symbol | extra << 8) as u16;
        self.used += 1;
    }

    fn measure(&mut self) {
        let mut counts = [0u32; 19];
        self.symbols[..self.used].iter().for_each(|&symbol| counts[usize::from(symbol & 255)] += 1);
        if counts.iter().filter(|&&count| count > 0).count() == 1 {
            // A code of one symbol is refused by decoders.
            counts[usize::from(counts[0] > 0)] += 1;
        }
        limited_lengths(&counts, CODE_LENGTH_BITS, &mut self.lengths);
        let last = ORDER.iter().rposition(|&symbol| self.lengths[symbol] > 0).unwrap_or(3);
        self.stored_lengths = (last + 1).max(4);
        let data: usize = counts
            .iter()
            .zip(self.lengths)
            .map(|(&count, length)| count as usize * usize::from(length))
            .sum();
        let extra: usize =
            counts[16..].iter().zip(REPEAT_EXTRA).map(|(&count, bits)| count as usize * bits as usize).sum();
        self.bits = 14 + 3 * self.stored_lengths + data + extra;
    }

    /// Writes all but the three bits of the block's type. `false` if it does not fit.
    pub(crate) fn write(&self, target: &mut BitWriter<'_>) -> bool {
        let counts = (self.literals - 257) | (self.distances - 1) << 5 | (self.stored_lengths - 4) << 10;
        target.put(counts as u64, 14);
        for &symbol in &ORDER[..self.stored_lengths] {
            target.put(u64::from(self.lengths[symbol]), 3);
            if !target.flush() {
                return false;
            }
        }
        let mut codes = [0u64; 19];
        let code = Canonical::new(&self.lengths, Fault::OverSubscribed, Fault::Incomplete);
        let code = code.expect("limited lengths make a code");
        code.for_each(|symbol, _, reversed| codes[symbol] = reversed as u64);
        for &symbol in &self.symbols[..self.used] {
            let (symbol, extra) = (usize::from(symbol & 255), u64::from(symbol >> 8));
            target.put(codes[symbol], u32::from(self.lengths[symbol]));
            target.put(extra, symbol.checked_sub(16).map_or(0, |repeat| REPEAT_EXTRA[repeat]));
            if !target.flush() {
                return false;
            }
        }
        true
    }
}

/// Reading a header: lengths of codes come one by one, from a source of bits that may run dry.
#[derive(Clone)]
pub(crate) struct HeaderReader {
    counts: Option<[usize; 3]>,
    /// Lengths read so far, of the code length code and then of both codes.
    read: usize,
    code_lengths: [u8; 19],
    /// By the next seven bits: symbol, and bits of its code from bit 5 on.
    table: [u8; 1 << CODE_LENGTH_BITS],
    lengths: [u8; 288 + 32],
}

/// Lengths of the code for literals and lengths, and of that for distances.
pub(crate) type Lengths<'a> = (&'a [u8], &'a [u8]);

/// A source of bits, lowest first.
pub(crate) trait BitSource {
    /// The next bits, as many as are [`available`](Self::available), and above them zeros or bits to come.
    fn word(&self) -> u64;
    /// How many bits can be taken.
    fn available(&self) -> u32;
    /// Makes more bits available; `false` if there are none at this time.
    fn pull(&mut self) -> bool;
    /// Takes bits, of which so many are available.
    fn take(&mut self, bits: u32);

    /// Takes a number of `count` bits, if they are available.
    #[inline]
    fn number(&mut self, bits: u32) -> Option<usize> {
        while self.available() < bits {
            if !self.pull() {
                return None;
            }
        }
        let number = self.word() & ((1 << bits) - 1);
        self.take(bits);
        Some(number as usize)
    }
}

impl HeaderReader {
    pub(crate) fn new() -> HeaderReader {
        HeaderReader {
            counts: None,
            read: 0,
            code_lengths: [0; 19],
            table: [0; 1 << CODE_LENGTH_BITS],
            lengths: [0; 288 + 32],
        }
    }

    /// Reads on. `Ok(None)` if the source runs dry; then call it again with more. Otherwise the lengths of both codes.
    pub(crate) fn read(&mut self, source: &mut impl BitSource) -> Result<Option<Lengths<'_>>, Fault> {
        let [literals, distances, stored] = match self.counts {
            Some(counts) => counts,
            None => {
                let Some(bits) = source.number(14) else { return Ok(None) };
                let counts = [257 + (bits & 31), 1 + (bits >> 5 & 31), 4 + (bits >> 10 & 15)];
                if counts[0] > LITERALS || counts[1] > DISTANCES_ANY {
                    return Err(Fault::TooManyCodes);
                }
                *self.counts.insert(counts)
            }
        };
        while self.read < stored {
            let Some(bits) = source.number(3) else { return Ok(None) };
            self.code_lengths[ORDER[self.read]] = bits as u8;
            self.read += 1;
            if self.read == stored {
                self.build()?;
            }
        }
        let all = literals + distances;
        while self.read - stored < all {
            if !self.read_length(source, all, stored)? {
                return Ok(None);
            }
        }
        let (literals, distances) = self.lengths[..all].split_at(literals);
        if literals[crate::symbols::END_OF_BLOCK] == 0 {
            return Err(Fault::NoEndOfBlock);
        }
        Ok(Some((literals, distances)))
    }

    fn build(&mut self) -> Result<(), Fault> {
        let code = Canonical::new(&self.code_lengths, Fault::OverSubscribed, Fault::Incomplete)?;
        if code.used < 2 {
            return Err(Fault::Incomplete);
        }
        code.for_each(|symbol, length, reversed| {
            let slots = self.table.iter_mut().skip(reversed).step_by(1 << length);
            slots.for_each(|slot| *slot = (symbol | length << 5) as u8);
        });
        Ok(())
    }

    /// Reads one length or one run of them; `false` if the source runs dry.
    #[inline]
    fn read_length(&mut self, source: &mut impl BitSource, all: usize, stored: usize) -> Result<bool, Fault> {
        let at = self.read - stored;
        let (symbol, code_bits, extra) = loop {
            // Missing bits look like zeros. The entry is right if its code does not need them.
            let entry = self.table[source.word() as usize & 127];
            let (symbol, code_bits) = (entry & 31, u32::from(entry >> 5));
            let extra = symbol.checked_sub(16).map_or(0, |repeat| REPEAT_EXTRA[usize::from(repeat) % 3]);
            if code_bits + extra <= source.available() {
                break (symbol, code_bits, extra);
            }
            if !source.pull() {
                return Ok(false);
            }
        };
        let bits = source.word();
        if symbol < 16 {
            source.take(code_bits);
            self.lengths[at] = symbol;
            self.read += 1;
            return Ok(true);
        }
        let times = (bits >> code_bits & ((1 << extra) - 1)) as usize + if symbol == 18 { 11 } else { 3 };
        let length = match (symbol, at) {
            (16, 0) => return Err(Fault::Repeat),
            (16, _) => self.lengths[at - 1],
            _ => 0,
        };
        if at + times > all {
            return Err(Fault::Repeat);
        }
        source.take(code_bits + extra);
        self.lengths[at..at + times].fill(length);
        self.read += times;
        Ok(true)
    }
}
