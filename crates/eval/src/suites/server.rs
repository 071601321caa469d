//! The suite that compares servers: the processor time of one operation, and the memory of the data.
//!
//! All servers get the same requests in turns, each from an empty start in every round, and the order changes from
//! round to round. The CPU time is that of the server's process. Work after a phase, until the server is quiet, counts
//! for that phase. Every reply is compared with what was written.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::bench::open_files::check_clients;
use crate::data::corpus::Corpus;
use crate::data::keys::{KEY_BYTES, KeyShape, Keys};
use crate::data::values::{ValueBytes, ValueOrder, Values};
use crate::error::Error;
use crate::results::row::{Cell, Row, median};
use crate::results::table::{aligned, grouped, tsv, wrapped};
use crate::servers::client::{Call, Load, Records, drive};
use crate::servers::process::{Server, ServerMemory, ServerProgram};
use crate::servers::quiet::Processes;
use crate::workload::permutation::Permutation;

/// The plan of the suite.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// The servers; the first is the one that the others are compared with.
    pub servers: Vec<ServerProgram>,
    /// The source of values.
    pub corpus: String,
    /// Which part of it a value is.
    pub value_order: ValueOrder,
    /// Keys that are loaded.
    pub keys: u64,
    /// How keys look, one after the other.
    pub key_shapes: Vec<KeyShape>,
    /// Lengths of values, one after the other.
    pub value_bytes: Vec<u64>,
    /// Connections.
    pub connections: usize,
    /// Requests of a phase with pipelines; one without has a quarter of them.
    pub requests: u64,
    /// SETs per second of the phase that has a rate, for the longest values; 0 leaves it out.
    pub rate: u64,
    /// Seconds for which a server must be idle before a phase ends.
    pub quiet_seconds: usize,
    /// How often everything is repeated.
    pub rounds: usize,
    /// The file for the rows of all rounds as TSV, besides the table. It is written after each phase, so that an
    /// interrupted run keeps its measurements.
    pub out: Option<PathBuf>,
    /// Variables of the environment that change how a server works.
    pub inherited: Vec<String>,
}

/// The requests of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Every key once.
    Load,
    /// New values of random keys.
    Set,
    /// The same, so many per second.
    SetAtRate,
    /// Random keys.
    Get,
}

#[derive(Debug, Clone, Copy)]
struct Phase {
    kind: Kind,
    pipeline: usize,
}

const PIPELINE: usize = 16;
/// How long the phase with a rate lasts.
const RATE_SECONDS: u64 = 10;
const RATE_MAX: u64 = 1_000_000_000;
/// A generator makes so many bytes of values at least, and at most: as for `ziptier bench`.
const GENERATED_BYTES: RangeInclusive<u64> = 16 << 20..=1 << 30;

impl Phase {
    fn all(has_rate: bool) -> Vec<Phase> {
        let phase = |kind, pipeline| Phase { kind, pipeline };
        let mut all = vec![
            phase(Kind::Load, PIPELINE),
            phase(Kind::Get, PIPELINE),
            phase(Kind::Get, 1),
            phase(Kind::Set, PIPELINE),
            phase(Kind::Set, 1),
        ];
        if has_rate {
            all.push(phase(Kind::SetAtRate, 1));
        }
        all
    }

    fn name(self, plan: &ServerPlan) -> String {
        match self.kind {
            Kind::Load => format!("load, P {}", self.pipeline),
            Kind::Set => format!("SET, P {}", self.pipeline),
            Kind::Get => format!("GET, P {}", self.pipeline),
            Kind::SetAtRate => format!("SET, {}/s", grouped(plan.rate as f64, 0)),
        }
    }

    fn requests(self, plan: &ServerPlan) -> u64 {
        match self.kind {
            Kind::Load => plan.keys,
            Kind::SetAtRate => plan.rate * RATE_SECONDS,
            _ if self.pipeline == 1 => (plan.requests / 4).max(1),
            _ => plan.requests,
        }
    }
}

/// The setting in which servers are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Setting {
    value_bytes: u64,
    shape: KeyShape,
}

impl Setting {
    fn keys(&self) -> Keys {
        Keys::new(self.shape, None)
    }
}

