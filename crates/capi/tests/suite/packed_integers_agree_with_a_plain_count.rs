//! A filter with a wrong bit gives wrong rows, and nobody sees it. Each answer is compared with one that goes bit by
//! bit, and each output has bytes behind it that must stay. Senseless jobs are refused and harm no other job.

use std::ptr;

use ziptier_capi::analytics::*;
use ziptier_capi::buffer::ziptier_slice;
use ziptier_capi::status::ziptier_status::{self, *};
use ziptier_testing::{count, seed};

use crate::support::{Options, last_error, noise, slice};

/// Behind each output.
const BEHIND: [u8; 16] = [0xA5; 16];

/// Random numbers from a seed (Knuth's linear congruential generator, the high half of it).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// Analytics that are closed with the test.
struct Analytics(*mut ziptier_analytics);

// SAFETY: the header says that any number of threads may use them.
unsafe impl Sync for Analytics {}

impl Analytics {
    fn open(options: &[(&str, &str)]) -> Result<Analytics, (ziptier_status, String)> {
        let (options, mut opened) = (Options::new(options), ptr::null_mut());
        // SAFETY: the options live until the call has returned.
        match unsafe { ziptier_analytics_open(options.options.as_ptr(), options.options.len(), &mut opened) }
        {
            ZIPTIER_OK => Ok(Analytics(opened)),
            status => {
                assert!(opened.is_null());
                Err((status, last_error()))
            }
        }
    }

    fn run(&self, jobs: &[ziptier_analytics_job]) -> (ziptier_status, Vec<ziptier_analytics_answer>) {
        let mut answers = Vec::with_capacity(jobs.len());
        // SAFETY: columns, masks and outputs of the jobs live in the test; there is room for the answers.
        let status =
            unsafe { ziptier_analytics_run(self.0, jobs.as_ptr(), jobs.len(), answers.as_mut_ptr()) };
        // SAFETY: the call has written an answer for each job.
        unsafe { answers.set_len(jobs.len()) };
        (status, answers)
    }

    fn fallbacks(&self) -> u64 {
        // SAFETY: the analytics are open.
        unsafe { ziptier_analytics_fallbacks(self.0) }
    }
}

impl Drop for Analytics {
    fn drop(&mut self) {
        // SAFETY: nobody uses them any more.
        unsafe { ziptier_analytics_close(self.0) };
    }
}

/// The bit at an index of packed bytes.
fn place(index: usize, is_big: bool) -> (usize, u8) {
    (index / 8, if is_big { 0x80 >> (index % 8) } else { 1 << (index % 8) })
}

fn packed(values: &[u32], width: usize, is_big: bool) -> Vec<u8> {
    let mut bytes = vec![0; (values.len() * width).div_ceil(8)];
    for (index, value) in values.iter().enumerate() {
        for bit in (0..width).filter(|bit| value >> bit & 1 == 1) {
            let (byte, mask) = place(index * width + if is_big { width - 1 - bit } else { bit }, is_big);
            bytes[byte] |= mask;
        }
    }
    bytes
}

/// A job that goes bit by bit: its inputs, and the output and the answer that it must have.
struct Question {
    job: ziptier_analytics_job,
    column: Vec<u8>,
    mask: Vec<u8>,
    expected: Vec<u8>,
    answer: (u32, u32, u32, u32),
}

