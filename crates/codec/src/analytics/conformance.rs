//! The suite that every executor passes.
//!
//! [`check`] compares an executor with a reference that works bit by bit. It covers all widths and orders, counts
//! around the multiples of 8, 64 and 512, compressed and uncompressed columns, every form of output, and single
//! requests and batches. Then it sends invalid requests, shortened columns, and damaged ones.

mod reference;

use super::{
    AnalyticsError, BitMask, Column, Endian, Executor, Job, Operation, Output, OutputWidth, Request, Source,
};
use crate::conformance::{BEFORE, Failure, expect};
use reference::{Elements, deflated, packed};

/// Counts of elements: none, and around whole bytes, words and chunks.
const COUNTS: [usize; 14] = [0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513, 1000, 2049];

const ENDIANS: [Endian; 2] = [Endian::Little, Endian::Big];

const OUTPUT_WIDTHS: [OutputWidth; 4] =
    [OutputWidth::Nominal, OutputWidth::Bits8, OutputWidth::Bits16, OutputWidth::Bits32];

/// Random numbers from a seed (Knuth's linear congruential generator, the high half of it).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// A number below `limit`, which is above 0.
    fn below(&mut self, limit: usize) -> usize {
        ((u64::from(self.next()) * limit as u64) >> 32) as usize
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Bits of which about none, one in thirty, half, or all are set.
    fn bits(&mut self, count: usize) -> Vec<bool> {
        let limit = self.one_of(&[0, 1 << 27, 1 << 31, u32::MAX]);
        (0..count).map(|_| self.next() < limit).collect()
    }

    /// Elements: any, small ones, all of them 0, all of them the largest.
    fn elements(&mut self, count: usize, width: u32) -> Vec<u32> {
        let largest = u32::MAX >> (32 - width);
        let mask = self.one_of(&[largest, largest, largest & 3, 0]);
        let set = if self.below(8) == 0 { largest } else { 0 };
        (0..count).map(|_| self.next() & mask | set).collect()
    }
}

/// Puts every kind of request to an executor.
///
/// Returns the number of checks, or the first failure.
pub fn check(executor: &mut dyn Executor) -> Result<usize, Failure> {
    Ok(check_answers(executor)?
        + check_senseless(executor)?
        + check_limits(executor)?
        + check_damage(executor)?)
}

/// Sound requests, alone and as a batch.
fn check_answers(executor: &mut dyn Executor) -> Result<usize, Failure> {
    let mut random = Random(1);
    let mut asked = 0;
    for width in 1..=32 {
        let questions: Vec<Question> = COUNTS
            .iter()
            .flat_map(|&count| ENDIANS.map(|endian| (count, endian)))
            .flat_map(|(count, endian)| (0..4).map(move |operation| (count, endian, operation)))
            .map(|(count, endian, operation)| Question::new(&mut random, width, endian, count, operation))
            .collect();
        for question in &questions {
            question.check_alone(executor)?;
        }
        let mut jobs: Vec<Job<'_>> = questions.iter().map(|question| Job::new(question.request())).collect();
        jobs.iter_mut().for_each(|job| job.output.extend_from_slice(BEFORE));
        executor.run_batch(&mut jobs);
        for (question, job) in questions.iter().zip(&jobs) {
            let answer = job.answer.clone().ok_or_else(|| Failure::new("a job of a batch has no answer"))?;
            question.check_answer("in a batch", answer, &job.output)?;
        }
        asked += 2 * questions.len();
    }
    Ok(asked)
}

/// A request with its bytes, and the right answer.
struct Question {
    column: Elements,
    bytes: Vec<u8>,
    is_compressed: bool,
    mask: Vec<bool>,
    mask_bytes: Vec<u8>,
    mask_endian: Endian,
    operation: reference::Operation,
    output: Output,
}

impl Question {
    fn new(random: &mut Random, width: u32, endian: Endian, count: usize, operation: usize) -> Question {
        let largest = u32::MAX >> (32 - width);
        let mut values = random.elements(count, width);
        let mut mask = Vec::new();
        let operation = match operation {
            0 => {
                let [one, other] = [random.next() & largest, random.next() & largest];
                let low = random.one_of(&[0, one.min(other), one, largest]);
                let high = random.one_of(&[one.max(other), low, largest, u32::MAX]);
                reference::Operation::Scan { low, high, negate: random.below(2) == 1 }
            }
            1 if count != 0 => {
                let first = random.below(count);
                let between = first + random.below(count - first);
                let last = random.one_of(&[count - 1, between, first]);
                reference::Operation::Extract { first: first as u32, last: last as u32 }
            }
            2 => {
                mask = random.bits(count);
                reference::Operation::Select
            }
            _ => {
                mask = random.bits(count);
                values.truncate(mask.iter().filter(|bit| **bit).count() + random.below(9));
                reference::Operation::Expand
            }
        };
        let column = Elements { values, width, endian };
        let is_compressed = random.below(3) == 0;
        let plain = column.packed();
        let bytes = if is_compressed { deflated(&plain) } else { plain };
        let mask_endian = random.one_of(&ENDIANS);
        let mask_bits: Vec<u32> = mask.iter().map(|bit| u32::from(*bit)).collect();
        let mask_bytes = packed(&mask_bits, 1, mask_endian);
        let nominal = if matches!(operation, reference::Operation::Scan { .. }) { 1 } else { width };
        let widths: Vec<_> =
            OUTPUT_WIDTHS.into_iter().filter(|output| output.bits(nominal) >= nominal).collect();
        let output = Output { width: random.one_of(&widths), endian: random.one_of(&ENDIANS) };
        Question { column, bytes, is_compressed, mask, mask_bytes, mask_endian, operation, output }
    }

