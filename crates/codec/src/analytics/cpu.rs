//! The executor of every machine.

use super::kernels::{Bits, CHUNK, Kernels, Packing};
use super::request::Plan;
use super::writer::{Writer, clear_behind};
use super::{AnalyticsError, Answer, BitMask, Column, Endian, Executor, Operation, Request, Source};
use crate::scratch::trim;
use std::sync::LazyLock;
use ziptier_deflate::{Decoder, Dictionary, Huffman};

/// Mask bits per step, so few that their elements fit into a chunk wherever they begin.
const EXPANDED: usize = CHUNK - 64;

static NO_HISTORY: LazyLock<Dictionary> = LazyLock::new(|| Dictionary::new(b""));

/// Works on a column in chunks that stay in the first-level cache.
pub struct Cpu {
    kernels: Kernels,
    decoder: Option<Decoder<'static>>,
    /// A column that was decompressed.
    raw: Vec<u8>,
}

impl Cpu {
    /// An executor with the fastest instruction set of this machine.
    pub fn new() -> Cpu {
        Cpu::with(Kernels::fastest())
    }

    /// An executor for any machine.
    pub fn portable() -> Cpu {
        Cpu::with(Kernels::Portable)
    }

    /// An executor with AVX-512 and byte permutation (Intel since Ice Lake, AMD since Zen 4), if this machine has them.
    pub fn avx512() -> Option<Cpu> {
        Kernels::avx512().map(Cpu::with)
    }

    fn with(kernels: Kernels) -> Cpu {
        Cpu { kernels, decoder: None, raw: Vec::new() }
    }

    /// The bytes of a column's elements, no more and no fewer.
    fn bytes<'a>(&'a mut self, column: &Column<'a>) -> Result<&'a [u8], AnalyticsError> {
        let bytes_needed = column.raw_bytes();
        let packed = match column.source {
            _ if bytes_needed == 0 => return Ok(&[]),
            Source::Plain(bytes) => return Ok(&bytes[..bytes_needed as usize]),
            Source::Deflate(packed) => packed,
        };
        self.raw.clear();
        let decoder = self.decoder.get_or_insert_with(|| Decoder::new(&NO_HISTORY));
        decoder.decompress(Huffman::Dynamic, packed, &mut self.raw, bytes_needed as usize).map_err(
            |error| AnalyticsError::Damaged { position: error.position, what: error.fault.what().to_owned() },
        )?;
        if (self.raw.len() as u64) < bytes_needed {
            return Err(AnalyticsError::SourceTooShort { bytes_needed });
        }
        Ok(&self.raw)
    }

    fn answer(
        &mut self,
        request: &Request<'_>,
        plan: Plan,
        output: &mut Vec<u8>,
    ) -> Result<Answer, AnalyticsError> {
        let kernels = self.kernels;
        let Request { column, operation, .. } = *request;
        let packing = Packing { width: column.width, endian: column.endian };
        let reader = Reader { kernels, packing, bytes: self.bytes(&column)?, count: column.count as usize };
        let mut writer = Writer::new(kernels, request, plan, output);
        match operation {
            Operation::Scan { low, high, negate } => reader.scan(low, high, negate, &mut writer)?,
            Operation::Extract { first, last } => {
                reader.extract(first as usize, last as usize, &mut writer)?
            }
            Operation::Select(mask) => reader.select(&mask, &mut writer)?,
            Operation::Expand(mask) => reader.expand(&mask, &mut writer)?,
        }
        writer.finish()
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

impl Executor for Cpu {
    fn name(&self) -> &str {
        self.kernels.name()
    }

    fn run(&mut self, request: &Request<'_>, output: &mut Vec<u8>) -> Result<Answer, AnalyticsError> {
        let plan = request.plan()?;
        if let Some(answer) = plan.answer_without_output() {
            return Ok(answer);
        }
        let before = output.len();
        let answer = self.answer(request, plan, output);
        trim(&mut self.raw);
        if answer.is_err() {
            output.truncate(before);
        }
        answer
    }
}

/// A column at hand.
struct Reader<'a> {
    kernels: Kernels,
    packing: Packing,
    bytes: &'a [u8],
    count: usize,
}

impl Reader<'_> {
    /// The bytes of `count` elements from `first`, a multiple of eight.
    fn slice(&self, first: usize, count: usize) -> &[u8] {
        &self.bytes[self.packing.bytes(first)..self.packing.bytes(first + count)]
    }

