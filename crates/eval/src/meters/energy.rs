//! Energy by the machine's own meters: the counters of RAPL, or else the power sensors of hwmon.
//!
//! Meters overlap. So of RAPL a sum has the packages and their DRAM, which lies outside of a package's energy. Cores
//! and graphics are parts of a package. `psys` is left out: it is the whole platform with packages and DRAM in it, and
//! few boards have it. Of one sensor with several files a sum has one.
//!
//! Of a supply that measures its input and its outputs, a sum has the input. Beyond that, the kernel does not say which
//! sensors of hwmon overlap, so a sum has them all. The sensor of a whole board counts the joules of its graphics card
//! once more. `watts_of` in results names the sensors, so that a reader can tell.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The counter of a domain of RAPL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Counter {
    microjoules: u64,
    /// The count after which the counter begins anew.
    range: u64,
}

impl Counter {
    fn joules_since(&self, before: &Counter) -> f64 {
        let grown = match self.microjoules.checked_sub(before.microjoules) {
            Some(grown) => grown,
            None => self.microjoules + self.range.saturating_sub(before.microjoules),
        };
        grown as f64 / 1e6
    }
}

/// The domains of RAPL that are added, by names such as `package-0` and `package-0/dram`. `powercap` is the folder of
/// the kernel's zones.
pub(crate) fn domains(powercap: &Path) -> Option<BTreeMap<String, Counter>> {
    let mut domains = BTreeMap::new();
    for zone in entries(powercap) {
        // intel-rapl:0 is a zone, and intel-rapl:0:1 a part of it.
        let (Some(name), Some(number)) = (text(zone.join("name")), zone_number(&zone)) else { continue };
        let name = match number.split_once(':') {
            None if name.starts_with("package") => name,
            Some((package, _)) if name == "dram" => {
                let Some(package) = text(powercap.join(format!("intel-rapl:{package}/name"))) else {
                    continue;
                };
                format!("{package}/{name}")
            }
            _ => continue,
        };
        domains.extend(counter(&zone).map(|counter| (name, counter)));
    }
    (!domains.is_empty()).then_some(domains)
}

fn zone_number(zone: &Path) -> Option<&str> {
    zone.file_name()?.to_str()?.strip_prefix("intel-rapl:")
}

fn counter(zone: &Path) -> Option<Counter> {
    let number = |file| text(zone.join(file))?.parse().ok();
    Some(Counter { microjoules: number("energy_uj")?, range: number("max_energy_range_uj")? })
}

/// The watts of each sensor of power, by names such as `hwmon3/amdgpu/power1`. An average holds time from before the
/// reading, so it stands in only where a sensor has no value of the moment.
pub(crate) fn sensors(hwmon: &Path) -> Option<BTreeMap<String, f64>> {
    let sensors: BTreeMap<String, f64> = entries(hwmon).iter().flat_map(|chip| sensors_of(chip)).collect();
    (!sensors.is_empty()).then_some(sensors)
}

/// Sensors of one chip. A supply on PMBus labels its input `pin`, and its outputs `pout1` and so on, all of whose power
/// comes out of the input (the kernel's `Documentation/hwmon/pmbus.rst`).
fn sensors_of(chip: &Path) -> BTreeMap<String, f64> {
    let mut watts = BTreeMap::new();
    for kind in ["_average", "_input"] {
        watts.extend(entries(chip).iter().filter_map(|file| watts_in(file, kind)));
    }
    let label = |sensor: &String| text(chip.join(format!("{sensor}_label"))).unwrap_or_default();
    if watts.keys().any(|sensor| label(sensor).starts_with("pin")) {
        watts.retain(|sensor, _| !label(sensor).starts_with("pout"));
    }
    let folder = chip.file_name().unwrap_or_default().to_string_lossy();
    let name = text(chip.join("name")).unwrap_or_default();
    watts.into_iter().map(|(sensor, watts)| (format!("{folder}/{name}/{sensor}"), watts)).collect()
}

