//! Runs in the guest of `tests/vm/run` and exercises far memory. It fills a DAX file until the machine is killed, and
//! checks the file after the next start. It uses a memory-only NUMA node, and is refused where there is no DAX. Every
//! failure is a sentence and a status of 1.

use std::error::Error;

use ziptier_media::far::{Far, FarKind, FarOptions, FarPlace};

type Outcome = Result<(), Box<dyn Error>>;

const DAX_BYTES: u64 = 128 << 20;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill", path] => fill(path),
        ["check", path, acknowledged] => check(path, acknowledged.parse()?),
        ["refuse", path] => refuse(&dax(path)),
        ["node", node] => use_node(node.parse()?),
        ["no-node", node] => refuse(&on_node(node.parse()?)),
        _ => Err("usage: far_guest fill|refuse PATH | check PATH ACKNOWLEDGED | node|no-node NUMBER".into()),
    }
}

fn dax(path: &str) -> FarOptions {
    FarOptions { place: FarPlace::File(path.into()), capacity_bytes: DAX_BYTES, require_dax: true }
}

fn on_node(node: u32) -> FarOptions {
    FarOptions { place: FarPlace::Node(node), capacity_bytes: 64 << 20, require_dax: false }
}

/// The bytes of block `number`: its number, and bytes that follow from it.
fn content(number: u64) -> Vec<u8> {
    let mut state = number ^ 0x5EED;
    let len = 16 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize % 3000;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..len).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    }));
    bytes
}

/// Puts blocks 0, 1, 2, ... until the process is killed or the medium is full. After each hundred blocks it prints how
/// many are acknowledged.
fn fill(path: &str) -> Outcome {
    let (far, _) = Far::open(&dax(path))?;
    println!("{}; {}", far.kind(), far.persistence());
    for number in 0.. {
        match far.put(&content(number)) {
            Ok(block) if far.get(&block) == content(number) => {}
            Ok(_) => return Err(format!("block {number} reads back differently").into()),
            Err(full) => {
                println!("FULL {full}");
                return Ok(());
            }
        }
        if number % 100 == 99 {
            println!("ACK {}", number + 1);
        }
    }
    Ok(())
}

/// At least the acknowledged blocks are there, each with its bytes, and none is missing before the last.
fn check(path: &str, acknowledged: u64) -> Outcome {
    let (far, reopened) = Far::open(&dax(path))?;
    println!("{}; {}", far.kind(), far.persistence());
    let mut numbers = Vec::new();
    for block in &reopened.blocks {
        let bytes = far.get(block);
        let number = u64::from_le_bytes(bytes.get(..8).ok_or("a block without a number")?.try_into()?);
        if bytes != content(number) {
            return Err(format!("block {number} has other bytes than were put").into());
        }
        numbers.push(number);
    }
    numbers.sort_unstable();
    if let Some(gap) = numbers.iter().zip(0..).find(|(found, expected)| **found != *expected) {
        return Err(format!("found block {} where {} was expected", gap.0, gap.1).into());
    }
    println!(
        "{} blocks found, {acknowledged} acknowledged, unreadable: {:?}",
        numbers.len(),
        reopened.unreadable
    );
    if numbers.len() < acknowledged as usize || reopened.unreadable.len() > 1 {
        return Err("acknowledged blocks are lost".into());
    }
    let block = far.put(b"and on it goes")?;
    far.free(block);
    Ok(())
}

fn refuse(options: &FarOptions) -> Outcome {
    match Far::open(options) {
        Ok((far, _)) => Err(format!("{options:?} was accepted as {}", far.kind()).into()),
        Err(refusal) => {
            println!("refused: {refusal}");
            Ok(())
        }
    }
}

fn use_node(node: u32) -> Outcome {
    let (far, _) = Far::open(&on_node(node))?;
    println!("{}; {}", far.kind(), far.persistence());
    if far.kind() != (FarKind::Node { node, memory_only: true }) {
        return Err("the node is not memory-only".into());
    }
    let blocks = (0..5000).map(|number| far.put(&content(number))).collect::<Result<Vec<_>, _>>()?;
    if blocks.iter().zip(0..).any(|(block, number)| far.get(block) != content(number)) {
        return Err("a block reads back differently".into());
    }
    // The kernel's own account of where the bound pages are: `bind:1 ... N1=16384`.
    let maps = std::fs::read_to_string("/proc/self/numa_maps")?;
    let bound =
        maps.lines().find(|line| line.contains(&format!(" bind:{node} "))).ok_or("no mapping is bound")?;
    println!("{bound}");
    let elsewhere =
        bound.split(' ').any(|word| word.starts_with('N') && !word.starts_with(&format!("N{node}=")));
    if elsewhere || !bound.contains(&format!(" N{node}=")) {
        return Err("pages lie on another node".into());
    }
    Ok(())
}
