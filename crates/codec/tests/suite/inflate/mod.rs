//! A slow inflate, written from RFC 1951, that also reports how far back a stream refers and which kinds of blocks it
//! has. No other decoder reports that.

/// The contents of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inflated {
    pub(crate) bytes: Vec<u8>,
    pub(crate) distance_max: usize,
    /// Blocks that are stored, with fixed codes, with dynamic codes.
    pub(crate) blocks: [usize; 3],
}

struct Bits<'a> {
    input: &'a [u8],
    bit: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut value = 0;
        for place in 0..count {
            let byte = self.input.get(self.bit / 8)?;
            value |= usize::from(byte >> (self.bit % 8) & 1) << place;
            self.bit += 1;
        }
        Some(value)
    }
}

/// A canonical code: how many symbols have each length, and the symbols in order.
struct Code {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[usize]) -> Code {
        let mut counts = [0; 16];
        lengths.iter().for_each(|&length| counts[length] += 1);
        counts[0] = 0;
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        Code { counts, symbols }
    }

    fn read(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code = code << 1 | bits.take(1)?;
            first <<= 1;
            if code < first + count {
                return Some(self.symbols[index + code - first]);
            }
            index += count;
            first += count;
        }
        None
    }
}

/// Decodes a raw stream that may refer to `dictionary`; `None` if it is not sound to its last byte.
pub(crate) fn inflate(input: &[u8], dictionary: &[u8]) -> Option<Inflated> {
    let mut bits = Bits { input, bit: 0 };
    let mut found = Inflated { bytes: dictionary.to_vec(), ..Inflated::default() };
    loop {
        let last = bits.take(1)? == 1;
        let kind = bits.take(2)?;
        *found.blocks.get_mut(kind)? += 1;
        match kind {
            0 => {
                bits.bit = bits.bit.next_multiple_of(8);
                let length = bits.take(16)?;
                (bits.take(16)? == !length & 0xffff).then_some(())?;
                for _ in 0..length {
                    found.bytes.push(bits.take(8)? as u8);
                }
            }
            1 => {
                let lengths: Vec<usize> = (0..288)
                    .map(|symbol| match symbol {
                        0..144 => 8,
                        144..256 => 9,
                        256..280 => 7,
                        _ => 8,
                    })
                    .collect();
                codes(&mut bits, &mut found, &Code::new(&lengths), &Code::new(&[5; 30]))?;
            }
            _ => {
                let (literals, distances) = dynamic(&mut bits)?;
                codes(&mut bits, &mut found, &literals, &distances)?;
            }
        }
        if last {
            break;
        }
    }
    (bits.bit.div_ceil(8) == input.len()).then_some(())?;
    found.bytes.drain(..dictionary.len());
    Some(found)
}

fn dynamic(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (literals, distances) = (bits.take(5)? + 257, bits.take(5)? + 1);
    let count = bits.take(4)? + 4;
    let mut lengths = [0; 19];
    for place in &ORDER[..count] {
        lengths[*place] = bits.take(3)?;
    }
    let code = Code::new(&lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (length, times) = match code.read(bits)? {
            16 => (*lengths.last()?, bits.take(2)? + 3),
            17 => (0, bits.take(3)? + 3),
            18 => (0, bits.take(7)? + 11),
            length => (length, 1),
        };
        lengths.extend(std::iter::repeat_n(length, times));
    }
    (lengths.len() == literals + distances).then_some(())?;
    Some((Code::new(&lengths[..literals]), Code::new(&lengths[literals..])))
}

fn codes(bits: &mut Bits<'_>, found: &mut Inflated, literals: &Code, distances: &Code) -> Option<()> {
    loop {
        let length = match literals.read(bits)? {
            literal @ 0..256 => {
                found.bytes.push(literal as u8);
                continue;
            }
            256 => return Some(()),
            symbol @ 257..265 => symbol - 254,
            symbol @ 265..285 => {
                let extra = (symbol - 261) / 4;
                ((4 + (symbol - 265) % 4) << extra) + 3 + bits.take(extra)?
            }
            285 => 258,
            _ => return None,
        };
        let distance = match distances.read(bits)? {
            symbol @ 0..4 => symbol + 1,
            symbol @ 4..30 => {
                let extra = (symbol - 2) / 2;
                ((2 + symbol % 2) << extra) + 1 + bits.take(extra)?
            }
            _ => return None,
        };
        found.distance_max = found.distance_max.max(distance);
        let start = found.bytes.len().checked_sub(distance)?;
        for at in start..start + length {
            found.bytes.push(found.bytes[at]);
        }
    }
}
