//! YCSB's workloads: its property files, and its six published ones by name.
//!
//! A record is one value here. Its bytes are those of its fields, `fieldcount` times `fieldlength`; names of fields and
//! what a binding of YCSB adds to them are left out. So a read reads all fields, and an update writes all of them.
//!
//! Properties that change what is measured are either understood or refused. Those that only choose how YCSB reports,
//! or that its core workload never reads, are accepted and mean nothing.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use crate::data::keys::{KEY_BYTES_MAX, KeyShape};
use crate::data::values::ValueBytes;
use crate::error::Error;
use crate::workload::distribution::{Distribution, EXPONENTIAL_FRACTION, EXPONENTIAL_PERCENTILE};
use crate::workload::mix::Mix;
use crate::workload::pace::Pace;
use crate::workload::scan::ScanLength;
use crate::workload::{LoadOrder, Settings, Workload};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// More fields, or longer ones, make no value that fits.
const NUMBER_MAX: u64 = 2_000_000_000;
/// Bytes of a key before its digits.
const KEY_PREFIX_BYTES: u64 = 4;

/// The published workloads, without the numbers of records and operations: these are 1,000 there.
const PRESETS: [(&str, &str); 7] = [
    ("ycsb-a", "readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=zipfian"),
    ("ycsb-b", "readproportion=0.95\nupdateproportion=0.05\nrequestdistribution=zipfian"),
    ("ycsb-c", "readproportion=1\nupdateproportion=0\nrequestdistribution=zipfian"),
    ("ycsb-d", "readproportion=0.95\nupdateproportion=0\ninsertproportion=0.05\nrequestdistribution=latest"),
    (
        "ycsb-e",
        "readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\n\
         requestdistribution=zipfian\nmaxscanlength=100",
    ),
    (
        "ycsb-f",
        "readproportion=0.5\nupdateproportion=0\nreadmodifywriteproportion=0.5\nrequestdistribution=zipfian",
    ),
    // The prototype of MBWU: 40 GiB are 10,444,959 records.
    (
        "mbwu-slides",
        "readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=zipfian\nfieldcount=1\nfieldlength=4096\n\
         insertorder=ordered\nzeropadding=12",
    ),
];

/// Properties that change nothing here.
const HARMLESS: [&str; 22] = [
    "table",
    "columnfamily",
    "fieldnameprefix",
    "readallfieldsbyname",
    "writeallfields",
    "dataintegrity",
    "core_workload_insertion_retry_limit",
    "core_workload_insertion_retry_interval",
    "core_workload_insertion_keep_going_on_error",
    "maxscanrate",
    "scanoptimelimit",
    "discardscannedrecord",
    "measurementtype",
    "histogram.buckets",
    "timeseries.granularity",
    "exporter",
    "exportfile",
    "status.interval",
    "status",
    "label",
    "reportlatencyforeacherror",
    "latencytrackederrors",
];
const HARMLESS_FAMILIES: [&str; 3] = ["measurement.", "hdrhistogram.", "htrace."];

/// The names of the published workloads.
pub(crate) fn presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// A published workload.
pub(crate) fn preset(name: &str) -> Option<Workload> {
    let (name, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(Properties::of(text).workload(name).expect("a test reads every preset"))
}

impl Workload {
    /// Reads a property file of YCSB.
    ///
    /// # Errors
    /// The file cannot be read, or has a property that is unknown, unsupported or malformed; the sentence names its
    /// line.
    pub fn from_ycsb_file(path: &Path) -> Result<Self, Error> {
        let wrong = |sentence| Error::Inputs { path: path.to_owned(), sentence };
        let mut text = String::new();
        let opened = File::open(path).map(|file| file.take(FILE_BYTES_MAX + 1));
        opened.and_then(|mut file| file.read_to_string(&mut text)).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("a property file has at most {FILE_BYTES_MAX} bytes")));
        }
        let name = path.file_name().map_or_else(|| "ycsb".into(), |name| name.to_string_lossy());
        Properties::of(&text).workload(&name).map_err(wrong)
    }
}

/// One property and its line.
struct Property {
    line: usize,
    name: String,
    value: String,
}

impl Property {
    fn wrong(&self, what: &str) -> String {
        format!("line {}, {}={}: {what}", self.line, self.name, self.value)
    }

    fn parsed<N: FromStr>(&self, expected: &str, is_right: impl Fn(&N) -> bool) -> Result<N, String> {
        self.value.parse().ok().filter(is_right).ok_or_else(|| self.wrong(expected))
    }
}

/// The properties of a file, in its order. Of two with one name the later counts.
struct Properties(Vec<Property>);

