//! The file of cases: what may be different from the measured runs.

use serde::Deserialize;

use super::fit::{CORES, Demands};
use super::network::{Speed, Station};
use crate::inputs::{Inputs, Number, above_0, within};

/// Threads of a case, so that a prediction takes seconds at most.
const THREADS_MAX: f64 = 4_096.0;
/// Visits that a station serves at a time: an open station has a probability for each number of them.
const SERVERS_MAX: f64 = 100_000.0;

/// Cases to predict.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIf {
    /// One after the other.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// The work on other cores, with other threads, or with further stations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in results.
    pub name: String,
    /// Threads, each of which waits for one operation after the other.
    pub threads: Option<Number>,
    /// Operations that arrive in a second, instead of threads.
    pub rate: Option<Number>,
    /// Cores that the work may use.
    pub cores: Number,
    /// The CPU time of an operation over that which was measured.
    #[serde(default = "one")]
    pub cpu_factor: Number,
    /// Devices, media and tiers that operations visit.
    #[serde(rename = "station", default)]
    pub stations: Vec<Visited>,
}

/// A device, medium or tier that operations visit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visited {
    /// Its name in results.
    pub name: String,
    /// Visits of an operation: 0.2 if every fifth goes there.
    pub visits: Number,
    /// Microseconds of a visit that waits for no other, away from the cores.
    #[serde(default)]
    pub latency_us: Number,
    /// Visits that it serves at a time.
    pub servers: Option<Number>,
    /// Visits that it serves in a second at most, instead of `servers`.
    pub visits_per_second: Option<Number>,
    /// CPU microseconds that a visit adds; below 0 if it saves some.
    #[serde(default)]
    pub cpu_us: Number,
    /// Whether its figures come from a model.
    #[serde(default)]
    pub is_modelled: bool,
}

fn one() -> Number {
    Number(1.0)
}

impl Inputs for WhatIf {
    fn check(&self) -> Result<(), String> {
        if self.cases.is_empty() {
            return Err("there is no case; add a table [[case]]".into());
        }
        self.cases.iter().try_for_each(Case::check)
    }
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let named = |field: &str| format!("{field} of the case {}", self.name);
        match (self.threads, self.rate) {
            (Some(threads), None) => within(&named("threads"), threads, 1.0, THREADS_MAX)?,
            (None, Some(rate)) => above_0(&named("rate"), rate)?,
            _ => return Err(format!("the case {} needs threads or rate, and not both", self.name)),
        }
        within(&named("cores"), self.cores, 0.1, 100_000.0)?;
        above_0(&named("cpu_factor"), self.cpu_factor)?;
        self.stations.iter().try_for_each(|station| station.check(&self.name))
    }

    /// The network of this case; the error is a sentence.
    pub(super) fn network(&self, demands: &Demands) -> Result<Vec<Station>, String> {
        let saved = |visited: &Visited| visited.visits.0 * visited.cpu_us.0 / 1e6;
        let more: f64 = self.stations.iter().map(saved).sum();
        let cpu_sec = demands.cpu_sec * self.cpu_factor.0 + more;
        if cpu_sec <= 0.0 {
            return Err(format!(
                "the stations of the case {} save {:.3} us of CPU time, and an operation takes {:.3}",
                self.name,
                -more * 1e6,
                demands.cpu_sec * self.cpu_factor.0 * 1e6
            ));
        }
        // Operations that arrive at a rate are no threads that crowd the cores.
        let crowding = self.threads.map_or(0.0, |_| demands.crowding);
        let mut stations = Demands { cpu_sec, crowding, ..demands.clone() }.stations(self.cores.0);
        stations.extend(self.stations.iter().map(Visited::station));
        Ok(stations)
    }
}

impl Visited {
    fn check(&self, case: &str) -> Result<(), String> {
        let named = |field: &str| format!("{field} of the station {} of the case {case}", self.name);
        if self.name == CORES {
            return Err(format!("a station of the case {case} is called {CORES}; give it another name"));
        }
        within(&named("visits"), self.visits, 0.0, 1e6)?;
        within(&named("latency_us"), self.latency_us, 0.0, 1e9)?;
        within(&named("cpu_us"), self.cpu_us, -1e9, 1e9)?;
        if self.servers.is_some() && self.visits_per_second.is_some() {
            return Err(format!("{} is given beside visits_per_second; give one of them", named("servers")));
        }
        if self.servers.or(self.visits_per_second).is_some() {
            above_0(&named("latency_us"), self.latency_us)?;
        }
        self.servers.map_or(Ok(()), |servers| within(&named("servers"), servers, 0.001, SERVERS_MAX))?;
        let Some(rate) = self.visits_per_second else { return Ok(()) };
        above_0(&named("visits_per_second"), rate)?;
        match self.at_a_time(rate) {
            servers if servers <= SERVERS_MAX => Ok(()),
            servers => Err(format!(
                "{} and latency_us make {servers} visits at a time; give numbers that make {SERVERS_MAX} at most",
                named("visits_per_second")
            )),
        }
    }

    /// Little's law: what serves `r` visits in a second, `l` seconds each, serves `r × l` at a time.
    fn at_a_time(&self, rate: Number) -> f64 {
        rate.0 * self.latency_us.0 / 1e6
    }

    fn station(&self) -> Station {
        let at_a_time = self.visits_per_second.map(|rate| self.at_a_time(rate));
        Station {
            name: self.name.clone(),
            demand_sec: self.visits.0 * self.latency_us.0 / 1e6,
            speed: self.servers.map(|servers| servers.0).or(at_a_time).map_or(Speed::Delay, Speed::Servers),
        }
    }
}
