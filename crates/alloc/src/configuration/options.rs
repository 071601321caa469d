//! The options by name, and texts that hold several of them.

use super::mistake::Reason;
use super::{ClassName, Configuration, FarMemory, FilePath, Mistake, OPTIONS_VARIABLE, Policy, values};

/// One option.
#[derive(Debug)]
pub struct OptionRow {
    /// Its name.
    pub name: &'static str,
    /// The name of `TieredMemDB`'s directive for it, if it has one.
    pub directive: Option<&'static str>,
    /// What it takes, and an example, for the sentence about a mistake.
    pub expected: &'static str,
    /// Whether a running program takes it.
    pub is_live: bool,
    /// Reads its value, unless the value is wrong.
    set: fn(&mut Configuration, &[u8]) -> bool,
}

const BOUNDS: &str = "a threshold is a number of bytes, and threshold-min is at most threshold-max";
const LIMIT: &str = "a limit is a number of bytes, or none; write 4GiB";

/// Every option, in the order in which a page lists them.
pub static OPTIONS: [OptionRow; 15] = [
    OptionRow {
        name: "policy",
        directive: Some("memory-alloc-policy"),
        expected: "a policy is only-dram, only-far, threshold or ratio; write policy=ratio",
        is_live: true,
        set: |to, text| put(&mut to.policy, policy(text)),
    },
    OptionRow {
        name: "ratio",
        directive: Some("dram-pmem-ratio"),
        expected: "a ratio is DRAM:FAR, two whole numbers to 65535, not both 0; write ratio=1:3",
        is_live: true,
        set: |to, text| put(&mut to.ratio, values::ratio(text)),
    },
    OptionRow {
        name: "threshold",
        directive: Some("static-threshold"),
        expected: "a threshold is a number of bytes; write threshold=64",
        is_live: true,
        set: |to, text| put(&mut to.threshold_bytes, values::bytes(text)),
    },
    OptionRow {
        name: "threshold-min",
        directive: Some("dynamic-threshold-min"),
        expected: BOUNDS,
        is_live: true,
        set: |to, text| put(&mut to.threshold_min_bytes, values::bytes(text)),
    },
    OptionRow {
        name: "threshold-max",
        directive: Some("dynamic-threshold-max"),
        expected: BOUNDS,
        is_live: true,
        set: |to, text| put(&mut to.threshold_max_bytes, values::limit(text)),
    },
    OptionRow {
        name: "pin",
        directive: None,
        expected: "pin takes the number of bytes below which allocations stay in DRAM; write pin=64",
        is_live: true,
        set: |to, text| put(&mut to.pinned_below_bytes, values::bytes(text)),
    },
    OptionRow {
        name: "tables-in-dram",
        directive: Some("hashtable-on-dram"),
        expected: "tables-in-dram is yes or no",
        is_live: true,
        set: |to, text| put(&mut to.tables_in_dram, values::yes(text)),
    },
    OptionRow {
        name: "dram-limit",
        directive: None,
        expected: LIMIT,
        is_live: true,
        set: |to, text| put(&mut to.dram_limit_bytes, values::limit(text)),
    },
    OptionRow {
        name: "far-limit",
        directive: None,
        expected: LIMIT,
        is_live: true,
        set: |to, text| put(&mut to.far_limit_bytes, values::limit(text)),
    },
    OptionRow {
        name: "far",
        directive: Some("pmem-variant"),
        expected: "far memory is auto, simulated or a list of nodes below 1024; write far=node:1 or far=node:1+2",
        is_live: false,
        set: |to, text| put(&mut to.far, far(text)),
    },
    OptionRow {
        name: "class",
        directive: None,
        expected: "the name of a class has 1 to 31 of the characters a-z, 0-9, - and _; write class=gold",
        is_live: false,
        set: |to, text| put(&mut to.class, ClassName::new(text).map(Some)),
    },
    OptionRow {
        name: "class-file",
        directive: None,
        expected: "the file of classes is an absolute path of at most 127 bytes; write class-file=/run/ziptier/classes",
        is_live: false,
        set: |to, text| put(&mut to.class_file, FilePath::new(text).map(Some)),
    },
    OptionRow {
        name: "period-ms",
        directive: Some("memory-ratio-check-period"),
        expected: "the period is 1 to 60000 milliseconds; write period-ms=100",
        is_live: false,
        set: |to, text| put(&mut to.period_ms, period_ms(text)),
    },
    OptionRow {
        name: "strict",
        directive: None,
        expected: "strict is yes or no",
        is_live: false,
        set: |to, text| put(&mut to.strict, if text.is_empty() { Some(true) } else { values::yes(text) }),
    },
    OptionRow {
        // The policy needs no first threshold; TieredMemDB's files have one.
        name: "initial-dynamic-threshold",
        directive: None,
        expected: "a threshold is a number of bytes; write initial-dynamic-threshold=64",
        is_live: false,
        set: |_, text| values::bytes(text).is_some(),
    },
];