/// One phase of one server in one round.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    setting: Setting,
    phase: String,
    server: usize,
    round: usize,
    operations: u64,
    cpu_sec: f64,
    /// The part of it after the last reply.
    after_cpu_sec: f64,
    wall_sec: f64,
    quiet_sec: f64,
    memory: ServerMemory,
    raw_bytes: u64,
    coverage: f64,
}

impl Measured {
    fn us(&self) -> f64 {
        self.cpu_sec * 1e6 / self.operations as f64
    }
}

/// All that was measured.
#[derive(Debug)]
pub struct ServerOutcome {
    plan: ServerPlan,
    rows: Vec<Measured>,
}

impl ServerPlan {
    fn check(&self) -> Result<(), Error> {
        let wrong = |what, given: String, expected: &str| Err(Error::invalid(what, given, expected));
        if !(1..=10_000).contains(&self.connections) {
            return wrong("--connections", self.connections.to_string(), "give 1 to 10000");
        }
        check_clients(self.connections as u64)?;
        if self.keys < self.connections as u64 || self.keys > 1_000_000_000 {
            return wrong(
                "--keys",
                self.keys.to_string(),
                "give at least one per connection, at most 1000000000",
            );
        }
        if self.requests == 0 {
            return wrong("--requests", "0".into(), "give at least one");
        }
        if !(1..=1_000).contains(&self.rounds) {
            return wrong("--rounds", self.rounds.to_string(), "give 1 to 1000");
        }
        if self.rate > RATE_MAX {
            return wrong("--rate", self.rate.to_string(), "give SETs per second, up to 1000000000");
        }
        if let Some(shape) =
            self.key_shapes.iter().find(|shape| Keys::new(**shape, None).bytes() != Some(KEY_BYTES))
        {
            return wrong("--key-shape", shape.to_string(), "give decimal or random");
        }
        match self.value_bytes.iter().find(|bytes| !(1..=1 << 20).contains(*bytes)) {
            Some(bytes) => wrong("--value-bytes", bytes.to_string(), "give 1 to 1048576"),
            None => Ok(()),
        }
    }

    /// Bytes that a generator makes for values of this length.
    fn generated_bytes(&self, bytes: u64) -> usize {
        (self.keys * bytes).clamp(*GENERATED_BYTES.start(), *GENERATED_BYTES.end()) as usize
    }

    fn values(&self, bytes: u64) -> Result<Values, Error> {
        let corpus = Corpus::read(&self.corpus, self.generated_bytes(bytes), bytes as usize)?;
        let length = corpus.bytes.len();
        let range = ValueBytes { min: bytes, max: bytes };
        let values = Values::ordered(corpus.bytes, 0..length, range, self.value_order, 1);
        let values = values.ok_or_else(|| Error::CorpusShorterThanValue {
            path: self.corpus.clone(),
            corpus_bytes: length as u64,
            half: "",
            value_bytes: bytes,
        })?;
        if values.slice_count() < self.keys {
            let expected = format!(
                "the corpus has {} different values; give fewer keys or a larger one",
                values.slice_count()
            );
            return Err(Error::invalid("--keys", self.keys.to_string(), expected));
        }
        Ok(values)
    }
}

