//! Contexts: tokens after which much the same tokens come share one, and so share a code.
//!
//! The tokens are clustered as k-means does: each goes to the context whose tokens code its successors in the fewest
//! bits, and the contexts are made anew from their members.

/// The most contexts: their number has four bits in a table.
pub(super) const CONTEXTS_MAX: usize = 16;

/// How often contexts are made anew.
const ROUNDS: usize = 6;

/// Bytes that clustering holds for each token of the dictionary, at most: its row, its counts, and in each context its
/// bits, its weight and its next weight.
pub(super) const TOKEN_BYTES: usize = 32 + 3 * CONTEXTS_MAX * size_of::<f32>();

/// Bytes that it holds for each token of a value, at most: the number, the end of a value, the pair and its count.
pub(super) const NUMBER_BYTES: usize = 2 + 8 + 4 + 8;

/// So many tokens of the common distribution are added to that of each context, which alone knows little of rare
/// tokens.
const COMMON_WEIGHT: f32 = 512.0;

/// How often tokens follow each other in samples.
pub(super) struct Pairs {
    /// The places of each token's successors. The last one is that of the first tokens of values.
    rows: Vec<std::ops::Range<usize>>,
    /// Tokens with how often they came, ascending within a row.
    successors: Vec<(u16, u32)>,
    /// How often each token came.
    counts: Vec<u32>,
}

impl Pairs {
    /// Counts pairs in values, each of which is a run of numbers below `tokens`. A value ends before each of `ends`.
    pub(super) fn count(numbers: &[u16], ends: &[usize], tokens: usize) -> Pairs {
        let mut pairs: Vec<u32> = Vec::with_capacity(numbers.len());
        let mut start = 0;
        for &end in ends {
            // Nothing else has this number before it.
            let mut before = tokens as u32;
            for &number in &numbers[start..end] {
                pairs.push(before << 16 | u32::from(number));
                before = u32::from(number);
            }
            start = end;
        }
        pairs.sort_unstable();
        let runs = || pairs.chunk_by(|one, other| one == other);
        let mut counted = Pairs {
            rows: Vec::with_capacity(tokens + 1),
            successors: Vec::with_capacity(runs().count()),
            counts: vec![0; tokens],
        };
        let mut runs = runs().peekable();
        for before in 0..=tokens as u32 {
            let start = counted.successors.len();
            while let Some(run) = runs.next_if(|run| run[0] >> 16 == before) {
                let number = run[0] as u16;
                counted.successors.push((number, run.len() as u32));
                counted.counts[usize::from(number)] += run.len() as u32;
            }
            counted.rows.push(start..counted.successors.len());
        }
        counted
    }

    /// The tokens that came after a token, or first in a value.
    fn successors(&self, row: usize) -> &[(u16, u32)] {
        &self.successors[self.rows[row].clone()]
    }

    /// Tokens of all values.
    pub(super) fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
}

/// The context that each token leads to, and the weight of each token in each context.
pub(super) struct Contexts {
    /// By token; the last one is where a value begins.
    pub(super) of_token: Vec<u8>,
    /// By context and token. Those of a context are how often its tokens came, and a share of all.
    pub(super) weights: Vec<Vec<f32>>,
}

impl Contexts {
    /// Clusters tokens by their successors. The same pairs give the same contexts.
    pub(super) fn cluster(pairs: &Pairs) -> Contexts {
        let mut order: Vec<(u64, usize)> = (0..pairs.rows.len())
            .map(|row| (pairs.successors(row).iter().map(|&(_, count)| u64::from(count)).sum(), row))
            .collect();
        order.sort_unstable_by_key(|&(total, row)| (std::cmp::Reverse(total), row));
        // The most frequent tokens are the first contexts.
        let members = order.iter().take(CONTEXTS_MAX).map(|&(_, row)| row);
        let mut weights: Vec<Vec<f32>> = members.map(|row| weights_of(pairs, std::iter::once(row))).collect();
        let mut of_token = Vec::new();
        for _ in 0..ROUNDS {
            of_token = assign(pairs, &weights);
            weights = (0..weights.len())
                .map(|context| {
                    let members = (0..of_token.len()).filter(|&row| usize::from(of_token[row]) == context);
                    weights_of(pairs, members)
                })
                .collect();
        }
        Contexts { of_token, weights }
    }
}