/// The name of a sensor such as `power1`, and its watts.
fn watts_in(file: &Path, kind: &str) -> Option<(String, f64)> {
    let sensor = file.file_name()?.to_str()?.strip_suffix(kind).filter(|name| name.starts_with("power"))?;
    let microwatts: u64 = text(file.to_owned())?.parse().ok()?;
    Some((sensor.to_owned(), microwatts as f64 / 1e6))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn text(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The joules of all domains between two readings. Nothing where the readings have not the same domains.
pub(crate) fn joules_of_domains(
    now: &BTreeMap<String, Counter>,
    then: &BTreeMap<String, Counter>,
) -> Option<f64> {
    sum(now, then, |now, then| now.joules_since(then))
}

/// The joules of all sensors between two readings `sec` seconds apart, of which each sensor's power is taken to change
/// steadily. Nothing where the readings have not the same sensors.
pub(crate) fn joules_of_sensors(
    now: &BTreeMap<String, f64>,
    then: &BTreeMap<String, f64>,
    sec: f64,
) -> Option<f64> {
    sum(now, then, |now, then| (now + then) / 2.0 * sec)
}

fn sum<T>(now: &BTreeMap<String, T>, then: &BTreeMap<String, T>, of: impl Fn(&T, &T) -> f64) -> Option<f64> {
    let are_same = now.keys().eq(then.keys());
    are_same.then(|| now.values().zip(then.values()).map(|(now, then)| of(now, then)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    /// A machine with two packages, parts of them, DRAM and the whole platform; counts in joules.
    fn powercap(folder: &Path, counts: &[(&str, &str, u64)]) -> Option<BTreeMap<String, Counter>> {
        for (zone, name, joules) in counts {
            let count = format!("{}", joules * 1_000_000);
            let file = |file: &str| format!("{zone}/{file}");
            write(
                folder,
                &[
                    (&file("name"), name),
                    (&file("energy_uj"), &count),
                    (&file("max_energy_range_uj"), "100000000"),
                ],
            );
        }
        domains(folder)
    }

    #[test]
    fn energy_is_that_of_packages_and_their_dram_even_if_a_count_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!((domains(&folder.join("none")), domains(folder)), (None, None));
        let of = |package, core, dram, other, psys| {
            let counts = [
                ("intel-rapl:0", "package-0", package),
                ("intel-rapl:0:0", "core", core),
                ("intel-rapl:0:1", "dram", dram),
                ("intel-rapl:1", "package-1", other),
                ("intel-rapl:2", "psys", psys),
                ("intel-rapl-mmio:0", "package-0", package),
            ];
            powercap(folder, &counts).unwrap()
        };
        let then = of(90, 10, 20, 50, 30);
        let now = of(20, 15, 24, 55, 80);
        let names: Vec<&str> = now.keys().map(String::as_str).collect();
        assert_eq!(names, ["package-0", "package-0/dram", "package-1"]);
        assert_eq!(joules_of_domains(&now, &then), Some(30.0 + 4.0 + 5.0));
        let fewer = now.iter().take(1).map(|(name, counter)| (name.clone(), *counter)).collect();
        assert_eq!(joules_of_domains(&now, &fewer), None, "a sum of other domains");
    }

    #[test]
    fn the_energy_of_a_platform_alone_is_no_sum() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(powercap(folder.path(), &[("intel-rapl:0", "psys", 5)]), None);
    }

    #[test]
    fn sensors_of_power_are_added_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(sensors(folder), None);
        write(
            folder,
            &[
                ("hwmon0/name", "ina"),
                ("hwmon0/power1_input", "5000000"),
                ("hwmon0/power1_average", "4000000"),
                ("hwmon0/power2_input", "1000000"),
                ("hwmon1/name", "acpi"),
                ("hwmon1/power1_average", "2500000"),
                ("hwmon1/power1_average_max", "9000000"),
                ("hwmon1/temp1_input", "40000"),
            ],
        );
        let found = sensors(folder).unwrap();
        let expected = [("hwmon0/ina/power1", 5.0), ("hwmon0/ina/power2", 1.0), ("hwmon1/acpi/power1", 2.5)];
        assert_eq!(found, expected.map(|(name, watts)| (name.to_owned(), watts)).into());
        let idle = found.keys().map(|name| (name.clone(), 0.0)).collect();
        assert_eq!(joules_of_sensors(&found, &idle, 2.0), Some(8.5));
    }

    #[test]
    fn the_outputs_of_a_supply_lie_in_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(
            folder,
            &[
                ("hwmon0/name", "pfe1100"),
                ("hwmon0/power1_label", "pin"),
                ("hwmon0/power1_input", "100000000"),
                ("hwmon0/power2_label", "pout1"),
                ("hwmon0/power2_input", "90000000"),
                ("hwmon1/name", "tps53679"),
                ("hwmon1/power1_label", "pout1"),
                ("hwmon1/power1_input", "30000000"),
                ("hwmon1/power2_label", "pout2"),
                ("hwmon1/power2_input", "3000000"),
            ],
        );
        let expected = [
            ("hwmon0/pfe1100/power1", 100.0),
            ("hwmon1/tps53679/power1", 30.0),
            ("hwmon1/tps53679/power2", 3.0),
        ];
        let expected = expected.map(|(name, watts)| (name.to_owned(), watts)).into();
        assert_eq!(sensors(folder), Some(expected));
    }
}