impl Properties {
    /// The format of Java: names end with `=`, `:` or white space, `\` goes on in the next line, `#` and `!` begin
    /// comments.
    fn of(text: &str) -> Self {
        let mut properties = Vec::new();
        let mut lines = (1..).zip(text.lines());
        while let Some((line, first)) = lines.next() {
            let first = first.trim_start();
            if first.is_empty() || first.starts_with(['#', '!']) {
                continue;
            }
            let mut whole = first.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                let Some((_, next)) = lines.next() else { break };
                whole += next.trim_start();
            }
            let name_end = whole.find(|c: char| c == '=' || c == ':' || c.is_whitespace());
            let (name, rest) = whole.split_at(name_end.unwrap_or(whole.len()));
            let rest = rest.trim_start();
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
            properties.push(Property { line, name: name.to_owned(), value: value.to_owned() });
        }
        Properties(properties)
    }

    fn get(&self, name: &str) -> Option<&Property> {
        self.0.iter().rev().find(|property| property.name == name)
    }

    fn number(&self, name: &str, least: u64) -> Result<Option<u64>, String> {
        let expected = format!("give a whole number, {least} to {NUMBER_MAX}");
        let range = |number: &u64| (least..=NUMBER_MAX).contains(number);
        self.get(name).map(|property| property.parsed(&expected, range)).transpose()
    }

    /// A number between 0 and 1.
    fn fraction(&self, name: &str, unless_given: f64) -> Result<f64, String> {
        let range = |part: &f64| *part > 0.0 && *part < 1.0;
        let expected = "give a number above 0 and below 1";
        self.get(name).map_or(Ok(unless_given), |property| property.parsed(expected, range))
    }

    fn workload(&self, name: &str) -> Result<Workload, String> {
        self.0.iter().try_for_each(known)?;
        let records = self.number("recordcount", 1)?;
        for (name, only) in
            [("insertstart", Some(0)), ("insertcount", records), ("maxexecutiontime", Some(0))]
        {
            if let Some(property) = self.get(name)
                && self.number(name, 0)? != only
            {
                return Err(property.wrong(
                    "a run loads all records and ends by operationcount; leave it out, and give --seconds for a window \
                     that ends by time",
                ));
            }
        }
        let is_ordered = self.is_ordered()?;
        let target = self.number("target", 0)?.filter(|rate| *rate > 0);
        Ok(Workload {
            name: name.into(),
            mix: self.mix()?,
            load: if is_ordered { LoadOrder::Sequential } else { LoadOrder::Random },
            scan: self.scan_length()?,
            settings: Settings {
                keys: records,
                operations: self.number("operationcount", 1)?,
                key_shape: Some(if is_ordered { KeyShape::YcsbOrdered } else { KeyShape::Ycsb }),
                key_bytes: self.key_bytes()?,
                value_bytes: Some(self.value_bytes()?),
                distribution: Some(self.distribution()?),
                threads: self.number("threadcount", 1)?,
                pace: target.map(|rate| Pace::Rate(rate as f64)),
                ..Settings::default()
            },
            notes: Vec::new(),
        })
    }

    fn mix(&self) -> Result<Mix, String> {
        let share = |name: &str, unless_given: f64| {
            let range = |share: &f64| (0.0..=1e9).contains(share);
            let expected = "give a share, such as 0.5";
            self.get(name).map_or(Ok(unless_given), |property| property.parsed(expected, range))
        };
        let weights = [
            share("readproportion", 0.95)?,
            share("updateproportion", 0.05)?,
            0.0,
            share("scanproportion", 0.0)?,
            share("insertproportion", 0.0)?,
            share("readmodifywriteproportion", 0.0)?,
        ];
        Mix::weighted(weights)
            .ok_or_else(|| "no operation has a share: give readproportion=1, or another proportion".into())
    }

    fn value_bytes(&self) -> Result<ValueBytes, String> {
        let fields = self.number("fieldcount", 1)?.unwrap_or(10);
        let length = self.number("fieldlength", 1)?.unwrap_or(100);
        let least = self.number("minfieldlength", 0)?.unwrap_or(1);
        let max = fields.saturating_mul(length);
        let min = match self.get("fieldlengthdistribution") {
            None => max,
            Some(property) => match property.value.as_str() {
                "constant" => max,
                "uniform" if fields == 1 && least <= length => least,
                "uniform" => {
                    return Err(property.wrong(
                        "the length of a record is spread evenly only with fieldcount=1 and minfieldlength up to \
                         fieldlength",
                    ));
                }
                _ => return Err(property.wrong("known: constant, uniform")),
            },
        };
        if max > u64::from(u32::MAX) {
            return Err(format!(
                "fieldcount times fieldlength is {max} bytes: a value has at most {}",
                u32::MAX
            ));
        }
        Ok(ValueBytes { min, max })
    }

    fn scan_length(&self) -> Result<ScanLength, String> {
        let max = self.number("maxscanlength", 1)?.unwrap_or(1_000);
        let min = self.number("minscanlength", 1)?.unwrap_or(1);
        if let Some(property) = self.get("minscanlength")
            && min > max
        {
            return Err(property.wrong("give at most maxscanlength"));
        }
        let prefers_short = match self.get("scanlengthdistribution") {
            None => false,
            Some(property) => match property.value.as_str() {
                "uniform" => false,
                "zipfian" => true,
                _ => return Err(property.wrong("known: uniform, zipfian")),
            },
        };
        Ok(ScanLength { min, max, prefers_short })
    }

    fn distribution(&self) -> Result<Distribution, String> {
        let Some(property) = self.get("requestdistribution") else { return Ok(Distribution::Uniform) };
        Ok(match property.value.as_str() {
            "uniform" => Distribution::Uniform,
            "zipfian" => Distribution::YcsbZipfian,
            "latest" => Distribution::YcsbLatest,
            "sequential" => Distribution::Sequential,
            "hotspot" => Distribution::Hot {
                keys_pct: self.fraction("hotspotdatafraction", 0.2)? * 100.0,
                share_pct: self.fraction("hotspotopnfraction", 0.8)? * 100.0,
            },
            "exponential" => Distribution::Exponential {
                percentile: match self.get("exponential.percentile") {
                    None => EXPONENTIAL_PERCENTILE,
                    Some(property) => property
                        .parsed("give a number above 0 and below 100", |pct| *pct > 0.0 && *pct < 100.0)?,
                },
                fraction: self.fraction("exponential.frac", EXPONENTIAL_FRACTION)?,
            },
            _ => {
                let known = "known: uniform, zipfian, latest, hotspot, sequential, exponential";
                return Err(property.wrong(known));
            }
        })
    }

    /// Whether keys are in the order of their insertion.
    fn is_ordered(&self) -> Result<bool, String> {
        let Some(property) = self.get("insertorder") else { return Ok(false) };
        match property.value.as_str() {
            "hashed" => Ok(false),
            "ordered" => Ok(true),
            _ => Err(property.wrong("known: hashed, ordered")),
        }
    }

    /// Bytes of the shortest key, if zeros pad it.
    fn key_bytes(&self) -> Result<Option<usize>, String> {
        const DIGITS_MAX: u64 = KEY_BYTES_MAX as u64 - KEY_PREFIX_BYTES;
        match (self.get("zeropadding"), self.number("zeropadding", 0)?) {
            (Some(property), Some(digits)) if digits > DIGITS_MAX => {
                Err(property
                    .wrong(&format!("keys have at most {DIGITS_MAX} digits here; give so many or fewer")))
            }
            (_, digits) => {
                Ok(digits.filter(|digits| *digits > 1).map(|digits| (KEY_PREFIX_BYTES + digits) as usize))
            }
        }
    }
}