    /// At most a chunk of elements from any index. If the index is no multiple of eight, up to seven fewer.
    fn values<'v>(&self, first: usize, count: usize, values: &'v mut [u32; CHUNK]) -> &'v [u32] {
        let skipped = first % 8;
        self.kernels.unpack(self.slice(first - skipped, skipped + count), self.packing, values);
        &values[skipped..skipped + count]
    }

    fn scan(&self, low: u32, high: u32, negate: bool, writer: &mut Writer<'_>) -> Result<(), AnalyticsError> {
        for first in (0..self.count).step_by(CHUNK) {
            let count = CHUNK.min(self.count - first);
            let mut bits = if low <= high {
                self.kernels.scan(self.slice(first, count), self.packing, low, high)
            } else {
                Bits::default()
            };
            if negate {
                bits = bits.map(|word| !word);
            }
            writer.push_bits(bits, count)?;
        }
        Ok(())
    }

    fn extract(&self, mut first: usize, last: usize, writer: &mut Writer<'_>) -> Result<(), AnalyticsError> {
        let mut values = [0; CHUNK];
        while first <= last {
            let count = (CHUNK - first % 8).min(last - first + 1);
            writer.push(self.values(first, count, &mut values))?;
            first += count;
        }
        Ok(())
    }

    fn select(&self, mask: &BitMask<'_>, writer: &mut Writer<'_>) -> Result<(), AnalyticsError> {
        let (mut values, mut selected) = ([0; CHUNK], [0; CHUNK]);
        for first in (0..self.count).step_by(CHUNK) {
            let count = CHUNK.min(self.count - first);
            let bits = chunk_of(mask, first, count);
            if bits == Bits::default() {
                continue;
            }
            self.kernels.unpack(self.slice(first, count), self.packing, &mut values);
            let found = self.kernels.select(&values, &bits, &mut selected);
            writer.push(&selected[..found])?;
        }
        Ok(())
    }

    fn expand(&self, mask: &BitMask<'_>, writer: &mut Writer<'_>) -> Result<(), AnalyticsError> {
        let (mut values, mut expanded) = ([0; CHUNK], [0; CHUNK]);
        let mut next = 0;
        for first in (0..mask.count as usize).step_by(EXPANDED) {
            let count = EXPANDED.min(mask.count as usize - first);
            let bits = chunk_of(mask, first, count);
            let ones = bits.iter().map(|word| word.count_ones() as usize).sum();
            if ones > self.count - next {
                // Another thread has set bits of the mask since they were counted.
                return Err(AnalyticsError::TooFewElements { ones: mask.ones(), count: self.count as u32 });
            }
            self.kernels.expand(self.values(next, ones, &mut values), &bits, &mut expanded);
            writer.push(&expanded[..count])?;
            next += ones;
        }
        Ok(())
    }
}

/// The bits of a mask from `first`, a multiple of eight, with zeros behind them.
fn chunk_of(mask: &BitMask<'_>, first: usize, count: usize) -> Bits {
    let mut bytes = [0; CHUNK / 8];
    let part = &mask.bytes[first / 8..(first + count).div_ceil(8)];
    bytes[..part.len()].copy_from_slice(part);
    if mask.endian == Endian::Big {
        bytes = bytes.map(u8::reverse_bits);
    }
    let mut bits = Bits::default();
    for (word, bytes) in bits.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    clear_behind(&mut bits, count);
    bits
}

// Long blocks: Miri would only be slow.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use ziptier_deflate::{Encoder, Level};

    /// What another thread changes in a mask between the count of its ones and the work.
    #[test]
    fn a_mask_that_changes_meanwhile_gives_no_more_than_was_allowed() {
        let (column, few, all) = (vec![7; 1000], vec![1; 125], vec![0xFF; 125]);
        let mask = |bytes, count| BitMask { bytes, endian: Endian::Little, count };
        let request = |operation, output_bytes_max, count| {
            let column = Column::plain(&column, 8, count);
            Request { output_bytes_max, ..Request::new(column, operation) }
        };
        let select = |bytes| request(Operation::Select(mask(bytes, 1000)), 125, 1000);
        let expand = |bytes| request(Operation::Expand(mask(bytes, 1000)), 1000, 125);
        let bits = Column::plain(&column, 1, 1000);
        let few_bits = |bytes| Request { column: bits, output_bytes_max: 16, ..select(bytes) };
        let full = |bytes_max| AnalyticsError::OutputFull { bytes_max };
        let too_few = AnalyticsError::TooFewElements { ones: 1000, count: 125 };
        for (counted, worked, error) in [
            (select(&few), select(&all), full(125)),
            (few_bits(&few), few_bits(&all), full(16)),
            (expand(&few), expand(&all), too_few),
        ] {
            let (mut cpu, plan, mut output) = (Cpu::new(), counted.plan().unwrap(), Vec::new());
            assert_eq!(cpu.answer(&worked, plan, &mut output), Err(error));
            assert!(output.len() <= worked.output_bytes_max, "{}", output.len());
            assert!(cpu.answer(&counted, plan, &mut Vec::new()).is_ok());
        }
    }

    #[test]
    fn a_long_column_leaves_no_scratch() {
        let (bytes, mut packed) = (vec![7; 8 << 20], Vec::new());
        let mut encoder = Encoder::new(&NO_HISTORY, Level::Fast);
        encoder.compress(Huffman::Dynamic, &bytes, &mut packed, bytes.len()).unwrap();
        let source = Source::Deflate(&packed);
        let column = Column { source, width: 8, endian: Endian::Little, count: bytes.len() as u32 };
        let scan = Request::new(column, Operation::Scan { low: 7, high: 7, negate: false });
        let (mut cpu, mut output) = (Cpu::portable(), Vec::new());
        cpu.run(&scan, &mut output).unwrap();
        assert_eq!((output, cpu.raw.capacity()), (vec![0xff; 1 << 20], 0));
    }
}
