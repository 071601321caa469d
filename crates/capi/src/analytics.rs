//! Packed integers: scan, extract, select and expand in batches, on the CPU or a device.
//!
//! A call reads all columns and masks of its jobs before it writes an output. Not for blocks of bytes: those are
//! [`codec`](crate::codec)'s.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use ziptier_codec::analytics::{
    Aggregates, AnalyticsError, Answer, BitMask, Column, Endian, Executors, Job, Operation, Output,
    OutputWidth, Request, Source,
};
use ziptier_codec::block::{DeviceSource, ModelOptions, Path};

use crate::arguments::{bytes, check_apart, items, object, options, result, room};
use crate::buffer::{ziptier_option, ziptier_slice};
use crate::codec::parsed;
use crate::pool::{Pool, Scratch};
use crate::status::{
    Failure, ZIPTIER_DAMAGED, ZIPTIER_INVALID_ARGUMENT, ZIPTIER_OK, ZIPTIER_TOO_SMALL, ZIPTIER_UNAVAILABLE,
    call, guarded, ziptier_status,
};

/// Operation: a bit for each element, 1 if the element is at least first and at most last.
pub const ZIPTIER_SCAN: u32 = 0;
/// Operation: the elements from index first to index last, both included.
pub const ZIPTIER_EXTRACT: u32 = 1;
/// Operation: the elements whose bit of the mask is set. The mask has a bit for each element.
pub const ZIPTIER_SELECT: u32 = 2;
/// Operation: an element for each bit of the mask, the column's next one for a set bit and 0 for any other.
pub const ZIPTIER_EXPAND: u32 = 3;

/// Flag: the column is one raw DEFLATE stream with a window of at most 4 KiB.
pub const ZIPTIER_DEFLATED: u32 = 1;
/// Flag: elements of the column fill each byte from its high bit, and are big-endian.
pub const ZIPTIER_BIG_ENDIAN: u32 = 2;
/// Flag: the same of the mask.
pub const ZIPTIER_MASK_BIG_ENDIAN: u32 = 4;
/// Flag: the same of the output.
pub const ZIPTIER_OUTPUT_BIG_ENDIAN: u32 = 8;
/// Flag of a scan: every bit is inverted.
pub const ZIPTIER_NEGATE: u32 = 16;

const FLAGS: u32 = ZIPTIER_DEFLATED
    | ZIPTIER_BIG_ENDIAN
    | ZIPTIER_MASK_BIG_ENDIAN
    | ZIPTIER_OUTPUT_BIG_ENDIAN
    | ZIPTIER_NEGATE;

/// One operation on a column of packed unsigned integers. Fields that an operation does not need are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ziptier_analytics_job {
    /// ZIPTIER_SCAN, ZIPTIER_EXTRACT, ZIPTIER_SELECT or ZIPTIER_EXPAND.
    pub operation: u32,
    /// Any of the flags, or 0: an element of the column then fills each byte from its low bit.
    pub flags: u32,
    /// The elements, packed without gaps.
    pub column: ziptier_slice,
    /// Bits of an element, 1 to 32.
    pub width: u32,
    /// Elements of the column.
    pub count: u32,
    /// Of a scan the smallest element of the range, of an extraction the index of the first element.
    pub first: u32,
    /// Of a scan the largest element of the range, of an extraction the index of the last element.
    pub last: u32,
    /// The bits of a selection or an expansion.
    pub mask: ziptier_slice,
    /// Bits of the mask.
    pub mask_count: u32,
    /// Bits of an element of the output: 8, 16 or 32, or 0 for those of the column. A scan has one bit for each element
    /// by 0, and the indices of the ones by any other width. So has any other operation on a column of one bit.
    pub output_width: u32,
    /// Memory for the output.
    pub output: *mut c_void,
    /// Bytes of that memory.
    pub output_capacity: usize,
}