    fn request(&self) -> Request<'_> {
        let source =
            if self.is_compressed { Source::Deflate(&self.bytes) } else { Source::Plain(&self.bytes) };
        let Elements { values, width, endian } = &self.column;
        let column = Column { source, width: *width, endian: *endian, count: values.len() as u32 };
        let mask =
            BitMask { bytes: &self.mask_bytes, endian: self.mask_endian, count: self.mask.len() as u32 };
        let operation = match self.operation {
            reference::Operation::Scan { low, high, negate } => Operation::Scan { low, high, negate },
            reference::Operation::Extract { first, last } => Operation::Extract { first, last },
            reference::Operation::Select => Operation::Select(mask),
            reference::Operation::Expand => Operation::Expand(mask),
        };
        Request { column, operation, output: self.output, output_bytes_max: usize::MAX }
    }

    /// Runs the request without a limit, with a limit that just suffices, and with one that does not.
    fn check_alone(&self, executor: &mut dyn Executor) -> Result<(), Failure> {
        let mut request = self.request();
        let mut output = Vec::from(BEFORE);
        let answer = executor.run(&request, &mut output);
        self.check_answer("alone", answer.clone(), &output)?;
        if answer.is_err() {
            return Ok(());
        }

        request.output_bytes_max = output.len() - BEFORE.len();
        output.truncate(BEFORE.len());
        let again = executor.run(&request, &mut output);
        self.check_answer("with a limit that suffices", again, &output)?;

        if let Some(bytes_max) = request.output_bytes_max.checked_sub(1) {
            request.output_bytes_max = bytes_max;
            output.truncate(BEFORE.len());
            let refused =
                executor.run(&request, &mut output) == Err(AnalyticsError::OutputFull { bytes_max });
            expect(refused && output == BEFORE, || {
                format!("{self}: a limit of {bytes_max} bytes is ignored")
            })?;
        }
        Ok(())
    }

    fn check_answer(
        &self,
        how: &str,
        answer: Result<super::Answer, AnalyticsError>,
        output: &[u8],
    ) -> Result<(), Failure> {
        let (expected, bytes) = self.column.answer(self.operation, &self.mask, self.output);
        expect(answer == expected, || format!("{self}, {how}: {answer:?} instead of {expected:?}"))?;
        expect(output.strip_prefix(BEFORE) == Some(&*bytes), || format!("{self}, {how}: other output"))
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Elements { values, width, endian } = &self.column;
        let compressed = if self.is_compressed { ", compressed" } else { "" };
        write!(f, "{:?} of {} {endian:?}-endian elements of {width} bits", self.operation, values.len())?;
        write!(f, "{compressed}, mask of {} {:?}, to {:?}", self.mask.len(), self.mask_endian, self.output)
    }
}

/// Requests that contradict themselves or their bytes.
fn check_senseless(executor: &mut dyn Executor) -> Result<usize, Failure> {
    let bytes = [0xA5; 64];
    let column = Column::plain(&bytes, 8, 64);
    let all = Operation::Scan { low: 0, high: u32::MAX, negate: false };
    let mask = BitMask { bytes: &bytes, endian: Endian::Little, count: 64 };
    let with = |width, count| Column { width, count, ..column };
    let hostile = u32::MAX;
    let narrow = Output { width: OutputWidth::Bits8, endian: Endian::Little };
    let requests = [
        (Request::new(with(0, 64), all), AnalyticsError::Width { bits: 0 }),
        (Request::new(with(33, 1), all), AnalyticsError::Width { bits: 33 }),
        (Request::new(with(8, 65), all), AnalyticsError::SourceTooShort { bytes_needed: 65 }),
        (Request::new(with(9, 57), all), AnalyticsError::SourceTooShort { bytes_needed: 65 }),
        (
            Request::new(with(32, hostile), all),
            AnalyticsError::SourceTooShort { bytes_needed: 4 * u64::from(hostile) },
        ),
        (
            Request::new(Column { source: Source::Deflate(&bytes), ..with(32, hostile) }, all),
            AnalyticsError::SourceTooShort { bytes_needed: 4 * u64::from(hostile) },
        ),
        (
            Request::new(column, Operation::Extract { first: 5, last: 64 }),
            AnalyticsError::Range { first: 5, last: 64, count: 64 },
        ),
        (
            Request::new(column, Operation::Extract { first: 5, last: 4 }),
            AnalyticsError::Range { first: 5, last: 4, count: 64 },
        ),
        (
            Request::new(column, Operation::Select(BitMask { count: 63, ..mask })),
            AnalyticsError::MaskCount { bits: 63, count: 64 },
        ),
        (
            Request::new(column, Operation::Select(BitMask { bytes: &bytes[..7], ..mask })),
            AnalyticsError::MaskTooShort { bytes_needed: 8 },
        ),
        (
            Request::new(column, Operation::Expand(BitMask { count: hostile, ..mask })),
            AnalyticsError::MaskTooShort { bytes_needed: 1 << 29 },
        ),
        (
            Request::new(with(8, 31), Operation::Expand(mask)),
            AnalyticsError::TooFewElements { ones: 32, count: 31 },
        ),
        (
            Request {
                output: narrow,
                ..Request::new(with(9, 50), Operation::Extract { first: 0, last: 49 })
            },
            AnalyticsError::OutputTooNarrow { bits: 8 },
        ),
    ];
    let asked = requests.len();
    for (request, expected) in requests {
        check_refused(executor, &request, &expected)?;
    }
    Ok(asked)
}

