//! The store that a seed draws, and the random numbers of a simulation.

use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_tree::clock::Clock;

use crate::{BlockOptions, CodecChoice, DiskHandle, Durability, DurableOptions, Options, SsdOptions};

/// DEFLATE and Zstandard come less often: their packing takes most of a simulation's time.
const CODECS: [CodecChoice; 16] = {
    use CodecChoice::{Auto, Deflate, Lz4, None, Token, Zstd};
    [None, None, None, Token, Token, Token, Token, Auto, Auto, Auto, Auto, Lz4, Lz4, Lz4, Zstd, Deflate]
};

/// Random numbers that a seed fixes (SplitMix64, Steele and others, 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The store of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) codec: CodecChoice,
    pub(super) durability: Option<Durability>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) ssd_bytes: Option<u64>,
    pub(super) far_bytes: Option<u64>,
    pub(super) evicts: bool,
    background_packing: bool,
    heating: bool,
    /// Keys that calls name.
    pub(super) keys: u64,
}

impl Setup {
    pub(super) fn draw(random: &mut Random) -> Self {
        let has_limit = !random.once_in(6);
        let evicts = has_limit && random.once_in(3);
        let far_bytes = random.once_in(3).then(|| random.one_of(&[64 << 10, 128 << 10, 1 << 20]));
        Self {
            codec: random.one_of(&CODECS),
            durability: (!random.once_in(8)).then(|| random.one_of(&Durability::ALL)),
            limit_bytes: has_limit.then(|| random.one_of(&[192 << 10, 256 << 10, 512 << 10, 768 << 10])),
            ssd_bytes: (!evicts && random.once_in(2)).then(|| random.one_of(&[4 << 20, 16 << 20])),
            far_bytes,
            evicts,
            background_packing: random.once_in(4),
            heating: random.once_in(4),
            keys: random.one_of(&[100, 600, 2500]),
        }
    }

    pub(super) fn options(&self, disk: Arc<dyn Disk>, clock: &Clock) -> Options {
        let durable = self.durability.map(|durability| {
            let mut durable = DurableOptions::new("/data");
            durable.durability = durability;
            durable.log.segment_bytes = 16 << 10;
            durable.segments.segment_bytes = 64 << 10;
            durable.segments.write_bytes = 4 << 10;
            durable.checkpoint_log_bytes = Some(64 << 10);
            durable.disk = DiskHandle(disk);
            durable
        });
        let path = durable.is_none().then(|| "/ssd".into());
        Options {
            memory_limit_bytes: self.limit_bytes,
            ssd: self.ssd_bytes.map(|limit_bytes| SsdOptions { path, limit_bytes }),
            eviction: self.evicts,
            codec: self.codec,
            // As little time as may be, for two forms.
            block: BlockOptions { level: Some(1), dense_level: Some(3), ..BlockOptions::default() },
            heating: self.heating,
            landing_bytes: 256,
            background_packing: self.background_packing,
            durable,
            clock: clock.clone(),
            ..Options::default()
        }
    }
}