/// The answer to a job.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ziptier_analytics_answer {
    /// How the job ended. All that follows is 0 unless it is ZIPTIER_OK, but for output_len of ZIPTIER_TOO_SMALL.
    pub status: ziptier_status,
    /// Bits, integers or indices of the output.
    pub count: u32,
    /// Bytes of the output. If the status is ZIPTIER_TOO_SMALL, a capacity that is enough.
    pub output_len: usize,
    /// The smallest integer of the output, or the index of the first one of its bits; 0 if there is none.
    pub min: u32,
    /// The largest integer of the output, or the index of the last one of its bits; 0 if there is none.
    pub max: u32,
    /// The sum of the integers of the output modulo 2^32, or the number of ones of its bits.
    pub sum: u32,
}

/// Answers questions to packed integers. One serves all threads.
pub struct ziptier_analytics {
    executors: Executors,
    outputs: Pool<Outputs>,
    worker: CString,
}

/// The outputs of a call before they are copied into the caller's memory.
#[derive(Default)]
struct Outputs(Vec<Vec<u8>>);

impl Scratch for Outputs {
    fn memory_bytes(&self) -> usize {
        self.0.iter().map(|output| size_of_val(output) + output.capacity()).sum()
    }
}

impl ziptier_analytics {
    fn open(options: &[(&str, &str)]) -> Result<ziptier_analytics, Failure> {
        let (mut path, mut source) = (Path::Auto, DeviceSource::Discovered);
        for option in options {
            match option.0 {
                "path" => path = parsed(*option)?,
                "model" => source = DeviceSource::Modelled(parsed::<ModelOptions>(*option)?),
                name => {
                    return Err(Failure::option(format_args!(
                        "analytics have no option {name:?}: choose among path, model"
                    )));
                }
            }
        }
        let executors = Executors::open(path, &source)?;
        let worker = CString::new(executors.worker()).unwrap_or_default();
        Ok(ziptier_analytics { executors, outputs: Pool::default(), worker })
    }

    /// Runs jobs. The answers begin as refused, and stay so if a job is no request at all.
    fn run(
        &self,
        jobs: &[ziptier_analytics_job],
        answers: &mut [MaybeUninit<ziptier_analytics_answer>],
    ) -> Result<ziptier_status, Failure> {
        for answer in answers.iter_mut() {
            answer.write(ziptier_analytics_answer::without_output(ZIPTIER_INVALID_ARGUMENT, 0));
        }
        self.outputs.with(|Outputs(outputs)| {
            outputs.resize_with(outputs.len().max(jobs.len()), Vec::new);
            // SAFETY: the promise of the caller of `ziptier_analytics_run`.
            let requests = jobs.iter().map(|job| unsafe { job.request() });
            let mut asked = Vec::with_capacity(jobs.len());
            for (at, (request, output)) in requests.zip(outputs.iter_mut()).enumerate() {
                output.clear();
                let request = request.map_err(|failure| failure.of_job(at))?;
                asked.push(Job { request, output: std::mem::take(output), answer: None });
            }
            self.executors.run_batch(&mut asked);
            let mut first_failure = Ok(ZIPTIER_OK);
            for (at, ((job, asked), answer)) in jobs.iter().zip(asked).zip(answers).enumerate() {
                let ended = ended(&asked);
                outputs[at] = asked.output;
                answer.write(match ended {
                    Ok(ended) => {
                        let output = &outputs[at][..ended.bytes];
                        assert!(output.len() <= job.output_capacity, "an executor keeps to the capacity");
                        // SAFETY: the output is within the capacity, and the caller promises that memory.
                        unsafe { ptr::copy_nonoverlapping(output.as_ptr(), job.output.cast(), output.len()) };
                        ended.into()
                    }
                    Err((failure, needed)) => {
                        let status = failure.status();
                        first_failure = first_failure.and_then(|_| Err(failure.of_job(at)));
                        ziptier_analytics_answer::without_output(status, needed)
                    }
                });
            }
            first_failure
        })
    }
}