impl Question {
    fn new(random: &mut Random, width: usize, count: usize) -> Question {
        let largest = u32::MAX >> (32 - width);
        let small = if random.below(2) == 0 { largest } else { largest & 3 };
        let mut values: Vec<u32> = (0..count).map(|_| random.next() & small).collect();
        let mut bits: Vec<u32> = (0..count).map(|_| random.below(2) as u32).collect();
        let operation = random.below(4) as u32;
        let is_set = |flags: u32, flag| flags & flag != 0;
        let flags =
            (random.below(16) as u32) << 1 & !if operation == ZIPTIER_SCAN { 0 } else { ZIPTIER_NEGATE };
        let (mut first, mut last) = (0, 0);
        let results: Vec<u32> = match operation {
            ZIPTIER_SCAN => {
                (first, last) = (random.next() & small, random.next() & small);
                let negate = is_set(flags, ZIPTIER_NEGATE);
                let found = |value: &u32| u32::from((first..=last).contains(value) != negate);
                values.iter().map(found).collect()
            }
            ZIPTIER_EXTRACT => {
                if count == 0 {
                    values.push(0);
                }
                first = random.below(values.len()) as u32;
                last = first + random.below(values.len() - first as usize) as u32;
                values[first as usize..=last as usize].to_vec()
            }
            ZIPTIER_SELECT => {
                values.iter().zip(&bits).filter(|(_, bit)| **bit == 1).map(|(value, _)| *value).collect()
            }
            _ => {
                bits.truncate(count);
                let mut next = values.iter();
                bits.iter().map(|bit| if *bit == 1 { *next.next().unwrap() } else { 0 }).collect()
            }
        };
        let nominal = if operation == ZIPTIER_SCAN { 1 } else { width };
        let output_width = *[0, 8, 16, 32]
            .iter()
            .filter(|wide| **wide == 0 || **wide >= nominal)
            .nth(random.below(2))
            .unwrap();
        let ones: Vec<u32> = (0..).zip(&results).filter(|(_, bit)| **bit == 1).map(|(at, _)| at).collect();
        let (output, output_width) = match output_width {
            0 => (results.clone(), 0),
            // Indices above 255 do not fit 8 bits.
            _ if nominal == 1 => (ones.clone(), 32),
            wide => (results.clone(), wide),
        };
        let of_bits =
            (ones.first().copied().unwrap_or(0), ones.last().copied().unwrap_or(0), ones.len() as u32);
        let sum = results.iter().fold(0u32, |sum, value| sum.wrapping_add(*value));
        let least = results.iter().copied().min().unwrap_or(0);
        let of_integers = (least, results.iter().copied().max().unwrap_or(0), sum);
        let (min, max, sum) = if nominal == 1 { of_bits } else { of_integers };
        let wide = if output_width == 0 { nominal } else { output_width };
        let expected = packed(&output, wide, is_set(flags, ZIPTIER_OUTPUT_BIG_ENDIAN));
        let column = packed(&values, width, is_set(flags, ZIPTIER_BIG_ENDIAN));
        let mask = packed(&bits, 1, is_set(flags, ZIPTIER_MASK_BIG_ENDIAN));
        let has_mask = [ZIPTIER_SELECT, ZIPTIER_EXPAND].contains(&operation);
        let job = ziptier_analytics_job {
            operation,
            flags,
            column: slice(&column),
            width: width as u32,
            count: values.len() as u32,
            first,
            last,
            mask: slice(&mask),
            mask_count: if has_mask { bits.len() as u32 } else { 0 },
            output_width: output_width as u32,
            output: ptr::null_mut(),
            output_capacity: expected.len(),
        };
        Question { job, column, mask, expected, answer: (output.len() as u32, min, max, sum) }
    }

    /// The job with its output there.
    fn job(&self, output: &mut [u8]) -> ziptier_analytics_job {
        let (column, mask) = (slice(&self.column), slice(&self.mask));
        ziptier_analytics_job { column, mask, output: output.as_mut_ptr().cast(), ..self.job }
    }
}

fn check(analytics: &Analytics, questions: &[Question]) {
    let mut outputs: Vec<Vec<u8>> = questions
        .iter()
        .map(|question| [vec![0x5A; question.expected.len()], BEHIND.to_vec()].concat())
        .collect();
    let jobs: Vec<_> =
        questions.iter().zip(&mut outputs).map(|(question, output)| question.job(output)).collect();
    let (status, answers) = analytics.run(&jobs);
    assert_eq!(status, ZIPTIER_OK, "{}", last_error());
    for ((question, answer), output) in questions.iter().zip(answers).zip(&outputs) {
        let job = &question.job;
        assert_eq!(output.strip_suffix(&BEHIND), Some(&*question.expected), "{job:?}");
        let found = (answer.count, answer.min, answer.max, answer.sum);
        assert_eq!(
            (answer.status, found, answer.output_len),
            (ZIPTIER_OK, question.answer, question.expected.len()),
            "{job:?}"
        );
    }
}