/// Runs the suite and reports each step to `progress`. When `stop` becomes true it ends its servers and returns an
/// error.
pub fn server_suite(
    plan: &ServerPlan,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<ServerOutcome, Error> {
    plan.check()?;
    let longest = plan.value_bytes.iter().max().copied().unwrap_or(0);
    let mut outcome = ServerOutcome { plan: plan.clone(), rows: Vec::new() };
    for &value_bytes in &plan.value_bytes {
        let values = plan.values(value_bytes)?;
        let phases = Phase::all(plan.rate > 0 && value_bytes == longest);
        for &shape in &plan.key_shapes {
            let setting = Setting { value_bytes, shape };
            for round in 0..plan.rounds {
                one_round(&mut outcome, setting, &values, &phases, round, stop, progress)?;
            }
        }
    }
    Ok(outcome)
}

/// All servers through all phases, in turns.
fn one_round(
    outcome: &mut ServerOutcome,
    setting: Setting,
    values: &Values,
    phases: &[Phase],
    round: usize,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<(), Error> {
    let plan = &outcome.plan.clone();
    let servers =
        plan.servers.iter().map(|program| Server::start(program, stop)).collect::<Result<Vec<_>, _>>()?;
    servers.iter().try_for_each(Server::check_empty)?;
    let mut versions: Vec<Vec<u32>> = vec![vec![0; plan.keys as usize]; servers.len()];
    let mut order: Vec<usize> = (0..servers.len()).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    let records = Records { keys: setting.keys(), values };
    for phase in phases {
        for &number in &order {
            let (server, name) = (&servers[number], phase.name(plan));
            progress(&format!(
                "round {} of {}: {} keys, values of {} B, {name}: {}",
                round + 1,
                plan.rounds,
                setting.shape,
                setting.value_bytes,
                server.name
            ));
            let (began, before) = (Instant::now(), server.cpu_sec());
            let operations = ask(plan, *phase, server, &records, &mut versions[number], round as u64, stop)
                .map_err(|sentence| server.failed(format!("{name}: {sentence}")))?;
            let (wall_sec, answered) = (began.elapsed().as_secs_f64(), server.cpu_sec());
            let quiet_sec = server.wait_until_quiet(plan.quiet_seconds, stop)?;
            let (done, memory) = (server.cpu_sec(), server.memory()?);
            outcome.rows.push(Measured {
                setting,
                phase: name,
                server: number,
                round,
                operations,
                cpu_sec: done - before,
                after_cpu_sec: done - answered,
                wall_sec,
                quiet_sec,
                memory,
                raw_bytes: plan.keys * (KEY_BYTES as u64 + setting.value_bytes),
                coverage: (plan.keys * setting.value_bytes) as f64 / values.source_bytes() as f64,
            });
            outcome.save()?;
        }
    }
    Ok(())
}

/// The requests of a phase. A connection writes keys of its own, so that what every key has at the end is known.
fn ask(
    plan: &ServerPlan,
    phase: Phase,
    server: &Server,
    records: &Records<'_>,
    versions: &mut [u32],
    round: u64,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let connections = plan.connections as u64;
    let (keys, total) = (plan.keys, phase.requests(plan));
    let rate = (phase.kind == Kind::SetAtRate).then_some(plan.rate as f64);
    let load = Load { connections: plan.connections, pipeline: phase.pipeline, rate };
    let shuffled = Permutation::new(keys, 0x10ad);
    let mut random =
        SmallRng::seed_from_u64(round ^ ((phase.kind as u64) << 8) ^ ((phase.pipeline as u64) << 16));
    let mut below = |limit: u64| ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64;
    let mut position: Vec<u64> = (0..connections).collect();
    drive(server.address, load, records, stop, |connection| {
        let at = position[connection];
        position[connection] += connections;
        if at >= total {
            return None;
        }
        let key = match phase.kind {
            Kind::Load => shuffled.at(at),
            Kind::Get => below(keys),
            Kind::Set | Kind::SetAtRate => {
                let own = connection as u64;
                own + connections * below((keys - own).div_ceil(connections))
            }
        };
        let version = &mut versions[key as usize];
        Some(match phase.kind {
            Kind::Get => Call::Get(key, *version),
            _ => {
                *version += 1;
                Call::Set(key, *version)
            }
        })
    })
}

const MEANINGS: &str = "\
us: CPU time of the server's process per operation; after: the part of it that came after the last reply, until the \
server was quiet; the kernel counts it in steps of 10 ms. ratio: over the first server's of the same round, and from \
the least to the largest; missing over 0. RSS, used: bytes of the process, and what INFO says, over those of keys and \
values.";

impl ServerOutcome {
    fn save(&self) -> Result<(), Error> {
        let Some(path) = &self.plan.out else { return Ok(()) };
        let io = |source| Error::Io { action: "write", path: path.clone(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        std::fs::write(path, self.to_tsv()).map_err(io)
    }

    /// The rows of all rounds.
    pub fn to_tsv(&self) -> String {
        tsv(self.rows.iter().map(|row| self.row(row)))
    }

    fn row(&self, row: &Measured) -> Row {
        let plan = &self.plan;
        vec![
            ("server", Cell::Text(plan.servers[row.server].name.clone())),
            ("phase", Cell::Text(row.phase.clone())),
            ("round", Cell::Count(row.round as i64 + 1)),
            ("value_bytes", Cell::Count(row.setting.value_bytes as i64)),
            ("key_shape", Cell::Text(row.setting.shape.to_string())),
            ("keys", Cell::Count(plan.keys as i64)),
            ("corpus", Cell::Text(plan.corpus.clone())),
            ("value_order", Cell::Text(plan.value_order.to_string())),
            ("coverage", Cell::number(Some(row.coverage), 2)),
            ("connections", Cell::Count(plan.connections as i64)),
            ("operations", Cell::Count(row.operations as i64)),
            ("cpu_us_per_operation", Cell::number(Some(row.us()), 3)),
            ("cpu_sec", Cell::number(Some(row.cpu_sec), 2)),
            ("after_cpu_sec", Cell::number(Some(row.after_cpu_sec), 2)),
            ("wall_sec", Cell::number(Some(row.wall_sec), 2)),
            ("quiet_sec", Cell::number(Some(row.quiet_sec), 2)),
            ("rss_bytes", Cell::Count(row.memory.rss_bytes as i64)),
            ("used_bytes", Cell::count(row.memory.used_bytes)),
            ("raw_bytes", Cell::Count(row.raw_bytes as i64)),
        ]
    }

    /// A table for each setting: medians over the rounds, and how far apart the rounds' ratios are.
    pub fn to_text(&self) -> String {
        let plan = &self.plan;
        let mut text = wrapped(&format!(
            "{} keys of {KEY_BYTES} B, values from {} ({}); {} connections, {} round{}",
            grouped(plan.keys as f64, 0),
            plan.corpus,
            plan.value_order,
            plan.connections,
            plan.rounds,
            if plan.rounds == 1 { "" } else { "s, medians" }
        ));
        for in_setting in self.rows.chunk_by(|one, other| one.setting == other.setting) {
            let Setting { value_bytes, shape } = in_setting[0].setting;
            let covers = in_setting[0].coverage;
            text += &format!(
                "\nvalues of {value_bytes} B, {shape} keys; values cover the corpus {covers:.2} times\n"
            );
            text += &aligned(&self.lines(in_setting), 2);
        }
        let inherited = match plan.inherited.as_slice() {
            [] => String::new(),
            names => format!("Options that ziptier took from the environment: {}.\n", names.join(", ")),
        };
        text + "\n" + &wrapped(MEANINGS) + &wrapped(&inherited)
    }

    fn lines(&self, rows: &[Measured]) -> Vec<Vec<String>> {
        let headings = ["phase", "server", "us", "after", "ratio", "least-most", "RSS", "used"];
        let mut lines = vec![headings.map(str::to_owned).to_vec()];
        let mut phases: Vec<&str> = Vec::new();
        for row in rows {
            if !phases.contains(&row.phase.as_str()) {
                phases.push(&row.phase);
            }
        }
        for phase in phases {
            let by_server = |number: usize| -> BTreeMap<usize, &Measured> {
                let own = rows.iter().filter(|row| row.phase == phase && row.server == number);
                own.map(|row| (row.round, row)).collect()
            };
            let first = by_server(0);
            for (number, server) in self.plan.servers.iter().enumerate() {
                let own = by_server(number);
                let middle = |figure: &dyn Fn(&Measured) -> Option<f64>, decimals: usize| {
                    let all = own.values().filter_map(|row| figure(row));
                    median(&mut all.collect::<Vec<_>>())
                        .map_or(String::new(), |figure| format!("{figure:.decimals$}"))
                };
                let ratio = |(round, row): (&usize, &&Measured)| Some(row.us() / first.get(round)?.us());
                // A short phase may take no time that the kernel counts.
                let mut ratios: Vec<f64> =
                    own.iter().filter_map(ratio).filter(|ratio| ratio.is_finite()).collect();
                let ratio = median(&mut ratios).filter(|_| number > 0);
                let spread = |ratios: &[f64]| match ratios {
                    [least, .., most] if number > 0 => format!("{least:.2}-{most:.2}"),
                    // One round has no spread.
                    _ => String::new(),
                };
                lines.push(vec![
                    if number == 0 { phase.to_owned() } else { String::new() },
                    server.name.clone(),
                    middle(&|row| Some(row.us()), 2),
                    middle(&|row| Some(row.after_cpu_sec * 1e6 / row.operations as f64), 2),
                    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
                    spread(&ratios),
                    middle(&|row| Some(row.memory.rss_bytes as f64 / row.raw_bytes as f64), 2),
                    middle(&|row| Some(row.memory.used_bytes? as f64 / row.raw_bytes as f64), 2),
                ]);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ServerPlan {
        let server = |name: &str| ServerProgram { name: name.into(), program: "x".into(), arguments: vec![] };
        ServerPlan {
            servers: vec![server("rival"), server("ours")],
            corpus: "text".into(),
            value_order: ValueOrder::Strangers,
            keys: 1_000_000,
            key_shapes: vec![KeyShape::Random],
            value_bytes: vec![128],
            connections: 50,
            requests: 1_000_000,
            rate: 5_000,
            quiet_seconds: 6,
            rounds: 3,
            out: None,
            inherited: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_of_equal_rounds_and_memory_is_per_byte_of_data() {
        let row = |server, round, cpu_sec| Measured {
            setting: Setting { value_bytes: 128, shape: KeyShape::Random },
            phase: "SET, P 16".into(),
            server,
            round,
            operations: 1_000_000,
            cpu_sec,
            after_cpu_sec: cpu_sec / 4.0,
            wall_sec: 1.0,
            quiet_sec: 3.0,
            // Nobody knows what INFO of the first server would say.
            memory: ServerMemory { rss_bytes: 72_000_000, used_bytes: (server > 0).then_some(36_000_000) },
            raw_bytes: 144_000_000,
            coverage: 12.6,
        };
        // The machine was half as fast in the last round.
        let rows = vec![
            row(0, 0, 2.0),
            row(1, 0, 5.0),
            row(0, 1, 2.0),
            row(1, 1, 6.0),
            row(0, 2, 4.0),
            row(1, 2, 8.0),
        ];
        let outcome = ServerOutcome { plan: plan(), rows };
        let text = outcome.to_text();
        let cells = |start: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells("ours"), ["ours", "6.00", "1.50", "2.50", "2.00-3.00", "0.50", "0.25"]);
        assert_eq!(cells("SET, P 16")[3..], ["rival", "2.00", "0.50", "0.50"]);
        assert!(text.contains("cover the corpus 12.60 times"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let rows = outcome.to_tsv();
        assert_eq!((rows.lines().count(), rows.matches("\t72000000\tNA\t").count()), (7, 3), "{rows}");
    }

    #[test]
    fn there_is_no_ratio_over_no_time() {
        let row = |server, cpu_sec| Measured {
            setting: Setting { value_bytes: 128, shape: KeyShape::Random },
            phase: "GET, P 1".into(),
            server,
            round: 0,
            operations: 100,
            cpu_sec,
            after_cpu_sec: 0.0,
            wall_sec: 1.0,
            quiet_sec: 3.0,
            memory: ServerMemory { rss_bytes: 1, used_bytes: None },
            raw_bytes: 144,
            coverage: 1.0,
        };
        for other in [0.0, 0.01] {
            let text = ServerOutcome { plan: plan(), rows: vec![row(0, 0.0), row(1, other)] }.to_text();
            assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn every_phase_asks_what_its_name_says() {
        let phases = Phase::all(true);
        let all: Vec<_> = phases.iter().map(|phase| (phase.name(&plan()), phase.requests(&plan()))).collect();
        let expected = [
            ("load, P 16", 1_000_000),
            ("GET, P 16", 1_000_000),
            ("GET, P 1", 250_000),
            ("SET, P 16", 1_000_000),
            ("SET, P 1", 250_000),
            ("SET, 5,000/s", 50_000),
        ];
        assert_eq!(all, expected.map(|(name, requests)| (name.to_owned(), requests)));
        assert!(ServerPlan { keys: 49, ..plan() }.check().is_err());
        assert!(ServerPlan { value_bytes: vec![0], ..plan() }.check().is_err());
    }

    #[test]
    fn a_plan_that_cannot_be_names_the_option_at_fault() {
        let told = |plan: ServerPlan| plan.check().unwrap_err().to_string();
        assert!(told(ServerPlan { rounds: 0, ..plan() }).starts_with("bad --rounds `0`"));
        assert!(told(ServerPlan { requests: 0, ..plan() }).starts_with("bad --requests `0`"));
        // Ten seconds of it are more than 64 bits count.
        assert!(
            told(ServerPlan { rate: u64::MAX, ..plan() }).starts_with("bad --rate `18446744073709551615`")
        );
    }

    #[test]
    fn a_generator_makes_no_more_than_a_gib() {
        let all = [1_000, 1_000_000_000].map(|keys| ServerPlan { keys, ..plan() }.generated_bytes(600));
        assert_eq!(all, [16 << 20, 1 << 30]);
    }
}