impl ziptier_analytics_job {
    /// The request of a job.
    ///
    /// # Safety
    ///
    /// Column and mask may be read while the request lives.
    unsafe fn request<'a>(&self) -> Result<Request<'a>, Failure> {
        if self.flags & !FLAGS != 0 {
            let flags = self.flags;
            return Err(Failure::argument(format_args!(
                "flags are {flags:#x}; pass a sum of those in the header"
            )));
        }
        let endian = |flag| if self.flags & flag == 0 { Endian::Little } else { Endian::Big };
        // SAFETY: the caller's promise.
        let (column, mask) = unsafe {
            (
                bytes("column", self.column.data, self.column.len)?,
                bytes("mask", self.mask.data, self.mask.len)?,
            )
        };
        // SAFETY: the slice is looked at for its address only, and dropped before column and mask.
        let output = unsafe { room::<u8>("output", self.output.cast(), self.output_capacity)? };
        check_apart(column, output)?;
        check_apart(mask, output)?;
        let bits = BitMask { bytes: mask, endian: endian(ZIPTIER_MASK_BIG_ENDIAN), count: self.mask_count };
        let operation = match self.operation {
            ZIPTIER_SCAN => {
                Operation::Scan { low: self.first, high: self.last, negate: self.flags & ZIPTIER_NEGATE != 0 }
            }
            ZIPTIER_EXTRACT => Operation::Extract { first: self.first, last: self.last },
            ZIPTIER_SELECT => Operation::Select(bits),
            ZIPTIER_EXPAND => Operation::Expand(bits),
            other => {
                return Err(Failure::argument(format_args!(
                    "operation is {other}; pass one of those in the header"
                )));
            }
        };
        let width = match self.output_width {
            0 => OutputWidth::Nominal,
            8 => OutputWidth::Bits8,
            16 => OutputWidth::Bits16,
            32 => OutputWidth::Bits32,
            other => {
                return Err(Failure::argument(format_args!("output_width is {other}; pass 0, 8, 16 or 32")));
            }
        };
        let source =
            if self.flags & ZIPTIER_DEFLATED == 0 { Source::Plain(column) } else { Source::Deflate(column) };
        let endian_of_column = endian(ZIPTIER_BIG_ENDIAN);
        Ok(Request {
            column: Column { source, width: self.width, endian: endian_of_column, count: self.count },
            operation,
            output: Output { width, endian: endian(ZIPTIER_OUTPUT_BIG_ENDIAN) },
            output_bytes_max: self.output_capacity,
        })
    }
}

impl ziptier_analytics_answer {
    fn without_output(status: ziptier_status, output_len: usize) -> ziptier_analytics_answer {
        ziptier_analytics_answer { status, count: 0, output_len, min: 0, max: 0, sum: 0 }
    }
}

impl From<Answer> for ziptier_analytics_answer {
    fn from(answer: Answer) -> ziptier_analytics_answer {
        let (min, max, sum) = match answer.aggregates {
            Aggregates::Bits { ones, first, last } => (first.unwrap_or(0), last.unwrap_or(0), ones),
            Aggregates::Integers { min, max, sum } => (min, max, sum),
        };
        let Answer { count, bytes, .. } = answer;
        ziptier_analytics_answer { status: ZIPTIER_OK, count, output_len: bytes, min, max, sum }
    }
}

/// The answer of a job that has run, or the failure and the capacity that the output needs.
fn ended(job: &Job<'_>) -> Result<Answer, (Failure, usize)> {
    let error = match &job.answer {
        Some(Ok(answer)) => return Ok(*answer),
        Some(Err(error)) => error,
        None => {
            return Err((Failure::new(ZIPTIER_UNAVAILABLE, "no executor took it; please report this"), 0));
        }
    };
    let (status, needed) = match error {
        AnalyticsError::OutputFull { .. } => {
            let bound = job.request.output_bytes_bound().unwrap_or(0);
            (ZIPTIER_TOO_SMALL, usize::try_from(bound).unwrap_or(usize::MAX))
        }
        AnalyticsError::Executor { .. } => (ZIPTIER_UNAVAILABLE, 0),
        AnalyticsError::Damaged { .. } => (ZIPTIER_DAMAGED, 0),
        AnalyticsError::SourceTooShort { .. } if matches!(job.request.column.source, Source::Deflate(_)) => {
            (ZIPTIER_DAMAGED, 0)
        }
        _ => (ZIPTIER_INVALID_ARGUMENT, 0),
    };
    Err((Failure::new(status, error), needed))
}