/// Refuses a property that is unknown, or has another value than the one that is supported.
fn known(property: &Property) -> Result<(), String> {
    const UNDERSTOOD: [&str; 28] = [
        "recordcount",
        "operationcount",
        "insertstart",
        "insertcount",
        "maxexecutiontime",
        "fieldcount",
        "fieldlength",
        "minfieldlength",
        "fieldlengthdistribution",
        "readproportion",
        "updateproportion",
        "insertproportion",
        "scanproportion",
        "readmodifywriteproportion",
        "requestdistribution",
        "hotspotdatafraction",
        "hotspotopnfraction",
        "exponential.percentile",
        "exponential.frac",
        "minscanlength",
        "maxscanlength",
        "scanlengthdistribution",
        "insertorder",
        "zeropadding",
        "threadcount",
        "target",
        "workload",
        "readallfields",
    ];
    let Property { name, value, .. } = property;
    let is_core = || value.rsplit('.').next() == Some("CoreWorkload");
    match name.as_str() {
        "workload" if !is_core() => Err(property.wrong("only YCSB's CoreWorkload is supported")),
        "readallfields" if value != "true" => {
            Err(property.wrong("a record is one value, which is read as a whole; give true"))
        }
        name if UNDERSTOOD.contains(&name) || HARMLESS.contains(&name) => Ok(()),
        name if HARMLESS_FAMILIES.iter().any(|family| name.starts_with(family)) => Ok(()),
        _ => Err(property.wrong("no property of YCSB's core workload; correct or remove it")),
    }
}

