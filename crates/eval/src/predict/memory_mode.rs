//! DRAM in front of far memory, used in different ways: as a cache that the processor runs, or as a place for some of
//! the objects.
//!
//! - *Memory mode*: DRAM is a direct-mapped cache of far memory with lines of 64 bytes, which writes back. So Optane
//!   persistent memory works in its memory mode (Izraelevitz and others, "Basic Performance Measurements of the Intel
//!   Optane DC Persistent Memory Module", 2019). Software sees far memory alone, and DRAM adds no room.
//! - *By size*: objects below a threshold lie in DRAM, as many as it holds. TieredMemDB places so.
//! - *By hotness*: the objects with the most requests for a byte lie in DRAM. They are found anew after so many
//!   requests, from counts that are halved each time. What lies in DRAM counts twice, so that equals do not change
//!   places for ever.
//!
//! The simulation counts what each request touches, after a first quarter of the requests. The times follow from the
//! counts: one latency of the slowest memory that the request waits for, and its bytes at the bandwidth of each.
//! Nothing here knows of processor caches, of banks or of queues.

use std::path::Path;

use super::memory_inputs::{Memory, Requests};

/// Bytes of a line.
const LINE: u64 = 64;

/// What requests did, counted after the first quarter of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Those that waited for DRAM alone.
    pub hits: u64,
    /// Those that looked into DRAM in vain, and waited for far memory then.
    pub misses_behind_dram: u64,
    /// Bytes that moved to and from DRAM.
    pub dram_bytes: u64,
    /// Bytes read from far memory while a request waited.
    pub far_read_bytes: u64,
    /// Bytes written to far memory while a request waited, in whole units of its medium.
    pub far_write_bytes: u64,
    /// Bytes read from far memory in the background.
    pub moved_read_bytes: u64,
    /// Bytes written to far memory in the background, in whole units of its medium.
    pub moved_write_bytes: u64,
    /// Bytes that the requests wrote.
    pub written_bytes: u64,
}

impl Counts {
    /// The part of the requests that waited for DRAM alone.
    pub fn hit_share(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }

    /// Bytes that the far medium wrote for each byte that requests wrote; none if they wrote nothing.
    pub fn write_amplification(&self) -> Option<f64> {
        let far = self.far_write_bytes + self.moved_write_bytes;
        (self.written_bytes > 0).then(|| far as f64 / self.written_bytes as f64)
    }

    /// Nanoseconds of a request.
    pub fn mean_ns(&self, memory: &Memory) -> f64 {
        let (dram, far) = (&memory.dram, &memory.far);
        let requests = self.requests as f64;
        let waits = (self.hits + self.misses_behind_dram) as f64 * dram.latency_ns.0
            + (self.requests - self.hits) as f64 * far.latency_ns.0;
        // A GB in a second is a byte in a nanosecond.
        let moves = self.dram_bytes as f64 / dram.gb_per_second.0
            + self.far_read_bytes as f64 / far.gb_per_second_read.0
            + self.far_write_bytes as f64 / far.gb_per_second_write.0;
        (waits + moves) / requests
    }

    /// Requests per second at which far memory has no bandwidth left; none if nothing goes there.
    pub fn far_bound(&self, memory: &Memory) -> Option<f64> {
        let busy_ns = (self.far_read_bytes + self.moved_read_bytes) as f64 / memory.far.gb_per_second_read.0
            + (self.far_write_bytes + self.moved_write_bytes) as f64 / memory.far.gb_per_second_write.0;
        (busy_ns > 0.0).then(|| self.requests as f64 / busy_ns * 1e9)
    }
}

/// A way to use DRAM and far memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// Its name in results.
    pub name: &'static str,
    /// Whether the data have room.
    pub fits: bool,
    /// What the requests did.
    pub counts: Counts,
}

