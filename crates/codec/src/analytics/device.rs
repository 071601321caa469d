//! The executor on work queues of the accelerator, or on its model.

use super::request::Plan;
use super::{
    Aggregates, AnalyticsError, Answer, BitMask, Endian, Executor, Job, Operation, OutputWidth, Request,
    Source,
};
use std::sync::Arc;
use ziptier_accel::{
    Device, Elements, ErrorCode, Filter, FilterKind, Finished, JobError, Limits, Outcome, Parser, Session,
};

/// Hands requests to a device, as many at a time as its [limits](Limits) allow. A request that the device cannot run is
/// an error. The caller decides whether a [`Cpu`](super::Cpu) runs it instead.
pub struct Accelerated {
    session: Session,
    name: String,
    output_bytes_max: usize,
}

/// The result of submitting a request.
enum Handed {
    /// The device has it.
    UnderWay,
    /// The request needs no device.
    Answered(Answer),
    /// The device takes no more before some are reaped.
    NoRoom,
}

impl Accelerated {
    /// An executor on these queues. A request with more bytes than the limits allow is refused.
    ///
    /// # Panics
    ///
    /// If there is no queue, or a limit is 0.
    pub fn new(queues: Vec<Arc<dyn Device>>, limits: Limits) -> Accelerated {
        let name = queues.first().map(|queue| queue.name().to_owned()).unwrap_or_default();
        Accelerated { session: Session::new(queues, limits), name, output_bytes_max: limits.output_bytes_max }
    }

    fn error(&self, reason: impl Into<String>) -> AnalyticsError {
        AnalyticsError::Executor { name: self.name.clone(), reason: reason.into() }
    }

    fn hand_in(&mut self, tag: usize, request: &Request<'_>, plan: Plan) -> Result<Handed, AnalyticsError> {
        if let Some(answer) = plan.answer_without_output() {
            return Ok(Handed::Answered(answer));
        }
        let raw_bytes = request.column.raw_bytes() as usize;
        let source = match request.column.source {
            // A device reads at least one byte, even for no elements.
            _ if raw_bytes == 0 => &[0],
            Source::Plain(bytes) => &bytes[..raw_bytes],
            Source::Deflate(packed) => packed,
        };
        let mask: &[u8] = match request.operation {
            Operation::Scan { .. } | Operation::Extract { .. } => &[],
            Operation::Select(mask) | Operation::Expand(mask) => {
                &mask.bytes[..mask.count.div_ceil(8) as usize]
            }
        };
        let operation = ziptier_accel::Operation::Filter(filter(request, raw_bytes != 0));
        let room = room(request, plan, self.output_bytes_max);
        match self.session.submit_with_mask(&operation, tag as u64, source, mask, room) {
            Ok(()) => Ok(Handed::UnderWay),
            Err(JobError::AllTaken | JobError::QueueFull) if self.session.under_way() > 0 => {
                Ok(Handed::NoRoom)
            }
            Err(error) => Err(self.error(error.to_string())),
        }
    }
}

impl Executor for Accelerated {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&mut self, request: &Request<'_>, output: &mut Vec<u8>) -> Result<Answer, AnalyticsError> {
        let mut job = Job::new(*request);
        std::mem::swap(&mut job.output, output);
        self.run_batch(std::slice::from_mut(&mut job));
        *output = job.output;
        job.answer.unwrap_or_else(|| Err(self.error("the job has no answer")))
    }

    fn run_batch(&mut self, jobs: &mut [Job<'_>]) {
        let mut next = 0;
        while next < jobs.len() {
            let job = &jobs[next];
            let handed = job.request.plan().and_then(|plan| self.hand_in(next, &job.request, plan));
            match handed {
                Ok(Handed::UnderWay) => {}
                Ok(Handed::Answered(answer)) => jobs[next].answer = Some(Ok(answer)),
                Err(error) => jobs[next].answer = Some(Err(error)),
                Ok(Handed::NoRoom) => {
                    let (name, room) = (&self.name, self.output_bytes_max);
                    self.session.reap_some(|tag, result| finish(name, room, &mut jobs[tag as usize], result));
                    continue;
                }
            }
            next += 1;
        }
        let (name, room) = (&self.name, self.output_bytes_max);
        self.session.reap_all(|tag, result| finish(name, room, &mut jobs[tag as usize], result));
    }
}

