//! Means with what is known of their errors, and tests on series of measurements.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// A mean and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean of the samples.
    pub mean: f64,
    /// The standard error of the mean: the standard deviation of the samples (with n - 1) over the root of n. Nothing
    /// for a single sample.
    pub error: Option<f64>,
    /// Samples.
    pub samples: usize,
}

impl Mean {
    /// Nothing if there are no samples.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len() as f64;
        let mean = (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / n)?;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let error = (samples.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt());
        Some(Mean { mean, error, samples: samples.len() })
    }

    /// Half the width of the interval that holds the true mean in 95 of 100 cases, by Student's t.
    pub fn reach_95(&self) -> Option<f64> {
        self.deviation().map(|deviation| deviation.reach_95())
    }

    /// Its standard error, as one of several that are combined.
    pub(crate) fn deviation(&self) -> Option<Deviation> {
        self.error.map(|error| Deviation::of(error, Some(self.samples)))
    }
}

/// A standard deviation of a figure, and from how much it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// The standard deviation.
    pub error: f64,
    /// Its degrees of freedom; infinite where the figure is distributed normally.
    pub freedom: f64,
}

impl Deviation {
    /// A deviation that was estimated from so many samples, or is that of a normal distribution.
    pub(crate) fn of(error: f64, samples: Option<usize>) -> Self {
        Deviation { error, freedom: samples.map_or(f64::INFINITY, |samples| samples as f64 - 1.0) }
    }

    /// The deviation of a sum of independent figures; nothing if there are none. Its degrees of freedom are those of
    /// Welch and Satterthwaite ("An Approximate Distribution of Estimates of Variance Components", 1946).
    pub fn together(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let squares = |one: Self| (one.error.powi(2), one.error.powi(4) / one.freedom);
        let sums = all.into_iter().map(squares).reduce(|sum, more| (sum.0 + more.0, sum.1 + more.1));
        sums.map(|(variance, weight)| Deviation {
            error: variance.sqrt(),
            freedom: if weight > 0.0 { variance.powi(2) / weight } else { f64::INFINITY },
        })
    }

    /// The deviation of the figure times this.
    pub(crate) fn times(self, factor: f64) -> Self {
        Deviation { error: self.error * factor.abs(), ..self }
    }

    /// Standard deviations on either side that the figure lies within in 95 of 100 cases.
    pub(crate) fn sure_95(&self) -> f64 {
        student_t(0.975, self.freedom)
    }

    /// Half the width of the interval that holds the true figure in 95 of 100 cases.
    pub fn reach_95(&self) -> f64 {
        self.error * self.sure_95()
    }
}

/// The quantile of Student's t distribution, which is the normal one for infinite degrees of freedom.
pub(crate) fn student_t(share: f64, freedom: f64) -> f64 {
    /// From here on, the quantiles of 97.5 % differ by 2.4e-5 at most. The inverse of `statrs` is wrong from 3e5 on.
    const NORMAL: f64 = 1e5;
    if freedom >= NORMAL {
        return Normal::standard().inverse_cdf(share);
    }
    let distribution = StudentsT::new(0.0, 1.0, freedom.max(1.0));
    distribution.expect("the parameters are finite and above 0").inverse_cdf(share)
}

/// The line of least squares through values at 0, 1, 2, ...
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    /// The standard error of the slope.
    pub(crate) slope_error: f64,
}

impl Line {
    /// Nothing for fewer than three values.
    pub(crate) fn through(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = (values.len() > 2).then(|| values.iter().sum::<f64>() / n)?;
        let middle = (n - 1.0) / 2.0;
        let apart = |place: usize| place as f64 - middle;
        let spread: f64 = (0..values.len()).map(|place| apart(place).powi(2)).sum();
        let slope =
            values.iter().enumerate().map(|(place, value)| apart(place) * value).sum::<f64>() / spread;
        let off = |(place, value): (usize, &f64)| (value - mean - slope * apart(place)).powi(2);
        let squares: f64 = values.iter().enumerate().map(off).sum();
        Some(Line { slope, slope_error: (squares / (n - 2.0) / spread).sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_knows_its_error() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((mean.mean, mean.samples), (3.0, 5));
        assert!((mean.error.unwrap() - 0.5f64.sqrt()).abs() < 1e-12);
        // 2.776 is the quantile of four degrees of freedom in every table.
        assert!((mean.reach_95().unwrap() - 2.776 * 0.5f64.sqrt()).abs() < 1e-3);
        assert_eq!((Mean::of(&[]), Mean::of(&[7.0]).unwrap().error), (None, None));
    }

    #[test]
    fn quantiles_fall_to_the_normal_one() {
        let quantiles = (0..90).map(|tenth| student_t(0.975, 10f64.powf(f64::from(tenth) / 10.0)));
        let quantiles: Vec<f64> = quantiles.collect();
        assert!(quantiles.is_sorted_by(|more, less| more >= less), "{quantiles:?}");
        assert!((quantiles[89] - 1.95996).abs() < 1e-5, "{quantiles:?}");
    }

    /// Quantiles of every table: 2.776 of 4, 2.306 of 8 and 1.960 of infinitely many degrees of freedom.
    #[test]
    fn deviations_of_few_samples_reach_further() {
        let reach = |all: &[Deviation]| Deviation::together(all.iter().copied()).unwrap().reach_95();
        let [five, normal] = [Some(5), None].map(|samples| Deviation::of(3.0, samples));
        assert!((reach(&[five]) - 3.0 * 2.776).abs() < 2e-3);
        assert!((reach(&[normal]) - 3.0 * 1.960).abs() < 2e-3);
        // Two alike have the freedom of both; beside a deviation that is far smaller, one has its own.
        assert!((reach(&[five, five]) - 18f64.sqrt() * 2.306).abs() < 2e-3);
        assert!((reach(&[five, normal.times(1e-3)]) - 3.0 * 2.776).abs() < 2e-3);
        assert!((reach(&[five.times(1e-3), normal]) - 3.0 * 1.960).abs() < 2e-3);
        assert_eq!((reach(&[five.times(0.0)]), Deviation::together([])), (0.0, None));
    }

    #[test]
    fn quantiles_fall_with_the_degrees_of_freedom_down_to_the_normal_one() {
        let quantiles: Vec<f64> = (0..=8).map(|power| student_t(0.975, 10f64.powi(power))).collect();
        assert!(quantiles.is_sorted_by(|one, next| one >= next), "{quantiles:?}");
        assert!(quantiles.iter().all(|quantile| *quantile >= 1.9599), "{quantiles:?}");
    }

    #[test]
    fn a_line_has_the_slope_of_its_points() {
        let line = Line::through(&[1.0, 3.0, 5.0, 7.0]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && line.slope_error < 1e-12);
        // By hand: (-2.2 - 2.1 + 3.3 + 10.4) / 10.
        let line = Line::through(&[1.1, 2.1, 3.3, 3.3, 5.2]).unwrap();
        assert!((line.slope - 0.94).abs() < 1e-9, "{line:?}");
        assert_eq!(Line::through(&[1.0, 2.0]), None);
    }
}
