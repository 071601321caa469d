//! What is asked for: traces, where there are any, and synthetic requests.

use std::io::Read;
use std::path::Path;

/// Synthetic requests of each kind.
const REQUESTS: usize = 1_000_000;

/// Every series of requests with its name.
pub(crate) fn all() -> Vec<(&'static str, Vec<u64>)> {
    let mut all = vec![
        ("zipf 0.9", zipf(100_000, 0.9, 0)),
        ("zipf 1.1", zipf(200_000, 1.1, 0)),
        ("zipf 0.9, moving", zipf(100_000, 0.9, 50)),
        ("zipf 0.9, scans", scanned(zipf(100_000, 0.9, 0))),
    ];
    if std::env::args().any(|argument| argument == "--synthetic") {
        return all;
    }
    let Some(folder) = std::env::var_os("ZIPTIER_TRACES") else {
        eprintln!("ZIPTIER_TRACES is not set: SYNTHETIC REQUESTS ONLY");
        return all;
    };
    for name in ["OLTP", "P3"] {
        let path = Path::new(&folder).join(format!("{name}.lis.zst"));
        match read_trace(&path) {
            Ok(requests) => all.push((name, requests)),
            Err(error) => eprintln!("{} can't be read ({error}): LEFT OUT", path.display()),
        }
    }
    all
}

/// Lines of `start count ignored ignored`, each of which asks for `count` consecutive pages.
fn read_trace(path: &Path) -> std::io::Result<Vec<u64>> {
    let mut text = String::new();
    zstd::Decoder::new(std::fs::File::open(path)?)?.read_to_string(&mut text)?;
    let mut requests = Vec::new();
    for line in text.lines() {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(start)), Some(Ok(count))) = (numbers.next(), numbers.next()) else {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("no request: {line}")));
        };
        requests.extend(start..start + count);
    }
    Ok(requests)
}

/// Keys whose ranks follow Zipf's law; with `moving`, all ranks move on by one key after so many requests.
fn zipf(keys: usize, alpha: f64, moving: usize) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(1);
    (0..REQUESTS)
        .map(|index| {
            let drawn = random.f64() * sum;
            let rank = sums.partition_point(|below| *below < drawn) as u64;
            let moved = index.checked_div(moving).unwrap_or(0) as u64;
            (rank + moved).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 26
        })
        .collect()
}

/// The same with a scan of 20,000 keys that are asked for once after every 50,000 requests.
fn scanned(requests: Vec<u64>) -> Vec<u64> {
    let scan = |index: usize| (0..20_000).map(move |key| 1 << 39 | (index as u64 * 20_000 + key));
    let parts = requests.chunks(50_000).enumerate();
    parts.flat_map(|(index, part)| part.iter().copied().chain(scan(index)).collect::<Vec<_>>()).collect()
}