#[test]
fn every_operation_width_and_order_agrees() {
    let mut random = Random(seed());
    let software = Analytics::open(&[("path", "software")]).unwrap();
    let modelled = Analytics::open(&[("path", "hardware"), ("model", "timing=off")]).unwrap();
    for _ in 0..count("ZIPTIER_INPUTS", 5) {
        for width in 1..=32 {
            let counts = [0, 1, 7, 8, 9, 64, 511, 512, 513, 1000];
            let questions: Vec<Question> =
                counts.iter().map(|count| Question::new(&mut random, width, *count)).collect();
            check(&software, &questions);
            check(&modelled, &questions);
        }
    }
    assert_eq!((software.fallbacks(), modelled.fallbacks()), (0, 0));
}

#[test]
fn threads_share_analytics() {
    let analytics = Analytics::open(&[("path", "software")]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let analytics = &analytics;
            scope.spawn(move || {
                let mut random = Random(thread);
                for width in 1..=32 {
                    let questions: Vec<Question> =
                        (0..20).map(|n| Question::new(&mut random, width, n * 37)).collect();
                    check(analytics, &questions);
                }
            });
        }
    });
}

/// A job on 64 elements of 8 bits, all 7.
fn sevens<'a>(column: &'a [u8], output: &'a mut [u8]) -> ziptier_analytics_job {
    ziptier_analytics_job {
        operation: ZIPTIER_SCAN,
        flags: 0,
        column: slice(column),
        width: 8,
        count: 64,
        first: 7,
        last: 7,
        mask: ziptier_slice { data: ptr::null(), len: 0 },
        mask_count: 0,
        output_width: 0,
        output: output.as_mut_ptr().cast(),
        output_capacity: output.len(),
    }
}

#[test]
fn a_senseless_job_is_told_and_the_others_run() {
    let (column, mut good, mut bad, mut behind) = ([7; 64], [0; 8], [0x5A; 256], [0; 8]);
    let analytics = Analytics::open(&[]).unwrap();
    let wrong = ZIPTIER_INVALID_ARGUMENT;
    let sevens_of_bad = sevens(&column, &mut bad);
    let extract = ziptier_analytics_job { operation: ZIPTIER_EXTRACT, first: 0, last: 63, ..sevens_of_bad };
    let select = ziptier_analytics_job {
        operation: ZIPTIER_SELECT,
        mask: slice(&column[..8]),
        mask_count: 64,
        ..sevens_of_bad
    };
    let rows = [
        (ziptier_analytics_job { width: 0, ..sevens_of_bad }, wrong, "elements of 0 bits: give 1 to 32"),
        (ziptier_analytics_job { width: 33, ..sevens_of_bad }, wrong, "elements of 33 bits"),
        (ziptier_analytics_job { width: 9, ..sevens_of_bad }, wrong, "its elements take 72 bytes"),
        (ziptier_analytics_job { count: u32::MAX, ..sevens_of_bad }, wrong, "column is too short"),
        (
            ziptier_analytics_job { column: slice(&column[..63]), ..sevens_of_bad },
            wrong,
            "column is too short",
        ),
        (ziptier_analytics_job { last: 64, ..extract }, wrong, "cannot extract elements 0 to 64"),
        (ziptier_analytics_job { first: 9, last: 8, ..extract }, wrong, "cannot extract elements 9 to 8"),
        (
            ziptier_analytics_job { width: 16, count: 32, last: 31, output_width: 8, ..extract },
            wrong,
            "do not fit 8 bits",
        ),
        (ziptier_analytics_job { mask_count: 63, ..select }, wrong, "a mask of 63 bits"),
        (ziptier_analytics_job { mask: slice(&column[..7]), ..select }, wrong, "the mask is too short"),
        (
            ziptier_analytics_job { operation: ZIPTIER_EXPAND, count: 3, ..select },
            wrong,
            "the mask has 24 ones",
        ),
        (
            ziptier_analytics_job { flags: ZIPTIER_DEFLATED, ..sevens_of_bad },
            ZIPTIER_DAMAGED,
            "cannot decompress the column",
        ),
    ];
    for (row, (job, expected, words)) in rows.into_iter().enumerate() {
        let (status, answers) =
            analytics.run(&[sevens(&column, &mut good), job, sevens(&column, &mut behind)]);
        let said = last_error();
        assert!(said.starts_with("job 1: ") && said.contains(words), "row {row}: {said}");
        let found = answers.iter().map(|answer| answer.status).collect::<Vec<_>>();
        assert_eq!((status, found), (expected, vec![ZIPTIER_OK, expected, ZIPTIER_OK]), "row {row}");
        assert_eq!((answers[1].count, answers[1].output_len), (0, 0), "row {row}");
        assert_eq!((good, behind), ([0xFF; 8], [0xFF; 8]), "row {row}");
        (good, behind) = ([0; 8], [0; 8]);
    }
    assert_eq!(bad, [0x5A; 256], "an output of a refused job has changed");
}

