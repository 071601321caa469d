//! Ranks by Zipf's law: rank `i`, counted from 0, in proportion to `1 / (i + 1)^theta`.
//!
//! Below 1, `theta` has the closed form of Gray et al. ("Quickly generating billion-record synthetic databases", SIGMOD
//! 1994), as in YCSB: one power per draw, no table. The closed form is exact for the first two ranks and close for the
//! others. From 1 on, ranks are drawn by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate
//! variates from monotone discrete distributions", ACM TOMACS 6, 1996), which is exact.

/// The skew of YCSB's Zipf distribution.
pub(crate) const DEFAULT_THETA: f64 = 0.99;

/// Zipf ranks by the closed form.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    items: f64,
    theta: f64,
    theta_half: f64,
    alpha: f64,
    eta: f64,
    zeta: f64,
}

impl Zipf {
    /// Ranks below `items`, which is at least 3; `theta` lies between 0 and 1.
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    /// The same, with the sum of `1 / i^theta` for i up to `items`.
    pub(crate) fn with_zeta(items: u64, theta: f64, zeta: f64) -> Self {
        let mut zipf = Zipf {
            items: items as f64,
            theta,
            theta_half: 1.0 + 0.5f64.powf(theta),
            alpha: 1.0 / (1.0 - theta),
            eta: 0.0,
            zeta,
        };
        zipf.eta = zipf.eta_of(items as f64);
        zipf
    }

    fn eta_of(&self, items: f64) -> f64 {
        (1.0 - (2.0 / items).powf(1.0 - self.theta)) / (1.0 - self.theta_half / self.zeta)
    }

    /// Adds ranks up to `items`, as YCSB does: its `eta` goes on to count the items of the beginning in one place.
    pub(crate) fn grow(&mut self, items: u64, items_at_first: u64) {
        while self.items < items as f64 {
            self.items += 1.0;
            self.zeta += self.items.powf(-self.theta);
        }
        self.eta = self.eta_of(items_at_first as f64);
    }

    /// The share of the first rank.
    pub(crate) fn first_share(&self) -> f64 {
        1.0 / self.zeta
    }

    /// The rank of an even number in `[0, 1)`.
    #[inline]
    pub(crate) fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0.0
        } else if scaled < self.theta_half {
            1.0
        } else {
            self.items * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)
        };
        rank.min(self.items - 1.0) as u64
    }
}

/// The sum of `1 / i^theta` for i up to `items`; beyond the first 100,000 terms by the trapezoidal rule (relative error
/// below 1e-9).
pub(crate) fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(100_000);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    if items == exact {
        return sum;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    sum + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
}

/// Zipf ranks by rejection-inversion, for any positive skew.
#[derive(Debug, Clone)]
pub(crate) struct SteepZipf {
    items: f64,
    theta: f64,
    /// The integrals of the hat up to the middle of the first bar and up to the end of the last.
    first: f64,
    last: f64,
    /// A draw this close to its bar is accepted without a look at the law.
    close: f64,
}

impl SteepZipf {
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        let mut zipf = SteepZipf { items: items as f64, theta, first: 0.0, last: 0.0, close: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(items as f64 + 0.5);
        zipf.close = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-theta));
        zipf
    }

    /// The integral of `x^-theta`, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), 1.0 - self.theta);
        if (power * log).abs() < 1e-9 { log } else { (power * log).exp_m1() / power }
    }

    fn inverse(&self, integral: f64) -> f64 {
        let power = 1.0 - self.theta;
        let scaled = (integral * power).max(-1.0);
        if scaled.abs() < 1e-9 { integral.exp() } else { (scaled.ln_1p() / power).exp() }
    }

    /// A rank made of even numbers in `[0, 1)`; most need one.
    #[inline]
    pub(crate) fn rank(&self, mut uniform: impl FnMut() -> f64) -> u64 {
        loop {
            let under = self.last + uniform() * (self.first - self.last);
            let x = self.inverse(under);
            let bar = x.round().clamp(1.0, self.items);
            if bar - x <= self.close || under >= self.integral(bar + 0.5) - bar.powf(-self.theta) {
                return bar as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn the_tail_of_the_sum_is_close() {
        let exact: f64 = (1..=300_000u64).map(|i| (i as f64).powf(-0.9)).sum();
        assert!((zeta(300_000, 0.9) / exact - 1.0).abs() < 1e-9);
    }

    /// Chi-square has 99 degrees of freedom: it passes 150 once in 1,500 seeds.
    #[test]
    fn steep_ranks_follow_the_law_exactly() {
        const DRAWS: usize = 1_000_000;
        for theta in [0.7, 1.0, 1.3, 2.6774] {
            let (zipf, mut random) = (SteepZipf::new(100, theta), SmallRng::seed_from_u64(1));
            let mut counts = [0u32; 100];
            for _ in 0..DRAWS {
                counts[zipf.rank(|| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64) as usize] += 1;
            }
            let sum: f64 = (1..=100).map(|i| f64::from(i).powf(-theta)).sum();
            let expected = |rank: usize| DRAWS as f64 * ((rank + 1) as f64).powf(-theta) / sum;
            let chi_square: f64 = (0..100)
                .map(|rank| (f64::from(counts[rank]) - expected(rank)).powi(2) / expected(rank))
                .sum();
            assert!(chi_square < 150.0, "theta {theta}: {chi_square}");
        }
    }

    #[test]
    fn ranks_that_come_later_are_drawn_too() {
        let mut grown = Zipf::new(1_000, 0.99);
        grown.grow(1_200, 1_000);
        assert!((grown.zeta / zeta(1_200, 0.99) - 1.0).abs() < 1e-9);
        assert_eq!(grown.rank(0.999_999_999), 1_199);
    }
}