/// The filter operation for the device.
fn filter(request: &Request<'_>, has_elements: bool) -> Filter {
    let Request { column, operation, output, .. } = *request;
    let is_big = |mask: BitMask<'_>| mask.endian == Endian::Big;
    let (kind, count, mask_big_endian) = match operation {
        Operation::Scan { low, high, negate } => {
            (FilterKind::Scan { low, high, invert: negate }, column.count, false)
        }
        Operation::Extract { first, last } => (FilterKind::Extract { first, last }, column.count, false),
        Operation::Select(mask) => (FilterKind::Select, column.count, is_big(mask)),
        Operation::Expand(mask) => (FilterKind::Expand, mask.count, is_big(mask)),
    };
    let parser = match column.endian {
        Endian::Little => Parser::LittleEndian,
        Endian::Big => Parser::BigEndian,
    };
    Filter {
        kind,
        elements: Elements { parser, bits: column.width as u8, count },
        compressed: has_elements && matches!(column.source, Source::Deflate(_)),
        mask_big_endian,
        output: match output.width {
            OutputWidth::Nominal => ziptier_accel::OutputWidth::Nominal,
            OutputWidth::Bits8 => ziptier_accel::OutputWidth::Bits8,
            OutputWidth::Bits16 => ziptier_accel::OutputWidth::Bits16,
            OutputWidth::Bits32 => ziptier_accel::OutputWidth::Bits32,
        },
        output_big_endian: output.endian == Endian::Big,
        force_array: false,
    }
}

/// Bytes of output that the device may write: the exact length, or for indices the most that are possible and that the
/// caller allows.
fn room(request: &Request<'_>, plan: Plan, output_bytes_max: usize) -> usize {
    if plan.is_indices() {
        let wanted = usize::try_from(plan.bytes).unwrap_or(usize::MAX).min(request.output_bytes_max);
        return wanted.clamp(1, output_bytes_max);
    }
    plan.bytes as usize
}

/// Takes the device's result. The device could write `room` bytes at most.
fn finish(name: &str, room: usize, job: &mut Job<'_>, result: Result<Finished<'_>, JobError>) {
    let answer = job.request.plan().and_then(|plan| match result {
        Ok(finished) => {
            let answer = answer(name, plan, &finished.outcome)?;
            if answer.bytes > job.request.output_bytes_max {
                return Err(AnalyticsError::OutputFull { bytes_max: job.request.output_bytes_max });
            }
            job.output.extend_from_slice(finished.output);
            Ok(answer)
        }
        Err(error) => Err(failure(name, room, &job.request, plan, error)),
    });
    job.answer = Some(answer);
}

fn answer(name: &str, plan: Plan, outcome: &Outcome) -> Result<Answer, AnalyticsError> {
    let bytes = outcome.output_bytes() as usize;
    let sum = outcome.sum();
    let count = if plan.is_indices() { sum } else { plan.elements };
    let expected = (u64::from(count) * u64::from(plan.width)).div_ceil(8);
    if bytes as u64 != expected {
        let reason = format!("the device wrote {bytes} bytes for {count} elements of {} bits", plan.width);
        return Err(AnalyticsError::Executor { name: name.to_owned(), reason });
    }
    let (low, high) = (outcome.minimum(), outcome.maximum());
    let aggregates = if plan.is_bits() {
        let [first, last] = [low, high].map(|index| (sum != 0).then_some(index));
        Aggregates::Bits { ones: sum, first, last }
    } else {
        Aggregates::Integers { min: low, max: high, sum }
    };
    Ok(Answer { count, bytes, aggregates })
}

fn failure(name: &str, room: usize, request: &Request<'_>, plan: Plan, error: JobError) -> AnalyticsError {
    let bytes_needed = request.column.raw_bytes();
    let bytes_max = request.output_bytes_max;
    match error {
        JobError::TooNarrow => AnalyticsError::OutputTooNarrow { bits: plan.width },
        // Indices that do not fit the device's room may fit the caller's.
        JobError::DoesNotFit if (bytes_max as u64) < plan.bytes && bytes_max <= room => {
            AnalyticsError::OutputFull { bytes_max }
        }
        JobError::Damaged(ErrorCode::Source1TooShort | ErrorCode::TooFewElements) => {
            AnalyticsError::SourceTooShort { bytes_needed }
        }
        JobError::Damaged(code) => AnalyticsError::Damaged { position: 0, what: code.to_string() },
        other => AnalyticsError::Executor { name: name.to_owned(), reason: other.to_string() },
    }
}
