//! Batches of jobs on packed integers.
//!
//! Columns, masks and outputs come as an array of objects, and the numbers of all jobs as one array: a call costs the
//! same few transitions into the JVM whatever a job says of itself.

use jni_sys::{jclass, jint, jintArray, jlong, jlongArray, jobjectArray};
use std::cell::RefCell;
use std::ptr;
use ziptier_capi::analytics::{
    ziptier_analytics, ziptier_analytics_answer, ziptier_analytics_job, ziptier_analytics_run,
};
use ziptier_capi::buffer::ziptier_slice;
use ziptier_capi::status::ziptier_status::{ZIPTIER_OK, ZIPTIER_PANIC};

use crate::blocks::trim;
use crate::{Env, call, env};

/// Numbers of a job in the order in which the class `Analytics` writes them: 8 of the job; a bit for each object that
/// is an array; start and length of column, mask and output.
const NUMBERS: usize = 15;

/// The objects of a job: column, mask, output.
const OBJECTS: usize = 3;
const OUTPUT: usize = 2;

const NO_ANSWER: ziptier_analytics_answer =
    ziptier_analytics_answer { status: ZIPTIER_PANIC, count: 0, output_len: 0, min: 0, max: 0, sum: 0 };

thread_local! {
    /// The copies of arrays. Only the vector's memory is used for bytes, never its length.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The numbers of a job.
#[derive(Clone, Copy)]
struct Row<'a>(&'a [jint; NUMBERS]);

impl Row<'_> {
    fn is_array(self, object: usize) -> bool {
        self.0[8] >> object & 1 == 1
    }

    fn start(self, object: usize) -> usize {
        self.0[9 + 2 * object] as usize
    }

    fn length(self, object: usize) -> usize {
        self.0[10 + 2 * object] as usize
    }

    fn scratch_bytes(self) -> usize {
        (0..OBJECTS).filter(|object| self.is_array(*object)).map(|object| self.length(object)).sum()
    }

    fn job(self, memory: [*mut u8; OBJECTS]) -> ziptier_analytics_job {
        let slice = |object: usize| ziptier_slice { data: memory[object].cast(), len: self.length(object) };
        let [operation, flags, width, count, first, last, mask_count, output_width, ..] =
            self.0.map(|number| number as u32);
        ziptier_analytics_job {
            operation,
            flags,
            column: slice(0),
            width,
            count,
            first,
            last,
            mask: slice(1),
            mask_count,
            output_width,
            output: memory[OUTPUT].cast(),
            output_capacity: self.length(OUTPUT),
        }
    }
}

/// Runs jobs. The result is the status of the first job that does not succeed; `answers` gets six numbers of each.
///
/// # Safety
///
/// Java calls it with open analytics, three objects and fifteen numbers for each job, parts that lie within their
/// buffers or arrays, and room for six answers of each job.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_analyticsRun(
    env: Env,
    _: jclass,
    analytics: jlong,
    objects: jobjectArray,
    numbers: jintArray,
    answers: jlongArray,
) -> jlong {
    call(|| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut ints = Vec::new();
            // SAFETY: the caller's promise.
            unsafe { env::read_ints(env, numbers, &mut ints) };
            let rows = ints.as_chunks::<NUMBERS>().0;
            scratch.reserve(rows.iter().map(|row| Row(row).scratch_bytes()).sum());
            let mut free = scratch.as_mut_ptr();
            let mut memory_of = |at: usize, row: Row<'_>, object: usize| -> *mut u8 {
                let (start, length) = (row.start(object), row.length(object));
                if !row.is_array(object) && length == 0 {
                    return ptr::null_mut();
                }
                // SAFETY: the parts lie within their objects, and the scratch has room for all arrays of all jobs.
                unsafe {
                    env::with_element(env, objects, at * OBJECTS + object, |element| {
                        if !row.is_array(object) {
                            return env::address(env, element).wrapping_add(start);
                        }
                        let place = free;
                        free = free.add(length);
                        if object != OUTPUT {
                            env::read(env, element, start, length, place);
                        }
                        place
                    })
                }
            };
            let jobs: Vec<ziptier_analytics_job> = rows
                .iter()
                .enumerate()
                .map(|(at, row)| Row(row).job([0, 1, 2].map(|object| memory_of(at, Row(row), object))))
                .collect();
            let (analytics, mut ended) = (analytics as *const ziptier_analytics, vec![NO_ANSWER; jobs.len()]);
            // SAFETY: memory of all jobs is there, and room for their answers.
            let status =
                unsafe { ziptier_analytics_run(analytics, jobs.as_ptr(), jobs.len(), ended.as_mut_ptr()) };
            for (at, ((row, job), answer)) in rows.iter().zip(&jobs).zip(&ended).enumerate() {
                let row = Row(row);
                if status == ZIPTIER_OK && row.is_array(OUTPUT) {
                    // SAFETY: the output has as many bytes, and its part of the array has room for them.
                    unsafe {
                        env::with_element(env, objects, at * OBJECTS + OUTPUT, |array| {
                            let written = job.output.cast();
                            env::write(env, array, row.start(OUTPUT), answer.output_len, written);
                        });
                    }
                }
            }
            let longs: Vec<jlong> = ended.iter().flat_map(numbers_of).collect();
            // SAFETY: Java has room for the answers of all jobs.
            unsafe { env::write_longs(env, answers, &longs) };
            trim(scratch);
            status as jlong
        })
    })
}

fn numbers_of(answer: &ziptier_analytics_answer) -> [jlong; 6] {
    let ziptier_analytics_answer { status, count, output_len, min, max, sum } = *answer;
    [status as jlong, count.into(), output_len as jlong, min.into(), max.into(), sum.into()]
}
