//! Finds the obstacles between a process and the accelerator, step by step: processor, kernel, devices, queues.
//!
//! [`examine`] reports each check and its finding in one line, and the commands that would help. It changes nothing. It
//! reads only files, so that it can examine a recorded tree of another machine.

mod devices;
mod enabling;
mod kernel;
mod processor;
mod record;

use crate::discovery::{Discovery, WhyNone};
pub use record::record;
use std::path::Path;
use ziptier_findings::Section;

/// Examines a root, which is `/` for this machine, for facts that `found` does not contain.
pub fn examine(root: &Path, found: &Discovery) -> Vec<Section> {
    vec![processor::examine(root), kernel::examine(root, found), devices::examine(root, found)]
}

/// Whether jobs can leave the CPU, and why not, in one sentence.
pub fn headline(found: &Discovery) -> String {
    let usable: Vec<String> = found.usable().map(|usable| usable.name()).collect();
    match (&usable[..], why_not(found)) {
        (_, Some(why)) => format!("Compression stays on the CPU: {why}."),
        ([one], None) => format!("Compression can leave the CPU, through {one}."),
        (all, None) => format!("Compression can leave the CPU, through {} work queues.", all.len()),
    }
}

/// The reason why no job can leave the CPU, as a clause; `None` if jobs can.
pub fn why_not(found: &Discovery) -> Option<String> {
    if found.usable().next().is_some() {
        return None;
    }
    let words = match found.why_none() {
        Some(WhyNone::NoDevice) => "this machine has no Intel IAA",
        Some(WhyNone::DriverMissing(_)) if found.has_bus => "driver idxd does not hold the Intel IAA",
        Some(WhyNone::DriverMissing(_)) => "driver idxd is not loaded",
        Some(_) => "the devices have no work queues",
        None => {
            let nearest = found.devices.iter().find_map(enabling::nearest);
            return nearest.map(|(queue, why)| devices::sentence(&queue.name, &why));
        }
    };
    Some(words.to_owned())
}

/// The text of a small file, without surrounding white space.
fn text(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}
