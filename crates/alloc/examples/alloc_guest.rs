//! The guest's part of `tests/vm/run`: a program that knows nothing of the allocator library and is started with it on
//! a machine with a node of far memory. It asks the kernel on which node its blocks really lie, and then takes the node
//! away while the blocks are in use.
//!
//! ```text
//! LD_PRELOAD=libziptier_alloc.so ZIPTIER_ALLOC=ratio=1:3,far=node:2 alloc_guest 2
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use ziptier_alloc::page::{FarKind, Snapshot};
use ziptier_alloc::programs::Program;

/// Blocks of these sizes, in turns, each a whole number of pages.
const BLOCK_BYTES: [usize; 3] = [4096, 8192, 16384];
const BLOCKS: usize = 3000;

fn main() -> Result<(), Box<dyn Error>> {
    let node: u32 = std::env::args().nth(1).ok_or("give the node of far memory")?.parse()?;
    let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(block).collect();
    let program = Program::of(std::process::id()).map_err(|obstacle| obstacle.to_string())?;
    let seen = Snapshot::of(program.page());
    if seen.far_kind != FarKind::Nodes || !seen.far_nodes.iter().eq([node]) {
        return Err(format!("the library has other far memory: {:?}", seen.far_kind).into());
    }
    let (all, far) = (bytes_where(&blocks, |_| true)?, bytes_where(&blocks, |found| found == node as i32)?);
    let [told_dram, told_far] = seen.media.each_ref().map(|medium| medium.live_bytes);
    println!(
        "alloc: {far} of {all} bytes on node {node}; the library tells {told_far} of {}",
        told_dram + told_far
    );
    if !(0.7..0.8).contains(&(far as f64 / all as f64)) {
        return Err("the ratio on the nodes is not 1:3".into());
    }

    let (removed, sections) = remove(node)?;
    let left = bytes_where(&blocks, |found| found == node as i32)?;
    println!(
        "alloc: {removed} of {sections} sections of node {node} removed, {left} bytes of blocks left on it"
    );
    if removed < sections || left > 0 {
        return Err("the node was not removed".into());
    }
    blocks.extend((BLOCKS..2 * BLOCKS).map(block));
    for (number, block) in blocks.iter().enumerate() {
        if *block != self::block(number) {
            return Err(format!("block {number} has lost its contents").into());
        }
    }
    println!("alloc: all blocks are whole, and {} more came after the removal", BLOCKS);
    Ok(())
}

fn block(number: usize) -> Vec<u8> {
    vec![number as u8 ^ (number >> 8) as u8; BLOCK_BYTES[number % BLOCK_BYTES.len()]]
}

/// Bytes of the blocks whose first page lies on a node that is asked for. The kernel is asked, not the library.
fn bytes_where(blocks: &[Vec<u8>], is_there: impl Fn(i32) -> bool) -> Result<usize, Box<dyn Error>> {
    let pages: Vec<*const u8> = blocks.iter().map(|block| block.as_ptr()).collect();
    let mut nodes = vec![-1i32; pages.len()];
    // SAFETY: without wanted nodes the call moves nothing. It reads as many pointers and writes as many nodes as it is
    // told.
    let asked = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), 0usize, nodes.as_mut_ptr(), 0)
    };
    if asked != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(blocks.iter().zip(nodes).filter(|(_, node)| is_there(*node)).map(|(block, _)| block.len()).sum())
}

/// Takes the sections of a node offline. Returns how many are, and how many there were.
fn remove(node: u32) -> Result<(usize, usize), Box<dyn Error>> {
    let (mut removed, mut sections) = (0, 0);
    for entry in fs::read_dir(format!("/sys/devices/system/node/node{node}"))?.flatten() {
        let state: PathBuf = entry.path().join("state");
        if entry.file_name().to_string_lossy().starts_with("memory") && state.exists() {
            sections += 1;
            match fs::write(&state, "offline") {
                Ok(()) => removed += 1,
                Err(error) => println!("alloc: {}: {error}", state.display()),
            }
        }
    }
    Ok((removed, sections))
}