#[test]
fn a_short_output_stays_and_the_needed_capacity_is_told() {
    let column = [7; 64];
    for model in [None, Some(("model", "timing=off"))] {
        let analytics = Analytics::open(&Vec::from_iter(model)).unwrap();
        for (output_width, needed, enough) in [(0, 8, 8), (16, 128, 128), (32, 256, 256)] {
            let mut output = [0x5A; 300];
            for capacity in [0, enough - 1] {
                let job = ziptier_analytics_job {
                    output_width,
                    output_capacity: capacity,
                    ..sevens(&column, &mut output)
                };
                let (status, answers) = analytics.run(&[job]);
                assert_eq!(
                    (status, answers[0].output_len),
                    (ZIPTIER_TOO_SMALL, needed),
                    "{model:?}, {output_width}"
                );
                assert_eq!(output, [0x5A; 300]);
                let said = last_error();
                assert!(
                    said.starts_with("job 0: ") && said.contains(&format!("fit {capacity} bytes")),
                    "{said}"
                );
            }
            let job = ziptier_analytics_job {
                output_width,
                output_capacity: enough,
                ..sevens(&column, &mut output)
            };
            let (status, answers) = analytics.run(&[job]);
            assert_eq!((status, answers[0].output_len, answers[0].sum), (ZIPTIER_OK, enough, 64));
            assert_eq!(output[enough..], [0x5A; 300][enough..]);
        }
    }
}

