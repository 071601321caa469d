//! Workloads like those of cache clusters at Twitter: length of values, shares of operations, and skew.
//!
//! A profile is no trace. Keys are requested by Zipf's law with the cluster's alpha, or all alike where alpha is 0 or
//! not published. Values have one length, the published one. Requests of memcached become operations so that the number
//! of keys stays: `get` and `gets` read; `set`, `add`, `cas`, `prepend` and `append` write a whole value; `incr` and
//! `decr` read and write; `delete` deletes. The notes of a row say what a run leaves out.

use crate::data::keys::{KeyShape, Keys};
use crate::data::values::ValueBytes;
use crate::workload::distribution::Distribution;
use crate::workload::mix::Mix;
use crate::workload::{Settings, Workload};

const SHEET: &str = include_str!("../../sheets/twitter-2020.tsv");
const PREFIX: &str = "twitter-";

/// One line of the sheet. `None` is what was not published.
struct Profile {
    name: String,
    key_bytes: usize,
    value_bytes: u64,
    mix: Mix,
    alpha: Option<f64>,
    lifetimes: &'static str,
}

impl Profile {
    /// Nothing for a line without figures.
    fn of(line: &'static str) -> Option<Self> {
        let mut cells = line.split('\t');
        let mut next = || cells.next();
        let name = format!("{PREFIX}{}", next()?);
        let (key_bytes, value_bytes) = (next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Profile {
            name,
            key_bytes,
            value_bytes,
            mix: mix(next()?)?,
            alpha: next()?.parse().ok(),
            lifetimes: next()?,
        })
    }

    fn workload(&self) -> Workload {
        let distribution = match self.alpha {
            Some(theta) if theta > 0.0 => Distribution::Zipfian { theta },
            _ => Distribution::Uniform,
        };
        let bytes = ValueBytes { min: self.value_bytes, max: self.value_bytes };
        Workload {
            settings: Settings {
                key_bytes: Keys::lengths(KeyShape::Decimal)
                    .contains(&self.key_bytes)
                    .then_some(self.key_bytes),
                value_bytes: Some(bytes),
                distribution: Some(distribution),
                ..Settings::default()
            },
            notes: self.notes(),
            ..Workload::of(&self.name, self.mix)
        }
    }

    fn notes(&self) -> Vec<String> {
        let Profile { name, key_bytes, lifetimes, .. } = self;
        let mut notes =
            vec![format!("{name}: values do not expire; their lifetimes were {lifetimes} (time:share)")];
        let lengths = Keys::lengths(KeyShape::Decimal);
        if !lengths.contains(key_bytes) {
            notes.push(format!("{name}: keys have {} B; the cluster's had {key_bytes}", lengths.start()));
        }
        if self.alpha.is_none() {
            notes.push(format!("{name}: the cluster's skew is not published; every key is requested alike"));
        }
        notes
    }
}

fn mix(requests: &str) -> Option<Mix> {
    let mut weights = [0.0; 6];
    for request in requests.split(' ') {
        let (name, share) = request.split_once(':')?;
        let at = match name {
            "get" | "gets" => 0,
            "set" | "add" | "cas" | "prepend" | "append" => 1,
            "delete" => 2,
            "incr" | "decr" => 5,
            _ => return None,
        };
        weights[at] += share.parse::<f64>().ok()?;
    }
    Mix::weighted(weights)
}

fn profiles() -> impl Iterator<Item = Profile> {
    SHEET.lines().filter(|line| !line.starts_with('#')).filter_map(Profile::of)
}

/// The names of all profiles.
pub(crate) fn names() -> impl Iterator<Item = String> {
    profiles().map(|profile| profile.name)
}

/// The workload of a profile.
pub(crate) fn named(name: &str) -> Option<Workload> {
    profiles().find(|profile| profile.name == name).map(|profile| profile.workload())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_with_figures_is_a_workload() {
        // The figures of cluster 5 are not published.
        assert_eq!(
            (names().count(), SHEET.lines().filter(|line| line.starts_with("cluster")).count()),
            (53, 54)
        );
        assert!(named("twitter-cluster5").is_none());
        let counting = named("twitter-cluster22").unwrap();
        assert_eq!(counting.mix, Mix::weighted([0.72, 0.1, 0.0, 0.0, 0.0, 0.18]).unwrap());
        assert_eq!(counting.settings.value_bytes, Some(ValueBytes { min: 4, max: 4 }));
        assert_eq!(counting.settings.distribution, Some(Distribution::Zipfian { theta: 0.7624 }));
    }

    #[test]
    fn what_a_run_leaves_out_is_noted() {
        let notes = |cluster: &str| named(cluster).unwrap().notes.join("\n");
        for (cluster, words) in [
            ("twitter-cluster43", "lifetimes were 8h:1.00"),
            ("twitter-cluster43", "skew is not published"),
            ("twitter-cluster45", "keys have 16 B; the cluster's had 10"),
        ] {
            assert!(notes(cluster).contains(words), "{words}: {}", notes(cluster));
        }
        assert!(!notes("twitter-cluster43").contains("keys have"));
        assert_eq!(named("twitter-cluster43").unwrap().settings.key_bytes, Some(44));
    }
}
