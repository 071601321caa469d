//! Many shards behind clients that choose the shard of each key: how even the load is, and what a further shard moves.
//!
//! The simulation draws requests for keys and gives each key to a shard. The cluster is as fast as its hottest shard
//! allows: its throughput is that of one shard over the hottest one's part of the requests.

use std::str::FromStr;

use serde::Deserialize;

use super::sharding::{Map, Sharding};
use crate::data::keys::{KeyShape, Keys};
use crate::inputs::{Inputs, Number, above_0, error_of, within};
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::statistics::Deviation;
use crate::tco::four_digits;
use crate::workload::distribution::{Distribution, KeyLaw};

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Numbers of shards.
    pub shards: Vec<u32>,
    /// Virtual nodes of a shard on the ring.
    #[serde(default = "ketama")]
    pub virtual_nodes: u32,
    /// Seed of hashes and requests.
    #[serde(default)]
    pub seed: u64,
    /// Operations per second of one shard.
    pub operations_per_second: Number,
    /// Keys.
    pub keys: u32,
    /// Which of them are asked for: uniform, zipfian:THETA, hot:KEYS_PCT:SHARE_PCT.
    pub distribution: String,
    /// Requests that are drawn.
    #[serde(default = "ten_million")]
    pub requests: u32,
}

/// The points of a server on ketama's ring.
fn ketama() -> u32 {
    160
}

fn ten_million() -> u32 {
    10_000_000
}

