//! How heat is spread over the bytes of all bodies: it tells the heat above which all leaves fit into DRAM.

/// Steps to a counted read per record.
const STEPS: f64 = 64.0;
/// A record counts three reads at most.
const CLASSES: usize = 3 * STEPS as usize + 1;

/// Bytes of bodies by counted reads per record.
pub(crate) struct Spread(Box<[u64; CLASSES]>);

impl Default for Spread {
    fn default() -> Self {
        Self(Box::new([0; CLASSES]))
    }
}

impl Spread {
    /// Adds a leaf.
    pub(crate) fn add(&mut self, heat: f64, bytes: u64) {
        self.0[((heat * STEPS) as usize).min(CLASSES - 1)] += bytes;
    }

    /// The least heat from which on all leaves together have at most `bytes`; 0 when all have.
    pub(crate) fn hottest(&self, bytes: u64) -> f64 {
        let mut above = 0;
        let fitting = self.0.iter().rev().take_while(|class| {
            above += **class;
            above <= bytes
        });
        (CLASSES - fitting.count()) as f64 / STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_leaves_fill_the_room() {
        let mut spread = Spread::default();
        assert_eq!(spread.hottest(0), 0.0);
        (0..10).for_each(|heat| spread.add(f64::from(heat) / 10.0, 1000));
        assert_eq!(spread.hottest(10_000), 0.0);
        assert!((0.6..=0.7).contains(&spread.hottest(3000)), "{}", spread.hottest(3000));
        assert!((0.6..=0.7).contains(&spread.hottest(3999)));
        assert!(spread.hottest(0) > 0.9);
        spread.add(100.0, 1);
        assert!(spread.hottest(0) > 3.0);
    }
}
