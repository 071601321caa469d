//! The mean power of a platform while it worked.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::inputs::Number;
use crate::meters::machine::MachineUse;
use crate::statistics::Mean;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A meter.
    Measured,
    /// A model of the platform.
    Modelled,
    /// A number that the user gave.
    Input,
}

/// A mean power.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// Watts.
    pub watts: f64,
    /// Their standard error, if it is known.
    pub error: Option<f64>,
    /// Where they come from.
    pub source: Source,
    /// The meters that told them: sensors of the machine, or a file of readings. None where nothing was measured.
    #[serde(default)]
    pub meters: Vec<String>,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} W, ", self.watts)?;
        match self.source {
            Source::Measured => write!(f, "measured by {}", self.meters.join(", ")),
            Source::Modelled => f.write_str("modelled"),
            Source::Input => f.write_str("as given"),
        }
    }
}

/// How a platform's power is found, where the machine has no meters of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PowerSheet {
    /// A file of readings of a plug or a power distribution unit.
    pub(crate) csv: Option<PathBuf>,
    /// A model: watts with nothing to do.
    pub(crate) idle_watts: Option<Number>,
    /// And with all processors busy. Between the two, power grows with their busy share.
    pub(crate) busy_watts: Option<Number>,
}

impl PowerSheet {
    /// Checks that there is one way. The error is a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (&self.csv, self.idle_watts, self.busy_watts) {
            (Some(_), None, None) => Ok(()),
            (None, Some(idle), Some(busy)) if idle.0 >= 0.0 && busy.0 >= idle.0 => Ok(()),
            (None, Some(_), Some(busy)) => {
                Err(format!("power.busy_watts is {}; give at least power.idle_watts, from 0 on", busy.0))
            }
            _ => Err("power needs either csv, or both idle_watts and busy_watts".into()),
        }
    }
}

/// The power of a model at a busy share of the processors.
pub(crate) fn modelled(idle_watts: Number, busy_watts: Number, busy: f64) -> Power {
    let watts = idle_watts.0 + (busy_watts.0 - idle_watts.0) * busy;
    Power { watts, error: None, source: Source::Modelled, meters: Vec::new() }
}

/// The mean power of rounds by the meters of the machine itself. Nothing where a round has none, or other meters than
/// the rest: what these tell of may be another part of the machine.
pub(crate) fn by_machines(rounds: &[MachineUse]) -> Option<Power> {
    let meters = &rounds.first()?.joules_of;
    let watts = |round: &MachineUse| round.watts().filter(|_| round.joules_of == *meters);
    let watts: Option<Vec<f64>> = rounds.iter().map(watts).collect();
    let Mean { mean, error, .. } = Mean::of(&watts?)?;
    Some(Power { watts: mean, error, source: Source::Measured, meters: meters.clone() })
}

/// Readings of a meter outside of the machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Readings(Vec<(f64, f64)>);

/// Longer without a reading, nothing is known.
const GAP_SEC: f64 = 10.0;
/// The part of a window that readings must cover.
const COVERED: f64 = 0.9;

