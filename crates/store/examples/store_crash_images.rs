//! Recovers a store from as many power cuts as asked for: `store_crash_images [IMAGES [SEED]]`; 2,000,000 by default.
//!
//! The same as the test of 10,000 images, with other writes in every round.

#![allow(clippy::unwrap_used)]

#[path = "../tests/suite/durable_scenario/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod durable_scenario;

use std::io::IsTerminal;

use ziptier::Durability;

const IMAGES_PER_ROUND: usize = 2000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let images: usize = arguments.next().map_or(2_000_000, |text| text.parse().expect("IMAGES is a number"));
    let seed: u64 = arguments.next().map_or(1, |text| text.parse().expect("SEED is a number"));
    let mut done = 0;
    while done < images {
        let seed = seed.wrapping_add(done as u64);
        // Most rounds wait for the disk: only there can something acknowledged be lost.
        let durability = [Durability::Always, Durability::Always, Durability::Everysec, Durability::Always]
            [done / IMAGES_PER_ROUND % 4];
        let (disk, histories) = durable_scenario::recorded(durability, seed, 3, 60);
        let count = IMAGES_PER_ROUND.min(images - done);
        for (number, image) in disk.images().sample(seed, count).enumerate() {
            durable_scenario::recover(&image, &histories, durability, number as u64);
        }
        done += count;
        if std::io::stderr().is_terminal() {
            eprint!("\r{done} of {images} images recovered");
        }
    }
    println!("{done} crash images of the store recovered, no acknowledged write lost, none invented");
}
