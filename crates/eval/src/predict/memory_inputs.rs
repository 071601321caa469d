//! The file of memories and requests for the simulation of DRAM in front of far memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;

use crate::data::values::ValueBytes;
use crate::inputs::{Inputs, Number, above_0, within};
use crate::workload::distribution::{Distribution, KeyLaw};
use crate::workload::permutation::{Permutation, mix64};

/// More than these would fill the memory of most machines.
const REQUESTS_MAX: u64 = 1_000_000_000;
const OBJECTS_MAX: u64 = 50_000_000;

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// GB of data. The simulation has fewer bytes and keeps the proportions.
    pub data_gb: Number,
    /// DRAM.
    pub dram: Dram,
    /// Far memory.
    pub far: Far,
    /// Objects, each of which is asked for as a whole; those of the trace if there is one.
    pub objects: Option<u32>,
    /// Bytes of an object: a number, or a range of even chances such as 64..4096.
    pub object_bytes: String,
    /// Which objects are asked for.
    pub distribution: Option<String>,
    /// Instead of that, a file of requests in the form of ARC's traces, which may end with .zst.
    pub trace: Option<String>,
    /// Requests that are drawn; of a trace all are taken.
    #[serde(default = "five_million")]
    pub requests: u32,
    /// The part of the requests that write.
    #[serde(default)]
    pub write_share: Number,
    /// Requests after which placement by hotness starts anew.
    #[serde(default = "million")]
    pub replace_every: u64,
    /// Seed of requests and addresses.
    #[serde(default)]
    pub seed: u64,
}

/// DRAM.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dram {
    /// GB.
    pub gb: Number,
    /// Nanoseconds until the first byte.
    pub latency_ns: Number,
    /// GB that one thread moves in a second.
    pub gb_per_second: Number,
}

/// Far memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// GB.
    pub gb: Number,
    /// Nanoseconds until the first byte.
    pub latency_ns: Number,
    /// GB that are read in a second.
    pub gb_per_second_read: Number,
    /// GB that are written in a second.
    pub gb_per_second_write: Number,
    /// Bytes that the medium writes at a time.
    #[serde(default = "line")]
    pub write_bytes: u64,
}

fn five_million() -> u32 {
    5_000_000
}

fn million() -> u64 {
    1_000_000
}

fn line() -> u64 {
    64
}

impl Inputs for Memory {
    fn check(&self) -> Result<(), String> {
        let (dram, far) = (&self.dram, &self.far);
        for (what, number) in [
            ("data_gb", self.data_gb),
            ("dram.gb", dram.gb),
            ("dram.latency_ns", dram.latency_ns),
            ("dram.gb_per_second", dram.gb_per_second),
            ("far.gb", far.gb),
            ("far.latency_ns", far.latency_ns),
            ("far.gb_per_second_read", far.gb_per_second_read),
            ("far.gb_per_second_write", far.gb_per_second_write),
        ] {
            above_0(what, number)?;
        }
        within("far.write_bytes", Number(far.write_bytes as f64), 64.0, 65_536.0)?;
        within("write_share", self.write_share, 0.0, 1.0)?;
        within("requests", Number(self.requests.into()), 4.0, REQUESTS_MAX as f64)?;
        within("replace_every", Number(self.replace_every as f64), 1.0, f64::MAX)?;
        ValueBytes::from_str(&self.object_bytes).map_err(|_| {
            format!(
                "object_bytes is {}; give a number such as 128, or a range such as 64..4096",
                self.object_bytes
            )
        })?;
        match (self.objects, &self.distribution, &self.trace) {
            (None, None, Some(_)) => Ok(()),
            (Some(objects), Some(distribution), None) => {
                within("objects", Number(objects.into()), 1.0, OBJECTS_MAX as f64)?;
                Distribution::from_str(distribution).map(|_| ()).map_err(|error| error.to_string())
            }
            _ => Err("give objects and distribution, or trace, and not both".into()),
        }
    }
}

/// Requests and the objects that they are for.
pub(super) struct Requests {
    /// Where each object begins, and its bytes.
    pub(super) sizes: Vec<(u64, u32)>,
    /// The object of each request, and whether it writes.
    pub(super) asked: Vec<(u32, bool)>,
}

