//! Packs and unpacks blocks across {software, model}: `blocks_across_engines [BLOCKS]`, a million by default.
//!
//! Each round packs one block of bytes with three kinds of Huffman codes on both sides. That gives six packed blocks,
//! each unpacked on the other side.

// Its parts are those of the tests.
#![allow(clippy::unwrap_used)]

#[path = "../tests/jobs/blocks.rs"]
mod blocks;
#[path = "../tests/jobs/mod.rs"]
mod jobs;

const BLOCKS_PER_ROUND: u64 = 6;

fn main() {
    let wanted = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse());
    let Ok(wanted) = wanted else {
        eprintln!("blocks_across_engines: the number of blocks is a whole number");
        std::process::exit(2);
    };
    let (engines, device) = (blocks::Engines::new(), jobs::model(1));
    let mut random = jobs::Random(wanted);
    let (mut done, mut bytes) = (0, 0u64);
    while done < wanted {
        let raw = random.block();
        engines.check(&device, &raw, |_| {});
        done += BLOCKS_PER_ROUND;
        bytes += BLOCKS_PER_ROUND * raw.len() as u64;
    }
    println!("{done} blocks of {} MiB came back across software and model", bytes >> 20);
}
