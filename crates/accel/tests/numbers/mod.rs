//! Blocks that are the same every time.

/// Xorshift, Marsaglia (2003).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| _ = numbers.next());
        numbers
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Incompressible bytes.
    pub(crate) fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// 0.5 to 3 KiB that look like records.
    pub(crate) fn record(&mut self) -> Vec<u8> {
        let mut record = Vec::new();
        for _ in 0..10 + self.next() % 50 {
            let (user, state) = (self.next() % 100_000, ["active", "idle", "gone"][self.next() as usize % 3]);
            record.extend_from_slice(format!("{{\"user\":{user},\"state\":\"{state}\"}},").as_bytes());
        }
        record
    }

    /// 1 byte to 12 KiB of records, noise, runs, or a mixture.
    pub(crate) fn block(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        for _ in 0..1 + self.next() % 5 {
            let bytes = 1 + (self.next() % 600) as usize;
            match self.next() % 4 {
                0 => block.extend(self.noise(bytes)),
                1 => block.resize(block.len() + 4 * bytes, self.next() as u8),
                _ => block.extend(self.record()),
            }
        }
        block
    }
}
