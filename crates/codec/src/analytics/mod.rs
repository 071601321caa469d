//! Questions to packed integers: scan, extract, select, expand.
//!
//! A [`Column`] is a run of unsigned integers of 1 to 32 bits each, packed without gaps, and perhaps compressed as raw
//! DEFLATE. An [`Operation`] reads the column once and answers with packed integers or a bit vector. It also counts on
//! the way: smallest, largest and sum; or first, last and number of ones. These are the operations of Intel's In-Memory
//! Analytics Accelerator, so that a device and a CPU answer with the same bytes.
//!
//! | operation | answer |
//! |---|---|
//! | [`Scan`](Operation::Scan) | one bit for each element: whether it lies in a range |
//! | [`Extract`](Operation::Extract) | the elements from one index to another |
//! | [`Select`](Operation::Select) | the elements whose bit is set in a mask |
//! | [`Expand`](Operation::Expand) | one element for each bit of a mask: the next of the column, or 0 |
//!
//! ```
//! use ziptier_codec::analytics::{Aggregates, Column, Cpu, Executor, Operation, Request};
//!
//! // Twelve-bit ages of trees: which are older than a century?
//! let ages = [7u16, 350, 99, 101];
//! let packed: Vec<u8> = ages.chunks(2).flat_map(|two| {
//!     let bits = u32::from(two[0]) | u32::from(two[1]) << 12;
//!     bits.to_le_bytes()[..3].to_vec()
//! }).collect();
//!
//! let column = Column::plain(&packed, 12, 4);
//! let mut bits = Vec::new();
//! let answer = Cpu::new()
//!     .run(&Request::new(column, Operation::Scan { low: 101, high: 4095, negate: false }), &mut bits)?;
//! assert_eq!(bits, [0b1010]);
//! assert_eq!(answer.aggregates, Aggregates::Bits { ones: 2, first: Some(1), last: Some(3) });
//! # Ok::<(), ziptier_codec::analytics::AnalyticsError>(())
//! ```
//!
//! # Map
//!
//! | module | what it owns |
//! |---|---|
//! | `request` | what is asked, and whether it makes sense |
//! | `answer` | what comes back |
//! | `cpu` | the executor of every machine; it takes AVX-512 where that is |
//! | `device` | the executor on work queues of the accelerator, or on its model |
//! | `executors` | executors for requests that come on any thread |
//! | `kernels`, `portable`, `avx512` | its inner loops, twice |
//! | `writer` | the form of the output |
//! | [`conformance`] | the suite that every executor passes |

mod answer;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod conformance;
mod cpu;
mod device;
mod error;
mod executors;
mod kernels;
mod portable;
mod request;
mod writer;

pub use answer::{Aggregates, Answer};
pub use cpu::Cpu;
pub use device::Accelerated;
pub use error::AnalyticsError;
pub use executors::Executors;
pub use request::{BitMask, Column, Endian, Operation, Output, OutputWidth, Request, Source};

/// The worker that runs requests: a CPU or a device.
pub trait Executor: Send {
    /// The name that tables use, such as `avx512`.
    fn name(&self) -> &str;

    /// Appends the output of a request to `output`. An error leaves `output` unchanged.
    ///
    /// An executor does not read the column of a request without output, so that damage of the column is no error then.
    ///
    /// A request may hold any bytes and any numbers. An executor allocates at most
    /// [`output_bytes_max`](Request::output_bytes_max), the bytes of the column, and a small constant.
    fn run(&mut self, request: &Request<'_>, output: &mut Vec<u8>) -> Result<Answer, AnalyticsError>;

    /// Runs independent jobs. A device works on several at a time.
    fn run_batch(&mut self, jobs: &mut [Job<'_>]) {
        for job in jobs {
            job.answer = Some(self.run(&job.request, &mut job.output));
        }
    }
}

/// A request of a batch, with its buffer.
#[derive(Debug)]
pub struct Job<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The buffer to which the executor appends the output.
    pub output: Vec<u8>,
    /// The answer, once the batch has run.
    pub answer: Option<Result<Answer, AnalyticsError>>,
}

impl<'a> Job<'a> {
    /// A job that has not run, with an empty buffer.
    pub fn new(request: Request<'a>) -> Job<'a> {
        Job { request, output: Vec::new(), answer: None }
    }
}
