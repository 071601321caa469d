//! Means with what is known of their errors, and tests on series of measurements.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

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
        self.error.map(|error| error * student_t(0.975, self.samples - 1))
    }
}

/// The quantile of Student's t distribution.
pub(crate) fn student_t(share: f64, freedom: usize) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, freedom.max(1) as f64);
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
    fn a_line_has_the_slope_of_its_points() {
        let line = Line::through(&[1.0, 3.0, 5.0, 7.0]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && line.slope_error < 1e-12);
        // By hand: (-2.2 - 2.1 + 3.3 + 10.4) / 10.
        let line = Line::through(&[1.1, 2.1, 3.3, 3.3, 5.2]).unwrap();
        assert!((line.slope - 0.94).abs() < 1e-9, "{line:?}");
        assert_eq!(Line::through(&[1.0, 2.0]), None);
    }
}
