//! Ghosts: fingerprints of keys that were evicted from probation not long ago. A key that comes back while its ghost is
//! there goes to the main queue.
//!
//! Five fingerprints of 12 bits share a word, the oldest in the highest bits. A new fingerprint pushes the oldest out.
//! A key that was never evicted is taken for a ghost with a chance of 5 in 4,096.

use ziptier_tree::memory::Gauges;

const FINGERPRINT_BITS: u32 = 12;
const PER_WORD: u32 = u64::BITS / FINGERPRINT_BITS;
const FINGERPRINT: u64 = (1 << FINGERPRINT_BITS) - 1;
/// Keys remembered for a hundred records that are held (S3-FIFO: as many as the main queue has).
const KEYS_PCT: u64 = 90;

/// Keys that were evicted. See the module.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    words: Box<[u64]>,
}

impl Ghosts {
    /// Remembers about as many keys as `records` asks for, if there is room for them. A table of another size begins
    /// empty.
    pub(crate) fn resize(&mut self, records: u64, gauges: &Gauges) {
        let room = gauges.limit().saturating_sub(gauges.held()) as usize / size_of::<u64>();
        let wanted = (records * KEYS_PCT / 100 / u64::from(PER_WORD)).max(16) as usize;
        let wanted = wanted.min(self.words.len().saturating_add(room));
        if wanted <= self.words.len() * 5 / 4 && wanted >= self.words.len() / 2 {
            return;
        }
        self.forget(gauges);
        self.words = vec![0; wanted].into_boxed_slice();
        gauges.eviction.add(self.words.len() * size_of::<u64>());
    }

    /// Forgets all keys.
    pub(crate) fn forget(&mut self, gauges: &Gauges) {
        gauges.eviction.take(self.words.len() * size_of::<u64>());
        self.words = Box::default();
    }

    /// The number of a key's word.
    fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.words.len() as u128) >> 64) as usize
    }

    /// The word of a key and its fingerprint.
    fn place(&mut self, hash: u64) -> Option<(&mut u64, u64)> {
        let index = self.index(hash);
        Some((self.words.get_mut(index)?, fingerprint(hash)))
    }

    /// Remembers the key with this hash.
    pub(crate) fn put(&mut self, hash: u64) {
        if let Some((word, fingerprint)) = self.place(hash) {
            *word = (*word << FINGERPRINT_BITS | fingerprint) & (u64::MAX >> (u64::BITS % FINGERPRINT_BITS));
        }
    }

    /// Whether the key with this hash was remembered; it is forgotten then.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        let Some((word, fingerprint)) = self.place(hash) else { return false };
        let Some(shift) = shift_of(*word, fingerprint) else { return false };
        let newer = *word & ((1 << shift) - 1);
        *word = (*word >> shift >> FINGERPRINT_BITS << shift) | newer;
        true
    }
}

/// The fingerprint of a key, which is never 0.
fn fingerprint(hash: u64) -> u64 {
    (hash & FINGERPRINT).max(1)
}

/// The bits of a word below a fingerprint that it has.
fn shift_of(word: u64, fingerprint: u64) -> Option<u32> {
    let mut shifts = (0..PER_WORD).map(|index| index * FINGERPRINT_BITS);
    shifts.find(|shift| word >> shift & FINGERPRINT == fingerprint)
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;

    #[test]
    fn the_newest_keys_are_remembered_and_forgotten_once_taken() {
        let gauges = Gauges::new(None);
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.take(7));
        ghosts.put(7);
        let records = 100_000;
        ghosts.resize(records, &gauges);
        assert!(gauges.eviction.held() > records * 14 / 10 && gauges.eviction.held() < records * 18 / 10);
        let mut random = fastrand::Rng::with_seed(7);
        let hashes: Vec<u64> = (0..2 * records).map(|_| random.u64(..)).collect();
        hashes.iter().for_each(|hash| ghosts.put(*hash));
        ghosts.resize(records * 9 / 10, &gauges);
        let remembered = |ghosts: &mut Ghosts, hashes: &[u64]| {
            hashes.iter().filter(|hash| ghosts.take(**hash)).count() as f64 / hashes.len() as f64
        };
        let strangers: Vec<u64> = (0..records / 5).map(|_| random.u64(..)).collect();
        assert!(remembered(&mut ghosts.clone_for_test(), &strangers) < 0.004);
        let newest = &hashes[hashes.len() / 10 * 9..];
        assert!(remembered(&mut ghosts, newest) > 0.95);
        assert!(remembered(&mut ghosts, newest) < 0.01);
        assert!(remembered(&mut ghosts, &hashes[..hashes.len() / 4]) < 0.2);
    }

    impl Ghosts {
        fn clone_for_test(&self) -> Self {
            Self { words: self.words.clone() }
        }
    }
}
