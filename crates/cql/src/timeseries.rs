//! Readings of sensors, after the workload cql-timeseries of NoSQLBench ("baselines.iot").
//!
//! Each column is a function of the number of a cycle, without a state, as in the original:
//!
//! | column | value |
//! |---|---|
//! | `machine_id` | an identifier by the cycle modulo the number of machines |
//! | `sensor_name` | one of a hundred names, by a hash of the cycle |
//! | `time` | the cycle times 100 ms, over the number of machines |
//! | `sensor_value` | normal around 100, with a deviation of 5, by a hash |
//! | `station_id` | an identifier of one of a hundred stations |
//! | `data` | text, which the benchmark gives |
//!
//! The original has 10,000 machines for ten million rows. A smaller table has fewer machines, so that a machine has as
//! many rows as there: a thousand, ten of each sensor.

use crate::timeseries::names::{PLACES, QUANTITIES};

/// Rows of a machine in the original.
const ROWS_PER_MACHINE: u64 = 1_000;
const STATIONS: u64 = 100;
/// Milliseconds that the time of all machines together advances with a cycle.
const TIME_SPEED_MS: u64 = 100;
const MEAN: f64 = 100.0;
const DEVIATION: f64 = 5.0;

mod names {
    pub(super) const PLACES: [&str; 10] =
        ["basin", "boiler", "drain", "duct", "engine", "inlet", "outlet", "rotor", "shaft", "tank"];
    pub(super) const QUANTITIES: [&str; 10] = [
        "acidity",
        "current",
        "flow",
        "humidity",
        "level",
        "pressure",
        "speed",
        "temperature",
        "vibration",
        "voltage",
    ];
}

/// All machines.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    machines: u64,
}

/// One row without its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// 128 bits of an identifier.
    pub machine_id: u128,
    /// The sensor of the machine.
    pub sensor_name: String,
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// The value.
    pub sensor_value: f64,
    /// 128 bits of an identifier.
    pub station_id: u128,
}

impl Series {
    /// The machines of a table of so many rows.
    pub fn of_rows(rows: u64) -> Series {
        Series { machines: (rows / ROWS_PER_MACHINE).max(1) }
    }

    /// The row of a cycle. No two cycles have the same machine and time.
    pub fn reading(&self, cycle: u64) -> Reading {
        let hash = mixed(cycle);
        let (place, quantity) = (hash % 10, hash / 10 % 10);
        Reading {
            machine_id: identifier(cycle % self.machines),
            sensor_name: format!("{}_{}", PLACES[place as usize], QUANTITIES[quantity as usize]),
            time_ms: (u128::from(cycle) * u128::from(TIME_SPEED_MS) / u128::from(self.machines)) as i64,
            sensor_value: MEAN + DEVIATION * normal(hash),
            station_id: identifier(STATIONS + cycle / self.machines % STATIONS),
        }
    }
}

/// An identifier of version 4 by a hash.
fn identifier(number: u64) -> u128 {
    let random = u128::from(mixed(number ^ 0x51a7)) << 64 | u128::from(mixed(number ^ 0x10_7e57));
    random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62
}

/// A hash of 64 bits (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let step = |bits: u64, shift: u32, factor: u64| (bits ^ bits >> shift).wrapping_mul(factor);
    let bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = step(step(bits, 30, 0xbf58_476d_1ce4_e5b9), 27, 0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A number of the normal distribution by a hash (Box and Muller 1958).
fn normal(hash: u64) -> f64 {
    let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (radius, angle) = (unit(mixed(hash)), unit(mixed(!hash)));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const ROWS: u64 = 20_000;

    #[test]
    fn a_sensor_of_a_machine_has_about_ten_rows_and_each_row_its_place() {
        let series = Series::of_rows(ROWS);
        let mut rows: BTreeMap<(u128, String), u64> = BTreeMap::new();
        let mut places = BTreeSet::new();
        for cycle in 0..ROWS {
            let reading = series.reading(cycle);
            assert_eq!(reading, series.reading(cycle));
            places.insert((reading.machine_id, reading.sensor_name.clone(), reading.time_ms));
            *rows.entry((reading.machine_id, reading.sensor_name)).or_default() += 1;
        }
        assert_eq!(places.len() as u64, ROWS, "no row replaces another");
        assert!((1_950..=2_000).contains(&rows.len()), "{} sensors of 20 machines", rows.len());
    }

    #[test]
    fn values_are_normal() {
        let series = Series::of_rows(ROWS);
        let values: Vec<f64> = (0..ROWS).map(|cycle| series.reading(cycle).sensor_value).collect();
        let mean = values.iter().sum::<f64>() / ROWS as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / ROWS as f64;
        assert!((99.8..100.2).contains(&mean) && (4.8..5.2).contains(&variance.sqrt()), "{mean} {variance}");
    }

    #[test]
    fn identifiers_are_of_version_4() {
        let text = format!("{:032x}", identifier(7));
        assert_eq!((&text[12..13], ["8", "9", "a", "b"].contains(&&text[16..17])), ("4", true), "{text}");
        assert_ne!(identifier(7), identifier(8));
    }
}