/// The weights of a context with these members.
fn weights_of(pairs: &Pairs, members: impl Iterator<Item = usize>) -> Vec<f32> {
    let share = COMMON_WEIGHT / pairs.total().max(1) as f32;
    let mut weights: Vec<f32> = pairs.counts.iter().map(|&count| count as f32 * share).collect();
    for row in members {
        for &(number, count) in pairs.successors(row) {
            weights[usize::from(number)] += count as f32;
        }
    }
    weights
}

/// The context of each token in which its successors take the fewest bits.
fn assign(pairs: &Pairs, weights: &[Vec<f32>]) -> Vec<u8> {
    let mut bits = vec![[0f32; CONTEXTS_MAX]; pairs.counts.len()];
    for (context, weights) in weights.iter().enumerate() {
        let total: f32 = weights.iter().sum();
        for (bits, weight) in bits.iter_mut().zip(weights) {
            bits[context] = (total / weight.max(f32::MIN_POSITIVE)).log2();
        }
    }
    let nearest = |successors: &[(u16, u32)]| {
        let mut sums = [0f32; CONTEXTS_MAX];
        for &(number, count) in successors {
            let bits = &bits[usize::from(number)];
            sums.iter_mut().zip(bits).for_each(|(sum, bits)| *sum += count as f32 * bits);
        }
        let contexts = 0..weights.len();
        contexts.min_by(|&one, &other| sums[one].total_cmp(&sums[other])).unwrap_or_default() as u8
    };
    // Nothing is known of a token that the samples do not have. Its bits may be infinite, and zero times infinity is
    // not a number.
    let seen = pairs.counts.iter().zip(0..).filter(|&(&count, _)| count > 0);
    let all: Vec<(u16, u32)> = seen.map(|(&count, number)| (number, count)).collect();
    let common = nearest(&all);
    let context = |row| match pairs.successors(row) {
        [] => common,
        successors => nearest(successors),
    };
    (0..pairs.rows.len()).map(context).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_by_what_comes_before() {
        // One value of four tokens, one of none, one of one.
        let pairs = Pairs::count(&[1, 2, 1, 2, 2], &[4, 4, 5], 4);
        assert_eq!(pairs.successors(1), [(2, 2)]);
        assert_eq!(pairs.successors(2), [(1, 1)]);
        assert_eq!(pairs.successors(3), []);
        assert_eq!(pairs.successors(4), [(1, 1), (2, 1)]);
        assert_eq!((pairs.counts, pairs.successors.len()), (vec![0, 2, 3, 0], 4));
    }

    #[test]
    fn a_token_that_no_sample_has_leads_to_the_context_of_all() {
        let pairs = Pairs::count(&[1, 2, 1, 2, 2], &[4, 4, 5], 4);
        // Both contexts know nothing of token 3, and the second one is that of the other tokens.
        let weights = [vec![100.0, 1.0, 1.0, 0.0], vec![0.0, 10.0, 10.0, 0.0]];
        assert_eq!(assign(&pairs, &weights), [1; 5]);
    }

    #[test]
    fn tokens_with_like_successors_share_a_context() {
        // Forty tokens: even ones are followed by 50 and 51, odd ones by 60 and 61.
        let mut random = fastrand::Rng::with_seed(3);
        let numbers: Vec<u16> = (0..20_000)
            .flat_map(|_| {
                let first = random.u16(0..40);
                [first, if first.is_multiple_of(2) { 50 } else { 60 } + random.u16(0..2)]
            })
            .collect();
        let ends: Vec<usize> = (2..=numbers.len()).step_by(2).collect();
        let pairs = Pairs::count(&numbers, &ends, 100);
        let contexts = Contexts::cluster(&pairs);
        let contexts_of = |odd: usize| {
            let mut all: Vec<u8> =
                (0..40).filter(|token| token % 2 == odd).map(|token| contexts.of_token[token]).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (even, odd) = (contexts_of(0), contexts_of(1));
        assert!(even.iter().all(|context| !odd.contains(context)), "{even:?} and {odd:?}");
        for context in &even {
            let weights = &contexts.weights[usize::from(*context)];
            assert!(weights[50] > 10.0 * weights[60]);
        }
    }
}
