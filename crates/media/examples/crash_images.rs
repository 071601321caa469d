//! Recovers a log from as many power cuts as asked for: `crash_images [IMAGES [SEED]]`; 2,000,000 by default.
//!
//! Runs the test of the suite over more images. Every round repeats the scenario and draws its images with a seed of
//! its own.

#![allow(clippy::unwrap_used)]

#[path = "../tests/suite/scenario/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod scenario;

use std::io::IsTerminal;

const IMAGES_PER_ROUND: usize = 20_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let images: usize = arguments.next().map_or(2_000_000, |text| text.parse().expect("IMAGES is a number"));
    let seed: u64 = arguments.next().map_or(1, |text| text.parse().expect("SEED is a number"));
    let mut done = 0;
    while done < images {
        let (disk, promises) = scenario::recorded();
        let count = IMAGES_PER_ROUND.min(images - done);
        for image in disk.images().sample(seed.wrapping_add(done as u64), count) {
            scenario::recover(image, &promises);
        }
        done += count;
        if std::io::stderr().is_terminal() {
            eprint!("\r{done} of {images} images recovered");
        }
    }
    println!("{done} crash images of the log recovered, no acknowledged record lost, none invented");
}