impl Readings {
    /// Reads a file with a line for each reading: seconds since 1970 and watts, or seconds, volts, amperes and, where
    /// it is not 1, the power factor. The first line may have names. A reading of nothing at all is one below the
    /// meter's resolution, and counts as it is.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|sentence| Error::Inputs { path: path.to_owned(), sentence })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut readings: Vec<(f64, f64)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let fields: Option<Vec<f64>> = line
                .split(',')
                .map(|field| field.trim().parse().ok().filter(|number: &f64| number.is_finite()))
                .collect();
            let reading = match fields.as_deref() {
                Some([at, watts]) => (*at, *watts),
                Some([at, volts, amperes]) => (*at, volts * amperes),
                Some([at, volts, amperes, factor]) => (*at, volts * amperes * factor),
                None if number == 1 => continue,
                _ => {
                    return Err(format!(
                        "line {number} is `{line}`; give seconds since 1970 and watts, or seconds, volts, amperes \
                         and power factor, between commas"
                    ));
                }
            };
            if reading.1 < 0.0 {
                return Err(format!("line {number} has {} watts; give a number from 0 on", reading.1));
            }
            if readings.last().is_some_and(|(last, _)| *last >= reading.0) {
                return Err(format!(
                    "line {number} is not later than the one before; sort the readings by time"
                ));
            }
            readings.push(reading);
        }
        Ok(Readings(readings))
    }

    /// The mean power over windows, each from one second since 1970 to another. Between two readings, power changes
    /// steadily; before a gap, a reading counts for [`GAP_SEC`]. The error is that of the mean over the windows.
    ///
    /// # Errors
    /// A sentence, if the readings leave more than a tenth of a window uncovered.
    pub(crate) fn mean(&self, windows: &[(f64, f64)]) -> Result<Power, String> {
        let means =
            windows.iter().map(|(from, to)| self.mean_of(*from, *to)).collect::<Result<Vec<f64>, _>>()?;
        let mean = Mean::of(&means).ok_or("nothing was measured yet")?;
        Ok(Power { watts: mean.mean, error: mean.error, source: Source::Measured, meters: Vec::new() })
    }

    fn mean_of(&self, from: f64, to: f64) -> Result<f64, String> {
        let (mut covered, mut joules) = (0.0, 0.0);
        let nexts = self.0.iter().skip(1).map(Some).chain([None]);
        for ((at, watts), next) in self.0.iter().zip(nexts) {
            let (end, per_sec) = match next {
                Some((next, next_watts)) if next - at <= GAP_SEC => {
                    (*next, (next_watts - watts) / (next - at))
                }
                _ => (at + GAP_SEC, 0.0),
            };
            let (start, end) = (at.max(from), end.min(to));
            let sec = (end - start).max(0.0);
            covered += sec;
            joules += sec * (watts + per_sec * ((start + end) / 2.0 - at));
        }
        if covered < (to - from) * COVERED {
            return Err(format!(
                "the readings cover {covered:.0} s of the {:.0} s from {from:.0} to {to:.0} (seconds since 1970); a \
                 reading is good for {GAP_SEC} s, and nine tenths of the window are needed",
                to - from
            ));
        }
        Ok(joules / covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_with_other_meters_have_no_mean_power() {
        let round = |joules: f64, meter: &str| MachineUse {
            sec: 2.0,
            joules: Some(joules),
            joules_of: vec![meter.to_owned()],
            ..MachineUse::default()
        };
        let alike = [round(60.0, "package-0"), round(80.0, "package-0")];
        let power = by_machines(&alike).unwrap();
        assert_eq!((power.watts, power.meters), (35.0, vec!["package-0".to_owned()]));
        let [first, _] = alike;
        // Root may read RAPL, and others the sensor of the board alone.
        assert_eq!(by_machines(&[first.clone(), round(400.0, "hwmon0/acpi/power1")]), None);
        assert_eq!(by_machines(&[first, MachineUse::default()]), None);
        assert_eq!(by_machines(&[]), None);
    }

    #[test]
    fn readings_are_cut_to_the_window() {
        let readings = Readings::parse("time,watts\n100,10\n101,20\n102,30\n\n103,0\n104,50\n").unwrap();
        assert_eq!(readings.mean_of(100.0, 102.0), Ok(20.0));
        assert_eq!(readings.mean_of(100.5, 101.5), Ok(20.0));
        // The readings were 20, 30, 0 and 50 watts. A zero is below what the meter can tell, and counts.
        assert_eq!(readings.mean_of(101.0, 104.0), Ok((25.0 + 15.0 + 25.0) / 3.0));
        let power = readings.mean(&[(100.0, 101.0), (101.0, 102.0)]).unwrap();
        assert_eq!((power.watts, power.error, power.source), (20.0, Some(5.0), Source::Measured));
        let factor = Readings::parse("100,120,0.5,0.9").unwrap();
        assert_eq!(factor.mean_of(100.0, 109.0), Ok(54.0));
    }

    #[test]
    fn gaps_are_told() {
        let readings = Readings::parse("100,10\n200,50").unwrap();
        assert_eq!(readings.mean_of(100.0, 111.0), Ok(10.0), "a tenth may be missing");
        for (from, to) in [(100.0, 140.0), (0.0, 50.0), (300.0, 400.0)] {
            let told = readings.mean_of(from, to).unwrap_err();
            assert!(told.contains("nine tenths of the window are needed"), "{told}");
        }
        assert!(Readings::parse("").unwrap().mean(&[]).is_err());
    }

    #[test]
    fn a_wrong_line_is_told() {
        for (text, expected) in [
            ("100,10\nten,20", "line 2 is `ten,20`"),
            ("100,10\n101", "line 2 is `101`"),
            ("100,10\n99,10", "line 2 is not later"),
            ("100,-3", "line 1 has -3 watts"),
            ("100,nan\n101,nan", "line 2 is `101,nan`"),
        ] {
            let told = Readings::parse(text).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn a_model_grows_with_the_work() {
        let at = |busy| modelled(Number(40.0), Number(100.0), busy);
        assert_eq!((at(0.0).watts, at(0.5).watts, at(1.0).source), (40.0, 70.0, Source::Modelled));
        let sheet = |csv: bool, idle: Option<f64>, busy: Option<f64>| PowerSheet {
            csv: csv.then(|| "f".into()),
            idle_watts: idle.map(Number),
            busy_watts: busy.map(Number),
        };
        assert!(
            sheet(true, None, None).check().is_ok() && sheet(false, Some(1.0), Some(2.0)).check().is_ok()
        );
        for wrong in
            [sheet(true, Some(1.0), None), sheet(false, None, Some(2.0)), sheet(false, Some(3.0), Some(2.0))]
        {
            assert!(wrong.check().is_err());
        }
    }
}