#[test]
fn calls_that_are_no_jobs_run_nothing() {
    let (mut memory, mut good) = ([7; 128], [0x5A; 8]);
    let analytics = Analytics::open(&[]).unwrap();
    let start = memory.as_mut_ptr();
    let job = sevens(&memory.clone(), &mut []);
    let job = ziptier_analytics_job { column: ziptier_slice { data: start.cast(), len: 64 }, ..job };
    // The last byte of the column is the first one of the output.
    let overlapping =
        ziptier_analytics_job { output: start.wrapping_add(63).cast(), output_capacity: 8, ..job };
    let behind = ziptier_analytics_job { output: start.wrapping_add(64).cast(), output_capacity: 8, ..job };
    let null = ziptier_slice { data: ptr::null(), len: 64 };
    let rows = [
        (overlapping, "input and output overlap"),
        (ziptier_analytics_job { mask: ziptier_slice { data: behind.output, len: 1 }, ..behind }, "overlap"),
        (ziptier_analytics_job { operation: 4, ..behind }, "operation is 4"),
        (ziptier_analytics_job { flags: 32, ..behind }, "flags are 0x20"),
        (ziptier_analytics_job { output_width: 7, ..behind }, "output_width is 7; pass 0, 8, 16 or 32"),
        (ziptier_analytics_job { column: null, ..behind }, "argument column is null"),
        (ziptier_analytics_job { mask: null, ..behind }, "argument mask is null"),
        (ziptier_analytics_job { output: ptr::null_mut(), ..behind }, "argument output is null"),
        (ziptier_analytics_job { output_capacity: usize::MAX, ..behind }, "the length of argument output"),
    ];
    for (job, words) in rows {
        let (status, answers) = analytics.run(&[sevens(&[7; 64], &mut good), job]);
        assert!(last_error().starts_with("job 1: ") && last_error().contains(words), "{}", last_error());
        assert_eq!(status, ZIPTIER_INVALID_ARGUMENT);
        assert!(answers.iter().all(|answer| answer.status == ZIPTIER_INVALID_ARGUMENT));
        assert_eq!((good, memory), ([0x5A; 8], [7; 128]), "{words}");
    }
    assert_eq!(analytics.run(&[behind]).0, ZIPTIER_OK);
    assert_eq!(memory[64..72], [0xFF; 8]);
    assert_eq!(analytics.run(&[]).0, ZIPTIER_OK);
    // SAFETY: null is what these calls refuse, or allow.
    unsafe {
        assert_eq!(
            ziptier_analytics_run(ptr::null(), &behind, 1, &mut analytics.run(&[behind]).1[0]),
            ZIPTIER_INVALID_ARGUMENT
        );
        assert!(last_error().contains("argument analytics is null"));
        assert_eq!(ziptier_analytics_run(analytics.0, &behind, 1, ptr::null_mut()), ZIPTIER_INVALID_ARGUMENT);
        assert!(last_error().contains("argument answers is null"));
        assert_eq!(ziptier_analytics_run(analytics.0, ptr::null(), 0, ptr::null_mut()), ZIPTIER_OK);
        assert!(ziptier_analytics_worker(ptr::null()).is_null());
        assert_eq!(ziptier_analytics_fallbacks(ptr::null()), 0);
        ziptier_analytics_close(ptr::null_mut());
    }
}

#[test]
fn options_choose_who_works() {
    let worker = |options: &[(&str, &str)]| {
        let analytics = Analytics::open(options)?;
        // SAFETY: the analytics are open.
        let worker = unsafe { std::ffi::CStr::from_ptr(ziptier_analytics_worker(analytics.0)) };
        Ok::<String, (ziptier_status, String)>(worker.to_str().unwrap().to_owned())
    };
    assert_eq!(worker(&[("path", "software")]).unwrap(), "cpu");
    assert_eq!(worker(&[("path", "software"), ("model", "timing=off")]).unwrap(), "cpu");
    assert_eq!(worker(&[("model", "timing=off")]).unwrap(), "modelled");
    for (options, words) in [
        ([("path", "fast")], "unknown path \"fast\""),
        ([("model", "x=1")], "option model is \"x=1\""),
        ([("level", "1")], "analytics have no option \"level\": choose among path, model"),
    ] {
        let (status, said) = worker(&options).unwrap_err();
        assert!(status == ZIPTIER_INVALID_OPTION && said.contains(words), "{status:?}: {said}");
    }
    // A column of more than a device takes.
    let modelled = Analytics::open(&[("model", "timing=off")]).unwrap();
    let (column, mut output) = (noise(1 << 20), vec![0; 1 << 17]);
    let job = ziptier_analytics_job { count: 1 << 20, ..sevens(&column, &mut output) };
    let (status, answers) = modelled.run(&[job]);
    let ones = column.iter().filter(|byte| **byte == 7).count();
    assert_eq!((status, answers[0].sum as usize, modelled.fallbacks()), (ZIPTIER_OK, ones, 1));
}
