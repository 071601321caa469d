//! Whether keys are requested as often as YCSB 0.17.0 requests them. `tests/ycsb/Histograms.java` draws with YCSB's own
//! generators; the fixture has 10,000,000 of its draws over 200 keys. `make test-jvm` draws anew over 10,000.
//!
//! Two tests compare two samples. That of Kolmogorov and Smirnov is for continuous data: with ties its p-value is too
//! large, so that it errs on one side. The chi-square test counts each key by itself, and is the sharper one here.

use crate::workload::distribution::{Distribution, KeyLaw};

const FIXTURE: &str = include_str!("../../../tests/fixtures/ycsb-0.17.0.tsv");
const DRAWS_PER_INSERT: u64 = 20;
const P_MIN: f64 = 0.01;

/// A distribution of YCSB and how often it requested each key.
struct Histogram<'a> {
    name: &'a str,
    counts: Vec<u64>,
}

impl<'a> Histogram<'a> {
    fn all(text: &'a str) -> Vec<Self> {
        let line = |line: &'a str| {
            let mut cells = line.split('\t');
            let name = cells.next().unwrap();
            Histogram { name, counts: cells.map(|count| count.parse().unwrap()).collect() }
        };
        text.lines().map(line).collect()
    }
}

/// As many keys drawn by the benchmark; `None` for a name that only YCSB has.
fn ours(name: &str, keys: u64, draws: u64) -> Option<Vec<u64>> {
    let (distribution, inserts) = match name {
        "uniform" => ("uniform", 0),
        "zipfian" => ("zipfian:0.99", 0),
        "scrambled" => ("ycsb-zipfian", 0),
        // YCSB makes room for two keys in place of each that is expected.
        "scrambled-inserting" => ("ycsb-zipfian", keys / 4),
        "hotspot" => ("hot:20:80", 0),
        "latest" | "latest-inserting" => ("ycsb-latest", 0),
        "exponential" => ("exponential", 0),
        _ => return None,
    };
    let distribution: Distribution = distribution.parse().unwrap();
    let mut chooser = KeyLaw::with_inserts(distribution, keys, inserts as f64).chooser(1, 0, 1);
    let (mut counts, mut newest) = (vec![0; keys as usize], keys - 1);
    for drawn in 0..draws {
        let key = match name {
            // Its ranks are scattered here, and not in YCSB.
            "zipfian" => chooser.read_rank(),
            "latest-inserting" => {
                if drawn % DRAWS_PER_INSERT == 0 && newest < keys + keys / 10 {
                    newest += 1;
                    chooser.inserted(newest);
                }
                newest - chooser.read()
            }
            _ => chooser.read(),
        };
        counts[key.min(keys - 1) as usize] += 1;
    }
    Some(counts)
}