/// Simulates all ways. `folder` is where a trace without a path from the root lies. `progress` gets the parts that are
/// done, and all parts.
///
/// # Errors
///
/// A sentence: the trace cannot be read.
pub fn simulate_memory(
    memory: &Memory,
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Way>, String> {
    progress(0, 1);
    let requests = memory.requests(folder)?;
    let (dram, far, data) = (memory.dram.gb.0, memory.far.gb.0, memory.data_gb.0);
    let dram_bytes = (requests.bytes() as f64 * dram / data) as u64;
    let fixed = |is_in_dram| placed(&requests, memory, &mut Fixed(vec![is_in_dram; requests.sizes.len()]));
    let by_hotness = || {
        let mut hotness = Hotness::new(&requests, dram_bytes, memory.replace_every);
        placed(&requests, memory, &mut hotness)
    };
    let ways: [(&'static str, bool, &dyn Fn() -> Counts); 5] = [
        ("DRAM alone", data <= dram, &|| fixed(true)),
        ("memory mode", data <= far, &|| memory_mode(&requests, memory, dram_bytes)),
        ("by size", data <= dram + far, &|| placed(&requests, memory, &mut by_size(&requests, dram_bytes))),
        ("by hotness", data <= dram + far, &by_hotness),
        ("far alone", data <= far, &|| fixed(false)),
    ];
    let all = ways.len() as u64 + 1;
    let simulated = ways.into_iter().zip(1..).map(|((name, fits, counts), done)| {
        progress(done, all);
        Way { name, fits, counts: counts() }
    });
    Ok(simulated.collect())
}

/// Requests before this one are not counted.
fn first_counted(requests: &Requests) -> usize {
    requests.asked.len() / 4
}

/// Bytes of the units of the medium that a range touches.
fn whole(start: u64, bytes: u64, unit: u64) -> u64 {
    ((start + bytes).div_ceil(unit) - start / unit) * unit
}

/// The cache of a processor in memory mode.
struct LineCache {
    /// The line in each place, plus 1; 0 for none.
    lines: Vec<u32>,
    is_dirty: Vec<bool>,
    unit: u64,
}

impl LineCache {
    fn new(bytes: u64, unit: u64) -> Self {
        let places = (bytes / LINE).max(1) as usize;
        LineCache { lines: vec![0; places], is_dirty: vec![false; places], unit }
    }

    /// Touches the lines of an object, and adds what that does.
    fn touch(&mut self, start: u64, bytes: u64, is_write: bool, counts: &mut Counts) {
        let (mut missed, mut written_unit) = (false, None);
        for line in start / LINE..(start + bytes).div_ceil(LINE) {
            let place = (line % self.lines.len() as u64) as usize;
            counts.dram_bytes += LINE;
            if self.lines[place] != line as u32 + 1 {
                missed = true;
                counts.far_read_bytes += LINE;
                let unit = u64::from(self.lines[place].saturating_sub(1)) * LINE / self.unit;
                // The medium merges lines of one unit that are written one after the other.
                if self.is_dirty[place] && written_unit != Some(unit) {
                    counts.moved_write_bytes += self.unit.max(LINE);
                    written_unit = Some(unit);
                }
                self.lines[place] = line as u32 + 1;
                self.is_dirty[place] = false;
            }
            self.is_dirty[place] |= is_write;
        }
        counts.hits += u64::from(!missed);
        counts.misses_behind_dram += u64::from(missed);
    }
}

fn memory_mode(requests: &Requests, memory: &Memory, dram_bytes: u64) -> Counts {
    // A place for each line of the data is all that a larger cache uses.
    let cache_bytes = dram_bytes.min(requests.bytes().next_multiple_of(LINE));
    let mut cache = LineCache::new(cache_bytes, memory.far.write_bytes);
    let mut counts = Counts::default();
    for (number, &(object, is_write)) in requests.asked.iter().enumerate() {
        if number == first_counted(requests) {
            counts = Counts::default();
        }
        let (start, bytes) = requests.object(object);
        counts.requests += 1;
        counts.written_bytes += if is_write { bytes } else { 0 };
        cache.touch(start, bytes, is_write, &mut counts);
    }
    counts
}

/// Where objects lie.
trait Placement {
    fn is_in_dram(&self, object: u32) -> bool;

    /// Learns of a request. What it moves goes into the counts.
    fn ask(&mut self, _object: u32, _requests: &Requests, _unit: u64, _counts: &mut Counts) {}
}

/// Objects that never move.
struct Fixed(Vec<bool>);

impl Placement for Fixed {
    fn is_in_dram(&self, object: u32) -> bool {
        self.0[object as usize]
    }
}

fn placed(requests: &Requests, memory: &Memory, placement: &mut dyn Placement) -> Counts {
    let unit = memory.far.write_bytes;
    let mut counts = Counts::default();
    for (number, &(object, is_write)) in requests.asked.iter().enumerate() {
        if number == first_counted(requests) {
            counts = Counts::default();
        }
        let (start, bytes) = requests.object(object);
        counts.requests += 1;
        counts.written_bytes += if is_write { bytes } else { 0 };
        match (placement.is_in_dram(object), is_write) {
            (true, _) => {
                counts.hits += 1;
                counts.dram_bytes += bytes;
            }
            (false, true) => counts.far_write_bytes += whole(start, bytes, unit),
            (false, false) => counts.far_read_bytes += bytes,
        }
        placement.ask(object, requests, unit, &mut counts);
    }
    counts
}

/// The objects that fill so many bytes, in the order of the list.
fn filled(order: impl Iterator<Item = u32>, requests: &Requests, dram_bytes: u64) -> Vec<bool> {
    let mut is_in_dram = vec![false; requests.sizes.len()];
    let mut left = dram_bytes;
    for object in order {
        let bytes = requests.object(object).1;
        if bytes > left {
            break;
        }
        left -= bytes;
        is_in_dram[object as usize] = true;
    }
    is_in_dram
}

fn by_size(requests: &Requests, dram_bytes: u64) -> Fixed {
    let mut order: Vec<u32> = (0..requests.sizes.len() as u32).collect();
    // Of one size, those that lie first: the order of addresses is random.
    order.sort_by_key(|&object| (requests.object(object).1, requests.object(object).0));
    Fixed(filled(order.into_iter(), requests, dram_bytes))
}

struct Hotness {
    is_in_dram: Vec<bool>,
    counts: Vec<f32>,
    dram_bytes: u64,
    every: u64,
    asked: u64,
}

impl Hotness {
    fn new(requests: &Requests, dram_bytes: u64, every: u64) -> Self {
        let mut order: Vec<u32> = (0..requests.sizes.len() as u32).collect();
        order.sort_by_key(|&object| requests.object(object).0);
        Hotness {
            is_in_dram: filled(order.into_iter(), requests, dram_bytes),
            counts: vec![0.0; requests.sizes.len()],
            dram_bytes,
            every,
            asked: 0,
        }
    }

    fn replace(&mut self, requests: &Requests, unit: u64, counts: &mut Counts) {
        let heat = |object: u32| {
            let stays = if self.is_in_dram[object as usize] { 2.0 } else { 1.0 };
            self.counts[object as usize] * stays / requests.object(object).1 as f32
        };
        let mut order: Vec<u32> = (0..requests.sizes.len() as u32).collect();
        order.sort_by(|&one, &other| {
            let places = |object: u32| self.is_in_dram[object as usize];
            heat(other).total_cmp(&heat(one)).then(places(other).cmp(&places(one)))
        });
        let new = filled(order.into_iter(), requests, self.dram_bytes);
        for (object, (&new, &old)) in (0..).zip(new.iter().zip(&self.is_in_dram)) {
            let (start, bytes) = requests.object(object);
            match (old, new) {
                (false, true) => counts.moved_read_bytes += bytes,
                (true, false) => counts.moved_write_bytes += whole(start, bytes, unit),
                _ => {}
            }
        }
        self.is_in_dram = new;
        self.counts.iter_mut().for_each(|count| *count /= 2.0);
    }
}

impl Placement for Hotness {
    fn is_in_dram(&self, object: u32) -> bool {
        self.is_in_dram[object as usize]
    }

    fn ask(&mut self, object: u32, requests: &Requests, unit: u64, counts: &mut Counts) {
        self.counts[object as usize] += 1.0;
        self.asked += 1;
        if self.asked.is_multiple_of(self.every) {
            self.replace(requests, unit, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Inputs;

    fn ways(more: &str) -> (Memory, Vec<Way>) {
        let text = format!(
            "data_gb = 100\nwrite_share = 0.3\nrequests = 800_000\n{more}\n\
             dram = {{ gb = 25, latency_ns = 80, gb_per_second = 10 }}\n\
             far = {{ gb = 200, latency_ns = 300, gb_per_second_read = 5, gb_per_second_write = 1, write_bytes = 256 }}"
        );
        let (memory, _) = Memory::parse(&text).unwrap_or_else(|sentence| panic!("{sentence}"));
        let ways = simulate_memory(&memory, Path::new(""), &mut |_, _| {}).unwrap();
        (memory, ways)
    }

    fn near(one: f64, other: f64, within: f64) {
        assert!((one - other).abs() < within, "{one} is not {other}");
    }

    #[test]
    fn even_requests_hit_the_part_that_dram_holds() {
        let (memory, ways) = ways("distribution = 'uniform'\nobjects = 100_000\nobject_bytes = '64'");
        let [dram, cache, size, _, far] = ways.as_slice() else { panic!("{ways:?}") };
        // Four lines share a place of the cache, each as likely as the others to have been the last.
        near(cache.counts.hit_share(), 0.25, 0.005);
        near(size.counts.hit_share(), 0.25, 0.005);
        assert_eq!((dram.counts.hit_share(), far.counts.hit_share()), (1.0, 0.0));
        assert_eq!([dram, cache, size, far].map(|way| way.fits), [false, true, true, true]);
        near(dram.counts.mean_ns(&memory), 80.0 + 6.4, 1e-9);
        // 0.7 of the requests read 64 bytes at 5 a nanosecond, 0.3 write a unit of 256 at 1.
        near(far.counts.mean_ns(&memory), 300.0 + 0.7 * 12.8 + 0.3 * 256.0, 0.5);
        near(cache.counts.mean_ns(&memory), 80.0 + 6.4 + 0.75 * (300.0 + 12.8), 2.0);
        near(far.counts.write_amplification().unwrap(), 4.0, 1e-9);
        // A line that is thrown out was written by one of its requests, or by none: 0.75 × 0.3 ÷ (0.75 + 0.25 × 0.3)
        // of them are dirty, each with a unit of its own.
        let is_dirty = 0.3 / (1.0 - 0.25 * 0.7);
        near(cache.counts.write_amplification().unwrap(), 0.75 * is_dirty * 4.0 / 0.3, 0.1);
    }

    /// The last of the lines that share a place stays there: a request hits with the sum of p² over the sum of p.
    #[test]
    fn hot_lines_throw_each_other_out_of_a_direct_mapped_cache() {
        let (_, ways) = ways(
            "distribution = 'hot:20:90'\nobjects = 100_000\nobject_bytes = '64'\nreplace_every = 50_000",
        );
        let [_, cache, size, hot, _] = ways.as_slice() else { panic!("{ways:?}") };
        // Of four lines in a place, k are hot with probability C(4, k) 0.2^k 0.8^(4-k).
        let (warm, cold) = (0.9 / 0.2, 0.1 / 0.8);
        let choose = [1.0, 4.0, 6.0, 4.0, 1.0];
        let expected: f64 = (0..5)
            .map(|k| {
                let of = choose[k] * 0.2f64.powi(k as i32) * 0.8f64.powi(4 - k as i32);
                let (hot, rest) = (k as f64, 4.0 - k as f64);
                of * (hot * warm * warm + rest * cold * cold) / (hot * warm + rest * cold) / 4.0
            })
            .sum();
        near(cache.counts.hit_share(), expected, 0.01);
        near(size.counts.hit_share(), 0.25, 0.02);
        // DRAM holds all of the hot objects and some of the others.
        assert!(hot.counts.hit_share() > 0.88, "{hot:?}");
        assert!(hot.counts.hit_share() > cache.counts.hit_share() + 0.2);
    }

    #[test]
    fn a_threshold_keeps_small_objects() {
        let (_, ways) = ways("distribution = 'uniform'\nobjects = 50_000\nobject_bytes = '1..4096'");
        // The smallest half of evenly spread sizes has a quarter of the bytes.
        near(ways[2].counts.hit_share(), 0.5, 0.01);
        // An object of many lines is rarely whole in the cache, and its lines come from far memory.
        assert!(ways[1].counts.hit_share() < 0.3, "{:?}", ways[1]);
        assert!(ways[1].counts.far_read_bytes > ways[2].counts.far_read_bytes);
    }

    /// DRAM beyond all addresses for a megabyte of data, and DRAM that just holds them.
    #[test]
    fn a_cache_beyond_the_data_takes_no_more_memory() {
        let with = |gb: &str| {
            let text = format!(
                "data_gb = 0.001\ndistribution = 'uniform'\nobjects = 1000\nobject_bytes = '1..1000'\nrequests = 9000\n\
                 dram = {{ gb = {gb}, latency_ns = 80, gb_per_second = 10 }}\n\
                 far = {{ gb = 1, latency_ns = 300, gb_per_second_read = 5, gb_per_second_write = 1 }}"
            );
            let (memory, _) = Memory::parse(&text).unwrap();
            simulate_memory(&memory, Path::new(""), &mut |_, _| {}).unwrap()[1].counts
        };
        assert_eq!(with("1e12"), with("0.0011"));
    }

    #[test]
    fn a_trace_is_read_page_by_page() {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = (0..1_000).map(|_| "7 2 0 0\n100 1 0 0\n").collect();
        std::fs::write(folder.path().join("small.lis"), &lines).unwrap();
        std::fs::write(folder.path().join("small.lis.zst"), zstd::encode_all(lines.as_bytes(), 1).unwrap())
            .unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let of = |name: &str| ways(&format!("trace = '{}'\nobject_bytes = '512'", at(name))).1;
        let ways = of("small.lis");
        assert_eq!(ways[0].counts.requests, 2_250);
        assert_eq!(of("small.lis.zst"), ways);
        std::fs::write(folder.path().join("bad.lis"), "7 2 0 0\nseven 1\n").unwrap();
        let text = "data_gb = 1\ntrace = 'bad.lis'\nobject_bytes = '512'\n\
                    dram = { gb = 1, latency_ns = 80, gb_per_second = 10 }\n\
                    far = { gb = 1, latency_ns = 300, gb_per_second_read = 5, gb_per_second_write = 1 }";
        let told =
            simulate_memory(&Memory::parse(text).unwrap().0, folder.path(), &mut |_, _| {}).unwrap_err();
        assert!(told.contains("bad.lis, line 2: give a page and a count, as ARC's traces have"), "{told}");
        // Time and page, which begin another kind of trace.
        std::fs::write(folder.path().join("bad.lis"), "7 2 0 0\n8 1000000000000\n").unwrap();
        let told =
            simulate_memory(&Memory::parse(text).unwrap().0, folder.path(), &mut |_, _| {}).unwrap_err();
        assert!(told.contains("bad.lis, line 2: with its 1000000000000 pages"), "{told}");
    }
}