/// Indices that do not fit their width.
fn check_limits(executor: &mut dyn Executor) -> Result<usize, Failure> {
    let bytes = [0; 70_000 / 8];
    let scan = Operation::Scan { low: 0, high: 0, negate: false };
    let mut asked = 0;
    for (width, fitting) in [(OutputWidth::Bits8, 256), (OutputWidth::Bits16, 65_536)] {
        let output = Output { width, endian: Endian::Little };
        let request = |count| Request { output, ..Request::new(Column::plain(&bytes, 1, count), scan) };
        let mut out = Vec::new();
        let answer =
            executor.run(&request(fitting), &mut out).map_err(|error| Failure::new(error.to_string()))?;
        expect(answer.count == fitting && out.len() == answer.bytes, || {
            format!("{fitting} indices: {answer:?}")
        })?;
        let bits = width.bits(1);
        check_refused(executor, &request(fitting + 1), &AnalyticsError::OutputTooNarrow { bits })?;
        asked += 2;
    }
    Ok(asked)
}

fn check_refused(
    executor: &mut dyn Executor,
    request: &Request<'_>,
    expected: &AnalyticsError,
) -> Result<(), Failure> {
    let mut output = Vec::from(BEFORE);
    let answer = executor.run(request, &mut output);
    expect(answer.as_ref() == Err(expected), || format!("{answer:?} instead of `{expected}`"))?;
    expect(output == BEFORE, || format!("`{expected}` left output behind"))
}

/// Compressed columns that are cut, too short, or flipped.
fn check_damage(executor: &mut dyn Executor) -> Result<usize, Failure> {
    let mut random = Random(2);
    let values = (0..700).map(|index| index / 9 + random.next() % 3).collect();
    let column = Elements { values, width: 11, endian: Endian::Little };
    let mut bytes = deflated(&column.packed());
    let mut output = Vec::from(BEFORE);
    for length in 0..bytes.len() {
        let answer = executor.run(&compressed_request(&bytes[..length], 700), &mut output);
        expect(is_damage(&answer) && output == BEFORE, || {
            format!("a column cut at byte {length} of {}: {answer:?}", bytes.len())
        })?;
    }
    let answer = executor.run(&compressed_request(&bytes, 710), &mut output);
    expect(is_damage(&answer) && output == BEFORE, || format!("a column that is too short: {answer:?}"))?;
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        output.truncate(BEFORE.len());
        let answer = executor.run(&compressed_request(&bytes, 700), &mut output);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A flip may well give another column.
        let sound = match &answer {
            Ok(answer) => output.len() == BEFORE.len() + 700_usize.div_ceil(8) && answer.count == 700,
            Err(_) => is_damage(&answer) && output == BEFORE,
        };
        expect(sound && output.starts_with(BEFORE), || format!("bit {bit} flipped: {answer:?}"))?;
    }
    let none = BitMask { bytes: &[0; 88], endian: Endian::Little, count: 700 };
    let column = compressed_request(&bytes[..bytes.len() / 2], 700).column;
    output.truncate(BEFORE.len());
    let answer = executor.run(&Request::new(column, Operation::Select(none)), &mut output);
    expect(matches!(answer, Ok(super::Answer { count: 0, bytes: 0, .. })) && output == BEFORE, || {
        format!("no element of a damaged column: {answer:?}")
    })?;
    Ok(9 * bytes.len() + 2)
}

fn compressed_request(bytes: &[u8], count: u32) -> Request<'_> {
    let column = Column { source: Source::Deflate(bytes), width: 11, endian: Endian::Little, count };
    Request::new(column, Operation::Scan { low: 10, high: 50, negate: false })
}

fn is_damage(answer: &Result<super::Answer, AnalyticsError>) -> bool {
    matches!(answer, Err(AnalyticsError::Damaged { .. } | AnalyticsError::SourceTooShort { .. }))
}