/// The probability that two samples of one distribution differ as much in their cumulative shares.
fn kolmogorov_smirnov(a: &[u64], b: &[u64]) -> f64 {
    let [n, m] = [a, b].map(|counts| counts.iter().sum::<u64>() as f64);
    let (mut below, mut farthest) = ([0u64; 2], 0.0f64);
    for (a, b) in a.iter().zip(b) {
        below = [below[0] + a, below[1] + b];
        farthest = farthest.max((below[0] as f64 / n - below[1] as f64 / m).abs());
    }
    let root = (n * m / (n + m)).sqrt();
    let scaled = (root + 0.12 + 0.11 / root) * farthest;
    if scaled < 0.2 {
        return 1.0;
    }
    let term = |k: i32| if k % 2 == 1 { 2.0 } else { -2.0 } * (-2.0 * (f64::from(k) * scaled).powi(2)).exp();
    (1..100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// The probability that two samples of one distribution differ as much in their counts. Keys that come seldom are
/// counted together. The distribution of chi-square is that of a normal one by Wilson and Hilferty.
fn chi_square(a: &[u64], b: &[u64]) -> f64 {
    const COUNT_MIN: u64 = 20;
    let [n, m] = [a, b].map(|counts| counts.iter().sum::<u64>() as f64);
    let (mut sum, mut cells, mut cell) = (0.0, 0u32, [0u64; 2]);
    for (a, b) in a.iter().zip(b) {
        cell = [cell[0] + a, cell[1] + b];
        if cell[0] + cell[1] >= COUNT_MIN {
            let difference = cell[0] as f64 * (m / n).sqrt() - cell[1] as f64 * (n / m).sqrt();
            sum += difference.powi(2) / (cell[0] + cell[1]) as f64;
            cells += 1;
            cell = [0; 2];
        }
    }
    let freedom = f64::from(cells - 1);
    let spread = 2.0 / (9.0 * freedom);
    let normal = ((sum / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    upper_tail(normal)
}

/// The share of a normal distribution above so many standard deviations (Abramowitz and Stegun 26.2.17).
fn upper_tail(deviations: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * deviations.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-deviations.powi(2) / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if deviations > 0.0 { tail } else { 1.0 - tail }
}

/// The smallest p-value of both tests on keys, and of the first on ranks. Ranks are those of both samples together:
/// each sample's own order would take chance for skew.
fn p_value(a: &[u64], b: &[u64]) -> f64 {
    let mut order: Vec<usize> = (0..a.len()).collect();
    order.sort_by_key(|&key| std::cmp::Reverse(a[key] + b[key]));
    let ranked = |counts: &[u64]| order.iter().map(|&key| counts[key]).collect::<Vec<_>>();
    let on_ranks = kolmogorov_smirnov(&ranked(a), &ranked(b));
    println!("on keys {:.3} and {:.3}, on ranks {on_ranks:.3}", kolmogorov_smirnov(a, b), chi_square(a, b));
    [kolmogorov_smirnov(a, b), chi_square(a, b), on_ranks].into_iter().fold(1.0, f64::min)
}

fn check(text: &str, draws: impl Fn(u64) -> u64) {
    let all = Histogram::all(text);
    assert_eq!(all.len(), 8, "distributions");
    for Histogram { name, counts } in all {
        let ours = ours(name, counts.len() as u64, draws(counts.iter().sum())).unwrap();
        let p = p_value(&counts, &ours);
        println!("{name}: p {p:.3}");
        assert!(p > P_MIN, "{name}: p {p}");
    }
}

#[test]
fn keys_come_as_often_as_in_ycsb() {
    // Fewer draws than in the fixture: a build for tests draws slowly.
    check(FIXTURE, |drawn| drawn / 5);
}

#[test]
#[ignore = "draws with YCSB itself, in a JVM: make test-jvm"]
fn keys_come_as_often_as_in_a_ycsb_that_runs() {
    let path =
        std::env::var("ZIPTIER_YCSB_HISTOGRAMS").expect("scripts/test-jvm names the file of histograms");
    check(&std::fs::read_to_string(path).unwrap(), |drawn| drawn);
}

/// What differs by little more than chance is told apart: each distribution from its neighbour.
#[test]
fn other_distributions_are_told_apart() {
    const DRAWS: u64 = 200_000;
    let drawn = |distribution: Distribution, seed| {
        let mut chooser = KeyLaw::new(distribution, 200).chooser(seed, 0, 1);
        let mut counts = vec![0; 200];
        (0..DRAWS).for_each(|_| counts[chooser.read() as usize] += 1);
        counts
    };
    for (one, other) in [
        ("zipfian:0.99", "zipfian:0.97"),
        ("hot:20:80", "hot:20:79"),
        ("ycsb-zipfian", "uniform"),
        ("ycsb-latest", "exponential"),
        ("exponential", "exponential:95:0.83"),
    ] {
        let [one, other] = [one, other].map(|name| name.parse().unwrap());
        let (same, different) =
            (p_value(&drawn(one, 1), &drawn(one, 2)), p_value(&drawn(one, 1), &drawn(other, 2)));
        assert!(same > 1e-3 && different < 1e-4, "{one} and {other}: p {same} and {different}");
    }
}