impl Requests {
    /// Where an object begins, and its bytes.
    pub(super) fn object(&self, object: u32) -> (u64, u64) {
        let (start, bytes) = self.sizes[object as usize];
        (start, bytes.into())
    }

    /// Bytes of all objects.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.iter().map(|(_, bytes)| u64::from(*bytes)).sum()
    }
}

impl Memory {
    /// Draws or reads the requests. The error is a sentence.
    pub(super) fn requests(&self, folder: &Path) -> Result<Requests, String> {
        let asked = match &self.trace {
            Some(trace) => pages(&folder.join(trace))?,
            None => self.drawn(),
        };
        let objects = asked.iter().max().map_or(1, |most| most + 1).max(self.objects.unwrap_or(1));
        let mut chance = KeyLaw::new(Distribution::Uniform, 1).chooser(self.seed ^ 1, 0, 1);
        let write_share = self.write_share.0;
        Ok(Requests {
            sizes: self.addresses(objects)?,
            asked: asked.into_iter().map(|object| (object, chance.unit() < write_share)).collect(),
        })
    }

    fn drawn(&self) -> Vec<u32> {
        let distribution = self.distribution.as_deref().and_then(|text| text.parse().ok());
        let law =
            KeyLaw::new(distribution.unwrap_or(Distribution::Uniform), self.objects.unwrap_or(1).into());
        let mut chooser = law.chooser(self.seed, 0, 1);
        (0..self.requests).map(|_| chooser.read() as u32).collect()
    }

    /// Where each object begins, one behind the other in random order, and its bytes.
    fn addresses(&self, objects: u32) -> Result<Vec<(u64, u32)>, String> {
        let ValueBytes { min, max } = self.object_bytes.parse().unwrap_or(ValueBytes { min: 64, max: 64 });
        let bytes = |object: u64| {
            let random = u128::from(mix64(self.seed ^ mix64(object + 1)));
            min + ((random * u128::from(max - min + 1)) >> 64) as u64
        };
        let order = Permutation::new(objects.into(), self.seed);
        let mut sizes = vec![(0, 0); objects as usize];
        let mut start = 0;
        for place in 0..u64::from(objects) {
            let object = order.at(place);
            sizes[object as usize] = (start, bytes(object) as u32);
            start += bytes(object);
        }
        // Lines are numbered by 32 bits.
        match start / 64 < u64::from(u32::MAX) {
            true => Ok(sizes),
            false => Err(format!("{objects} objects have {start} bytes; give fewer or smaller ones")),
        }
    }
}

/// The pages that a trace asks for, each `page count ...` line for `count` pages in a row, numbered as they come.
fn pages(path: &Path) -> Result<Vec<u32>, String> {
    let failed = |error: std::io::Error| format!("cannot read the trace {}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    let reader: Box<dyn Read> =
        if is_packed { Box::new(zstd::Decoder::new(file).map_err(failed)?) } else { Box::new(file) };
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut asked = Vec::new();
    for (number, line) in BufReader::new(reader).lines().enumerate() {
        let line = line.map_err(failed)?;
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (Some(Some(start)), Some(Some(count))) = (words.next(), words.next()) else {
            return Err(format!(
                "{}, line {}: give a page and a count, as ARC's traces have",
                path.display(),
                number + 1
            ));
        };
        if count > REQUESTS_MAX - asked.len() as u64 {
            return Err(format!(
                "{}, line {}: with its {count} pages the trace has more than {REQUESTS_MAX} requests; ARC's traces \
                 have the count in the second column",
                path.display(),
                number + 1
            ));
        }
        for page in start..start.saturating_add(count) {
            let next = numbers.len() as u32;
            asked.push(*numbers.entry(page).or_insert(next));
            if numbers.len() as u64 > OBJECTS_MAX {
                return Err(format!("the trace {} asks for more than {OBJECTS_MAX} pages", path.display()));
            }
        }
    }
    match asked.len() {
        0..4 => Err(format!("the trace {} has fewer than four requests", path.display())),
        _ => Ok(asked),
    }
}