fn put<T>(field: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => *field = value,
        None => return false,
    }
    true
}

fn period_ms(text: &[u8]) -> Option<u32> {
    values::number(text).filter(|ms| (1..=60_000).contains(ms)).map(|ms| ms as u32)
}

fn policy(text: &[u8]) -> Option<Policy> {
    let named = |policy: &Policy| policy.name().as_bytes() == text;
    // TieredMemDB's name.
    Policy::ALL.into_iter().find(named).or((text == b"only-pmem").then_some(Policy::OnlyFar))
}

fn far(text: &[u8]) -> Option<FarMemory> {
    match text {
        // TieredMemDB's names for the closest node and for all nodes.
        b"auto" | b"single" | b"multiple" => Some(FarMemory::Auto),
        b"simulated" => Some(FarMemory::Simulated),
        _ => {
            let list = text.strip_prefix(b"nodes").or(text.strip_prefix(b"node"))?;
            let list = list.strip_prefix(b":").or(list.strip_prefix(b"="))?;
            values::nodes(list).map(FarMemory::Nodes)
        }
    }
}

/// The options of a text, over the defaults.
pub(super) fn read(text: &[u8]) -> Result<Configuration, Mistake<'_>> {
    let reader = Reader { source: OPTIONS_VARIABLE, strict: asks_for_strict(text), only_live: false };
    reader.apply(Configuration::DEFAULT, text)
}

/// The options of a text, over those of a running program.
pub(super) fn change<'a>(now: &Configuration, text: &'a [u8]) -> Result<Configuration, Mistake<'a>> {
    Reader { source: "the change", strict: false, only_live: true }.apply(*now, text)
}

/// Whether a text asks for `strict`, whatever else is wrong with it.
fn asks_for_strict(text: &[u8]) -> bool {
    items(text).any(|item| {
        let (name, value) = split(item);
        name == b"strict" && value != b"no"
    })
}

struct Reader {
    source: &'static str,
    strict: bool,
    only_live: bool,
}

impl Reader {
    fn mistake<'a>(&self, text: &'a [u8], reason: Reason) -> Mistake<'a> {
        Mistake { source: self.source, text, reason, strict: self.strict }
    }

    /// Options without a policy imply one: a ratio that of the ratio, a threshold alone the fixed threshold.
    fn apply<'a>(&self, mut to: Configuration, text: &'a [u8]) -> Result<Configuration, Mistake<'a>> {
        let (mut policy, mut ratio, mut threshold) = (false, false, false);
        for item in items(text) {
            let (name, value) = split(item);
            let is_named = |row: &&OptionRow| {
                row.name.as_bytes() == name || row.directive.is_some_and(|other| other.as_bytes() == name)
            };
            let row = OPTIONS.iter().find(is_named).ok_or(self.mistake(item, Reason::Unknown))?;
            if self.only_live && !row.is_live {
                let reason = "a running program does not take it; set it in ZIPTIER_ALLOC, and start the program again";
                return Err(self.mistake(item, Reason::Expected(reason)));
            }
            if !(row.set)(&mut to, value) {
                return Err(self.mistake(item, Reason::Expected(row.expected)));
            }
            policy |= row.name == "policy";
            ratio |= row.name == "ratio";
            threshold |= row.name == "threshold";
        }
        if !policy && (ratio || threshold) {
            to.policy = if ratio { Policy::Ratio } else { Policy::Threshold };
        }
        if !to.is_valid() {
            return Err(self.mistake(text.trim_ascii(), Reason::Expected(BOUNDS)));
        }
        Ok(to)
    }
}

/// The options of a text, without surrounding white space.
fn items(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let items = text.split(|byte| matches!(byte, b',' | b';' | b'\n')).map(<[u8]>::trim_ascii);
    items.filter(|item| !item.is_empty())
}

/// The name and the value of an option.
fn split(item: &[u8]) -> (&[u8], &[u8]) {
    let is_between = |byte: &u8| *byte == b'=' || byte.is_ascii_whitespace();
    let end = item.iter().position(is_between).unwrap_or(item.len());
    let value = item[end..].trim_ascii_start();
    (&item[..end], value.strip_prefix(b"=").unwrap_or(value).trim_ascii())
}