/// Opens analytics on packed integers. The options are path (auto, hardware, software) and model, as of a codec. By
/// default a device does the work if the machine has one. On path auto the CPU does the jobs that a device cannot do.
///
/// Ownership: the caller closes the analytics with ziptier_analytics_close.
/// Threads: any.
/// Errors: INVALID_OPTION, INVALID_ARGUMENT; UNAVAILABLE on path hardware without a device. *analytics is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_analytics_open(
    options: *const ziptier_option,
    options_len: usize,
    analytics: *mut *mut ziptier_analytics,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (opened, options) = unsafe {
            let opened = result("analytics", analytics, ptr::null_mut())?;
            (opened, self::options(options, options_len)?)
        };
        *opened = Box::into_raw(Box::new(ziptier_analytics::open(&options)?));
        Ok(ZIPTIER_OK)
    })
}

/// Closes analytics.
///
/// Ownership: the analytics are gone after the call. Null is allowed.
/// Threads: no other call may use the analytics any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_analytics_close(analytics: *mut ziptier_analytics) {
    let _ = guarded(|| {
        if !analytics.is_null() {
            // SAFETY: `ziptier_analytics_open` made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(analytics) });
        }
        Ok(())
    });
}

/// Who does the work: "cpu", "hardware", or "modelled" for a model of a device in software.
///
/// Ownership: the string lasts as long as the analytics.
/// Threads: any.
/// Errors: null if the analytics are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_analytics_worker(analytics: *const ziptier_analytics) -> *const c_char {
    // SAFETY: the caller's promise.
    let worker = guarded(|| Ok(unsafe { object("analytics", analytics)? }.worker.as_ptr()));
    worker.unwrap_or(ptr::null())
}

/// Jobs that a device should have done until now, and the CPU did.
///
/// Ownership: nothing changes hands.
/// Threads: any.
/// Errors: 0 if the analytics are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_analytics_fallbacks(analytics: *const ziptier_analytics) -> u64 {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { object("analytics", analytics)? }.executors.fallbacks())).unwrap_or(0)
}

/// Runs jobs that do not depend on each other; a device works on several at a time. Each job writes its output into its
/// own memory, and its answer into answers. The other jobs run if one of them fails.
///
/// Returns OK if all jobs succeed, and else the status of the first job that does not. ziptier_last_error then names
/// that job by its index. If a pointer, a flag, an operation or an output_width is wrong, or if an output overlaps its
/// own column or mask, no job runs and all answers have INVALID_ARGUMENT.
///
/// Ownership: all memory stays the caller's, and none is used after the call; answers has room for jobs_len answers. An
/// output must not overlap a column, a mask or another output.
/// Threads: any number at once.
/// Errors: TOO_SMALL, where output_len of the answer is a capacity that is enough; DAMAGED for a column that is no
/// DEFLATE or too short, unless the job has no output; UNAVAILABLE if a device fails on path hardware;
/// INVALID_ARGUMENT, also for integers or indices that do not fit output_width. The output of a job that fails is
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_analytics_run(
    analytics: *const ziptier_analytics,
    jobs: *const ziptier_analytics_job,
    jobs_len: usize,
    answers: *mut ziptier_analytics_answer,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (analytics, jobs, answers) = unsafe {
            let answers = room("answers", answers, jobs_len)?;
            (object("analytics", analytics)?, items("jobs", jobs, jobs_len)?, answers)
        };
        analytics.run(jobs, answers)
    })
}