impl Inputs for Cluster {
    fn check(&self) -> Result<(), String> {
        if self.shards.is_empty() {
            return Err("shards is an empty list; give numbers such as [4, 16, 64]".into());
        }
        let count = |what: &str, count: u32, most: f64| within(what, Number(count.into()), 1.0, most);
        self.shards.iter().try_for_each(|&shards| count("one of shards", shards, 10_000.0))?;
        count("virtual_nodes", self.virtual_nodes, 10_000.0)?;
        count("keys", self.keys, 100e6)?;
        count("requests", self.requests, 1e9)?;
        above_0("operations_per_second", self.operations_per_second)?;
        Distribution::from_str(&self.distribution).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// So many shards, in one of the ways.
#[derive(Debug, Clone, PartialEq)]
pub struct Balance {
    /// The way.
    pub sharding: Sharding,
    /// The shards.
    pub shards: u32,
    /// The most keys of a shard over the mean.
    pub keys_max: f64,
    /// The standard deviation of the keys of a shard over the mean.
    pub keys_deviation: f64,
    /// The most requests of a shard over the mean.
    pub requests_max: f64,
    /// The hottest shard's part of all requests.
    pub hottest_shard: f64,
    /// The hottest key's part.
    pub hottest_key: f64,
    /// The part of the keys that move when a shard is added.
    pub moved: f64,
    /// Operations per second of the cluster.
    pub throughput: f64,
}

/// Simulates every number of shards in every way.
pub fn simulate(cluster: &Cluster) -> Vec<Balance> {
    simulate_with(cluster, &mut |_, _| {})
}

/// Simulates likewise, and tells the parts that are done, and all parts.
fn simulate_with(cluster: &Cluster, progress: &mut dyn FnMut(u64, u64)) -> Vec<Balance> {
    let distribution = cluster.distribution.parse().unwrap_or(Distribution::Uniform);
    let law = KeyLaw::new(distribution, cluster.keys.into());
    let requests = requests(cluster, &law);
    let ways = [Sharding::Ring(cluster.virtual_nodes as usize), Sharding::Jump, Sharding::Slots];
    let cases = cluster.shards.iter().flat_map(|&shards| ways.map(|sharding| (sharding, shards)));
    let all = (ways.len() * cluster.shards.len() + 1) as u64;
    let simulated = cases.zip(1..).map(|((sharding, shards), done)| {
        progress(done, all);
        balance(cluster, &law, &requests, sharding, shards)
    });
    simulated.collect()
}

/// The requests for each key.
fn requests(cluster: &Cluster, law: &KeyLaw) -> Vec<u32> {
    let mut chooser = law.chooser(cluster.seed, 0, 1);
    let mut requests = vec![0; cluster.keys as usize];
    (0..cluster.requests).for_each(|_| requests[chooser.read() as usize] += 1);
    requests
}

fn balance(cluster: &Cluster, law: &KeyLaw, requests: &[u32], sharding: Sharding, shards: u32) -> Balance {
    let seed = cluster.seed;
    let [now, grown] = [shards, shards + 1].map(|shards| Map::new(sharding, shards, seed));
    let mut keys = vec![0.0f64; shards as usize];
    let mut asked = vec![0.0f64; shards as usize];
    let mut moved = 0u32;
    let mut room = Keys::new(KeyShape::Decimal, None).room();
    for (number, &requests) in (0..).zip(requests) {
        let key = room.key(number);
        let shard = now.shard(key, seed);
        keys[shard as usize] += 1.0;
        asked[shard as usize] += f64::from(requests);
        moved += u32::from(grown.shard(key, seed) != shard);
    }
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let all = f64::from(cluster.requests);
    let mean = f64::from(cluster.keys) / f64::from(shards);
    let variance = keys.iter().map(|keys| (keys / mean - 1.0).powi(2)).sum::<f64>() / f64::from(shards);
    // Of keys that are asked for alike, the draws ask for one several times as often.
    let drawn = || f64::from(requests.iter().copied().max().unwrap_or(0)) / all;
    let hottest_key = law.hottest().unwrap_or_else(drawn);
    // Few draws may miss the hottest key, which is on one of the shards.
    let hottest_shard = (most(&asked) / all).max(hottest_key);
    Balance {
        sharding,
        shards,
        keys_max: most(&keys) / mean,
        keys_deviation: variance.sqrt(),
        requests_max: hottest_shard * f64::from(shards),
        hottest_shard,
        hottest_key,
        moved: f64::from(moved) / f64::from(cluster.keys),
        throughput: cluster.operations_per_second.0 / hottest_shard,
    }
}

/// The balances in this format, ending with a newline. `progress` gets the parts that are done, and all parts.
pub fn render_balances(
    cluster: &Cluster,
    table: &toml::Table,
    format: Format,
    progress: &mut dyn FnMut(u64, u64),
) -> String {
    progress(0, 1);
    let all = simulate_with(cluster, progress);
    let error = table.get("operations_per_second").and_then(error_of);
    let error_pct = error.map(|error| error.times(100.0 / cluster.operations_per_second.0));
    let rows = || all.iter().map(|balance| row(balance, error_pct));
    match format {
        Format::Tsv => tsv(rows()),
        Format::Json => format!("{:#}\n", objects(rows())),
        Format::Table => text(cluster, &all, error_pct),
    }
}

fn row(balance: &Balance, error_pct: Option<Deviation>) -> Row {
    let number = |value: f64, decimals| Cell::number(Some(value), decimals);
    vec![
        ("sharding", Cell::Text(balance.sharding.to_string())),
        ("status", Cell::Text("predicted".into())),
        ("shards", Cell::Count(balance.shards.into())),
        ("keys_max_to_mean", number(balance.keys_max, 4)),
        ("keys_deviation_to_mean", number(balance.keys_deviation, 4)),
        ("requests_max_to_mean", number(balance.requests_max, 4)),
        ("hottest_shard_pct", number(balance.hottest_shard * 100.0, 4)),
        // Of 100,000,000 keys that are asked for alike, each has a millionth of a per cent.
        ("hottest_key_pct", number(balance.hottest_key * 100.0, 9)),
        ("qps", number(balance.throughput, 0)),
        ("deviation_pct", Cell::number(error_pct.map(|pct| pct.error), 2)),
        ("deviation_freedom", Cell::freedom(error_pct)),
        ("moved_pct", number(balance.moved * 100.0, 4)),
        ("least_moved_pct", number(100.0 / f64::from(balance.shards + 1), 4)),
    ]
}

fn text(cluster: &Cluster, all: &[Balance], error_pct: Option<Deviation>) -> String {
    const HEADINGS: [[&str; 8]; 2] = [
        ["predicted", "shards", "keys", "requests", "hottest", "ops/s", "of all", "one more"],
        ["", "", "max/mean", "max/mean", "shard %", "cluster", "shards %", "moves %"],
    ];
    let hottest_key = all.first().map_or(0.0, |balance| balance.hottest_key);
    let sure =
        error_pct.map_or_else(String::new, |pct| format!(" (one standard deviation: {:.1} %)", pct.error));
    let title = format!(
        "{} keys, {}, {} requests; {} ops/s of a shard{sure}. The hottest key has {} % of the requests: no sharding \
         does more than {} ops/s.",
        grouped(cluster.keys.into(), 0),
        cluster.distribution,
        grouped(cluster.requests.into(), 0),
        grouped(cluster.operations_per_second.0, 0),
        four_digits(hottest_key * 100.0),
        grouped(cluster.operations_per_second.0 / hottest_key, 0)
    );
    let mut lines: Vec<Vec<String>> = HEADINGS.map(|line| line.map(str::to_owned).to_vec()).into();
    lines.extend(all.iter().map(|balance| {
        vec![
            balance.sharding.to_string(),
            balance.shards.to_string(),
            format!("{:.3}", balance.keys_max),
            format!("{:.3}", balance.requests_max),
            format!("{:.3}", balance.hottest_shard * 100.0),
            grouped(balance.throughput, 0),
            format!("{:.1}", 100.0 / balance.requests_max),
            format!("{:.3}", balance.moved * 100.0),
        ]
    }));
    wrapped(&title) + &aligned(&lines, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(shards: u32, virtual_nodes: u32, distribution: &str) -> Cluster {
        Cluster {
            shards: vec![shards],
            virtual_nodes,
            seed: 7,
            operations_per_second: Number(1_000.0),
            keys: 200_000,
            distribution: distribution.into(),
            requests: 1_000_000,
        }
    }

    #[test]
    fn each_part_of_a_simulation_is_told() {
        let mut told = Vec::new();
        let two = Cluster { shards: vec![2, 3], requests: 100, keys: 100, ..cluster(2, 160, "uniform") };
        let text =
            render_balances(&two, &toml::Table::new(), Format::Tsv, &mut |done, all| told.push((done, all)));
        assert_eq!(text.lines().count(), 7, "{text}");
        assert_eq!(told, [(0, 1), (1, 7), (2, 7), (3, 7), (4, 7), (5, 7), (6, 7)]);
    }

    #[test]
    fn a_further_shard_moves_one_part_of_n_plus_1() {
        for shards in [1, 9, 99] {
            for balance in simulate(&cluster(shards, 160, "uniform")) {
                let expected = 1.0 / f64::from(shards + 1);
                // The new shard's arcs on a ring differ by one part in the root of 160, and so does what it takes.
                let error = (balance.moved / expected - 1.0).abs();
                assert!(
                    error < 4.0 / 160f64.sqrt(),
                    "{}: {} instead of {expected}",
                    balance.sharding,
                    balance.moved
                );
            }
        }
    }

    /// The arcs of a shard are the sum of `v` gaps between random points: their deviation is one over the root of `v`.
    #[test]
    fn a_ring_is_as_even_as_its_virtual_nodes_make_it() {
        for virtual_nodes in [10, 40, 160] {
            let [ring, jump, _] = simulate(&cluster(200, virtual_nodes, "uniform")).try_into().unwrap();
            // 1,000 keys of a shard vary by themselves, as in jump hashing.
            let expected = (1.0 / f64::from(virtual_nodes) + 1e-3).sqrt();
            assert!(
                (ring.keys_deviation / expected - 1.0).abs() < 0.15,
                "{} {expected}",
                ring.keys_deviation
            );
            assert!((jump.keys_deviation / 1e-3f64.sqrt() - 1.0).abs() < 0.15, "{}", jump.keys_deviation);
        }
    }

    #[test]
    fn the_hottest_key_bounds_the_cluster() {
        for balance in simulate(&cluster(1_000, 160, "zipfian:0.99")) {
            // By Zipf's law: 1 over the sum of 1 / i^0.99 up to 200,000.
            assert!((balance.hottest_key / 0.0738 - 1.0).abs() < 0.02, "{}", balance.hottest_key);
            assert!(balance.hottest_shard >= balance.hottest_key && balance.hottest_shard < 0.12);
            assert!((balance.throughput * balance.hottest_shard / 1_000.0 - 1.0).abs() < 1e-9);
        }
        for balance in simulate(&cluster(4, 160, "uniform")) {
            assert!(balance.throughput > 3_300.0 && balance.throughput <= 4_000.0, "{}", balance.throughput);
        }
    }

    /// A million requests ask for some of 200,000 keys four times as often as for the mean of them.
    #[test]
    fn the_hottest_of_keys_that_are_alike_is_no_hotter_than_the_others() {
        // The newest of exponential keys has twice the share of the oldest here, and ln 4 times that of the mean.
        let [even, hot, newest] = [1.0 / 200_000.0, 0.6 / 100_000.0, 2f64.ln() / 100_000.0];
        for (distribution, share) in [("uniform", even), ("hot:50:60", hot), ("exponential:50:1", newest)] {
            for balance in simulate(&cluster(4, 160, distribution)) {
                assert!((balance.hottest_key / share - 1.0).abs() < 1e-5, "{}", balance.hottest_key);
            }
        }
    }

    /// A hundred requests ask for the hottest key less often than by the law in many simulations.
    #[test]
    fn no_cluster_does_more_than_its_hottest_key_allows() {
        for seed in 0..20 {
            let few = Cluster { seed, keys: 1_000, requests: 100, ..cluster(100, 160, "zipfian:0.99") };
            for balance in simulate(&few) {
                assert!(balance.hottest_shard >= balance.hottest_key, "{balance:?}");
            }
        }
    }

    #[test]
    fn the_share_of_one_of_many_keys_is_not_zero() {
        let balance = simulate(&cluster(4, 160, "uniform")).remove(0);
        let cells = row(&Balance { hottest_key: 1e-8, ..balance }, None);
        let (_, share) = cells.iter().find(|(name, _)| *name == "hottest_key_pct").unwrap();
        assert_eq!(share.to_tsv(), "0.000001000");
    }

    #[test]
    fn a_wrong_file_is_told_by_its_field() {
        let right = "shards = [4]\noperations_per_second = 1\nkeys = 10\ndistribution = 'uniform'";
        assert!(Cluster::parse(right).is_ok());
        for (from, to, expected) in [
            ("[4]", "[0]", "one of shards is 0; give a number from 1 to 10000"),
            ("uniform", "even", "unknown distribution `even`"),
            ("keys", "key", "line 3: unknown field `key`"),
            ("second = 1", "second = -1", "operations_per_second is -1; give a number above 0"),
        ] {
            let told = Cluster::parse(&right.replacen(from, to, 1)).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }
}