#[cfg(test)]
mod agreement;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::mix::WHOLE;

    fn read(text: &str) -> Result<Workload, String> {
        Properties::of(text).workload("file")
    }

    #[test]
    fn presets_are_ycsbs_files_without_their_counts() {
        let scans = "maxscanlength=100\nscanlengthdistribution=uniform";
        for (name, [read_share, update, scan, insert], requests, rest) in [
            ("a", ["0.5", "0.5", "0", "0"], "zipfian", ""),
            ("b", ["0.95", "0.05", "0", "0"], "zipfian", ""),
            ("c", ["1", "0", "0", "0"], "zipfian", ""),
            ("d", ["0.95", "0", "0", "0.05"], "latest", ""),
            ("e", ["0", "0", "0.95", "0.05"], "zipfian", scans),
            ("f", ["0.5", "0", "0", "0"], "zipfian", "readmodifywriteproportion=0.5"),
        ] {
            let text = format!(
                "# YCSB\n\nrecordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\n\n\
                 readallfields=true\n\nreadproportion={read_share}\nupdateproportion={update}\n\
                 scanproportion={scan}\ninsertproportion={insert}\n\nrequestdistribution={requests}\n\n{rest}\n"
            );
            let file = read(&text).unwrap();
            assert_eq!((file.settings.keys, file.settings.operations), (Some(1_000), Some(1_000)));
            let preset = preset(&format!("ycsb-{name}")).unwrap();
            let settings = Settings { keys: None, operations: None, ..file.settings };
            assert_eq!(Workload { name: preset.name.clone(), settings, ..file }, preset);
        }
    }

    #[test]
    fn every_preset_can_be_read() {
        for name in presets() {
            let settings = preset(name).unwrap().settings;
            assert!(settings.value_bytes.is_some() && settings.keys.is_none(), "{name}");
        }
        let slides = preset("mbwu-slides").unwrap();
        assert_eq!(slides.settings.value_bytes, Some(ValueBytes { min: 4096, max: 4096 }));
        assert_eq!(slides.settings.key_bytes, Some(16));
        assert_eq!((slides.load, slides.mix.read), (LoadOrder::Sequential, WHOLE / 2));
    }

    #[test]
    fn a_file_is_read_as_java_reads_it() {
        let text = "! comment\n  recordcount : 20\nfieldcount 2\nfieldlength=\\\n  7\nfieldlength=8\n\
                    threadcount=3\ntarget=500\nrequestdistribution=hotspot\nhotspotopnfraction=0.9\n\
                    insertorder=ordered\nzeropadding=6\nminscanlength=2\nmaxscanlength=9\n\
                    scanlengthdistribution=zipfian\nexporter=x\nmeasurement.interval=both\nwriteallfields=false";
        let workload = read(text).unwrap();
        let settings = Settings {
            keys: Some(20),
            operations: None,
            key_shape: Some(KeyShape::YcsbOrdered),
            key_bytes: Some(10),
            value_bytes: Some(ValueBytes { min: 16, max: 16 }),
            distribution: Some(Distribution::Hot { keys_pct: 20.0, share_pct: 90.0 }),
            threads: Some(3),
            pace: Some(Pace::Rate(500.0)),
            ..Settings::default()
        };
        assert_eq!(workload.settings, settings);
        assert_eq!(workload.scan, ScanLength { min: 2, max: 9, prefers_short: true });
        assert_eq!((workload.mix, workload.load), (Mix::percent(95, 5), LoadOrder::Sequential));
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, sentence) in [
            ("recordcount=5\n\nscanlength=3", "line 3, scanlength=3: no property"),
            ("recordcount=many", "line 1, recordcount=many: give a whole number, 1 to"),
            ("readproportion=-1", "line 1, readproportion=-1: give a share"),
            ("readproportion=0\nupdateproportion=0", "no operation has a share"),
            ("requestdistribution=pareto", "requestdistribution=pareto: known: uniform, zipfian"),
            (
                "requestdistribution=hotspot\nhotspotdatafraction=1",
                "line 2, hotspotdatafraction=1: give a number",
            ),
            ("fieldlengthdistribution=uniform", "spread evenly only with fieldcount=1"),
            ("fieldlengthdistribution=histogram", "known: constant, uniform"),
            ("fieldcount=2000000000", "fieldcount times fieldlength is 200000000000 bytes"),
            ("minscanlength=5\nmaxscanlength=4", "line 1, minscanlength=5: give at most"),
            ("scanlengthdistribution=latest", "known: uniform, zipfian"),
            ("insertorder=random", "known: hashed, ordered"),
            ("insertorder=ordered\nzeropadding=247", "line 2, zeropadding=247: keys have at most 246 digits"),
            ("recordcount=5\ninsertcount=4", "line 2, insertcount=4: a run loads all records"),
            ("maxexecutiontime=60", "give --seconds"),
            ("workload=site.ycsb.workloads.TimeSeriesWorkload", "only YCSB's CoreWorkload"),
            ("readallfields=false", "a record is one value"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(sentence), "{text}: {refused}");
        }
    }
}
