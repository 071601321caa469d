//! All that was measured of a unit or a platform, and how the command tells it.

use std::fmt;

use serde_json::Value as Json;

use crate::mbwu::limit::Shares;
use crate::mbwu::origin::Origin;
use crate::mbwu::power::Power;
use crate::mbwu::rounds::{Round, threads_of};
use crate::results::table::{grouped, wrapped};
use crate::statistics::Mean;

/// All that was measured of the unit or of a platform.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The platform, or `unit`.
    pub name: String,
    /// Its stage; empty for the unit.
    pub stage: String,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The rounds that the figures are of: those at the end that are steady, or all.
    pub counted: usize,
    /// Operations per second: the mean over these rounds.
    pub throughput: Mean,
    /// Why there is no verdict, because something was not steady or did not saturate: a sentence without its end.
    pub unsteady: Option<String>,
    /// How much of each resource was in use.
    pub shares: Shares,
    /// The mean power; nothing if no meter and no model tells.
    pub power: Option<Power>,
    /// Processors that other programs kept busy meanwhile.
    pub others_cores: Option<f64>,
    /// The machine.
    pub machine: Json,
}

/// More than this, of other programs, and figures are not those of the work.
const OTHERS_CORES_MAX: f64 = 0.2;

/// Processors that neither the run nor the servers that it asked kept busy.
pub(crate) fn others_cores(rounds: &[Round]) -> Option<f64> {
    let of = |round: &Round| {
        let measured = &round.measurement;
        let servers = measured.servers.map_or(Some(0.0), |servers| servers.cpu_sec)?;
        let own = (measured.usage.cpu_sec() + servers) / measured.wall_sec;
        Some((measured.machine.busy_cores(&[])? - own).max(0.0))
    };
    let all: Option<Vec<f64>> = rounds.iter().map(of).collect();
    Some(Mean::of(&all?)?.mean)
}

impl Measured {
    /// The origin of its rounds.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.rounds.first().map(|round| round.origin.clone())
    }

    /// Everything in sentences, as lines that fit a terminal.
    pub fn to_text(&self) -> String {
        wrapped(&self.to_string())
    }

    /// What limits it, and of the unit whether that makes it one: a sentence.
    pub(crate) fn limit_in_words(&self) -> String {
        match self.stage.is_empty() && self.unsteady.is_none() {
            true => self.shares.verdict(),
            false => format!("It was {}.", self.shares),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if self.stage.is_empty() { String::new() } else { format!(" ({})", self.stage) };
        let per_sec = grouped(self.throughput.mean, 0);
        write!(f, "{}{stage}: {per_sec} operations per second", self.name)?;
        if let Some(reach) = self.throughput.reach_95() {
            write!(f, ", with 95 % within {}", grouped(reach, 0))?;
        }
        write!(f, ", with {} thread(s)", threads_of(&self.rounds))?;
        let (counted, rounds) = (self.counted, self.rounds.len());
        match &self.unsteady {
            None if counted < rounds => write!(f, "; the last {counted} of {rounds} rounds, steady. ")?,
            None => write!(f, "; {rounds} rounds, steady. ")?,
            Some(why) => write!(f, "; {rounds} round(s). WITHOUT A VERDICT: {why}. ")?,
        }
        f.write_str(&self.limit_in_words())?;
        if let Some(prepared) = self.rounds.first().and_then(|round| round.origin.preparation_in_words()) {
            write!(f, " {prepared}")?;
        }
        if let Some(power) = &self.power {
            write!(f, " Power: {power}.")?;
        }
        if let Some(cores) = self.others_cores.filter(|cores| *cores > OTHERS_CORES_MAX) {
            write!(f, " OTHER PROGRAMS kept {cores:.1} processors busy meanwhile.")?;
        }
        let missing = self.rounds.first().map_or(Vec::new(), |round| round.measurement.machine.missing());
        match missing.is_empty() {
            true => Ok(()),
            false => write!(f, " Without a meter: {}.", missing.join(", ")),
        }
    }
}
