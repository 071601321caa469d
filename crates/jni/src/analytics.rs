//! Batches of jobs on packed integers.
//!
//! Columns, masks and outputs come as an array of objects, and the numbers of all jobs as one array: a call costs the
//! same few transitions into the JVM whatever a job says of itself. Jobs that read the same part of an array share its
//! copy.

use jni_sys::{jclass, jint, jintArray, jlong, jlongArray, jobjectArray};
use std::cell::RefCell;
use std::collections::HashMap;
use ziptier_capi::analytics::{
    ziptier_analytics, ziptier_analytics_answer, ziptier_analytics_job, ziptier_analytics_run,
};
use ziptier_capi::buffer::ziptier_slice;
use ziptier_capi::status::ziptier_status::{ZIPTIER_OK, ZIPTIER_PANIC};

use crate::blocks::trim;
use crate::{Env, call, env};

/// Numbers of a job in the order in which the class `Native` writes them: 8 of the job; a bit for each object that is
/// an array; then of column, mask and output the number among all objects, the start and the length.
const NUMBERS: usize = 18;

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

    /// Which object it is, and the start and the length of the part.
    fn part(self, object: usize) -> [usize; 3] {
        [9, 10, 11].map(|at| self.0[at + 3 * object] as usize)
    }

    fn length(self, object: usize) -> usize {
        self.part(object)[2]
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

/// Where copies of arrays lie in the scratch. Jobs that read the same part of an array share its copy.
#[derive(Default)]
struct Copies {
    read: HashMap<[usize; 3], usize>,
    bytes: usize,
}

impl Copies {
    /// The place of an array of a job, and whether nothing lies there so far.
    fn place(&mut self, row: Row<'_>, object: usize) -> (usize, bool) {
        let (part, next) = (row.part(object), self.bytes);
        let place = if object == OUTPUT { next } else { *self.read.entry(part).or_insert(next) };
        let is_new = place == next;
        self.bytes += if is_new { row.length(object) } else { 0 };
        (place, is_new)
    }

    /// The bytes of all copies.
    fn bytes<'a>(rows: impl Iterator<Item = Row<'a>>) -> usize {
        let mut copies = Copies::default();
        for row in rows {
            for object in (0..OBJECTS).filter(|object| row.is_array(*object)) {
                copies.place(row, object);
            }
        }
        copies.bytes
    }

    /// Where an object of a job lies: a direct buffer in place, an array in the scratch.
    ///
    /// # Safety
    ///
    /// The part lies within its object, and the scratch has room for the copies of all jobs.
    unsafe fn memory(
        &mut self,
        env: Env,
        objects: jobjectArray,
        scratch: *mut u8,
        (row, object): (Row<'_>, usize),
    ) -> *mut u8 {
        let [at, start, length] = row.part(object);
        if !row.is_array(object) {
            // SAFETY: the caller's promise. An empty mapping of a file has no address.
            let address = unsafe { env::with_element(env, objects, at, |buffer| env::address(env, buffer)) };
            return address.wrapping_add(start);
        }
        let (place, is_new) = self.place(row, object);
        let copy = scratch.wrapping_add(place);
        if is_new && object != OUTPUT {
            // SAFETY: the caller's promise.
            unsafe {
                env::with_element(env, objects, at, |array| env::read(env, array, start, length, copy));
            }
        }
        copy
    }
}

/// Runs jobs. The result is the status of the first job that does not succeed; `answers` gets six numbers of each.
///
/// # Safety
///
/// Java calls it with open analytics, eighteen numbers for each job, parts that lie within their buffers or arrays, and
/// room for six answers of each job.
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
            if let Err(refused) = unsafe { env::read_ints(env, numbers, &mut ints) } {
                return refused as jlong;
            }
            let rows = || ints.as_chunks::<NUMBERS>().0.iter().map(Row);
            let memory = match env::room(scratch, Copies::bytes(rows())) {
                Ok(memory) => memory,
                Err(refused) => return refused as jlong,
            };
            let mut copies = Copies::default();
            // SAFETY: the caller's promise, and there is room for all copies.
            let mut of = |row, object| unsafe { copies.memory(env, objects, memory, (row, object)) };
            let jobs: Vec<ziptier_analytics_job> =
                rows().map(|row| row.job([0, 1, 2].map(|object| of(row, object)))).collect();
            let (analytics, mut ended) = (analytics as *const ziptier_analytics, vec![NO_ANSWER; jobs.len()]);
            // SAFETY: memory of all jobs is there, and room for their answers.
            let status =
                unsafe { ziptier_analytics_run(analytics, jobs.as_ptr(), jobs.len(), ended.as_mut_ptr()) };
            for ((row, job), answer) in rows().zip(&jobs).zip(&ended) {
                let [at, start, _] = row.part(OUTPUT);
                if status == ZIPTIER_OK && row.is_array(OUTPUT) {
                    // SAFETY: the output has as many bytes, and its part of the array has room for them.
                    unsafe {
                        env::with_element(env, objects, at, |array| {
                            env::write(env, array, start, answer.output_len, job.output.cast());
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
