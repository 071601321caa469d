//! Direct access: DAX devices, and file systems on persistent memory.

use super::{bytes, numbered, text};
use std::path::Path;
use ziptier_findings::{Finding, Recorder, Section, shell_word};

const DEVICES: &str = "sys/bus/dax/devices";

pub(super) fn examine(root: &Path, section: &mut Section) {
    let before = section.findings.len();
    devices(root, section);
    let mounts = mounts(root);
    for mount in &mounts {
        section.add(mount.finding());
        if mount.option.is_none() {
            let [device, folder] = [&mount.device, &mount.folder].map(|word| shell_word(word));
            section.remedy(
                format!("Give direct access to {} (until the next boot)", mount.folder),
                [format!("sudo umount {folder}"), format!("sudo mount -o dax=always {device} {folder}")],
            );
        }
    }
    for (_, name) in numbered(&root.join("sys/block"), "pmem") {
        if !mounts.iter().any(|mount| mount.device == format!("/dev/{name}")) {
            let sectors = text(&root.join("sys/block").join(&name).join("size"));
            let size = sectors.and_then(|sectors| sectors.parse::<u64>().ok()?.checked_mul(512));
            let size = size.map_or("unknown size".to_owned(), bytes);
            section.add(Finding::note(name, format!("{size} of persistent memory, not mounted")));
        }
    }
    if section.findings.len() == before {
        section.add(Finding::note("DAX", "no device, no file system"));
    }
}

/// Memory that the kernel exposes as a character device, not as a block device.
fn devices(root: &Path, section: &mut Section) {
    let folder = root.join(DEVICES);
    for name in device_names(root) {
        let attribute = |attribute: &str| text(&folder.join(&name).join(attribute));
        let size =
            attribute("size").and_then(|size| size.parse().ok()).map_or("unknown size".to_owned(), bytes);
        let node = attribute("target_node").filter(|node| !node.starts_with('-'));
        section.add(match (is_memory(&folder.join(&name)), node) {
            (true, Some(node)) => Finding::good(name, format!("{size}, in use as memory of node {node}")),
            (true, None) => Finding::good(name, format!("{size}, in use as memory")),
            (false, Some(node)) => Finding::good(name, format!("{size}, would be node {node}")),
            (false, None) => Finding::good(name, size),
        });
    }
}

/// The devices that are no memory of a node yet.
pub(super) fn unused_devices(root: &Path) -> Vec<String> {
    let mut names = device_names(root);
    names.retain(|name| !is_memory(&root.join(DEVICES).join(name)));
    names
}

fn device_names(root: &Path) -> Vec<String> {
    let entries = root.join(DEVICES).read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn is_memory(device: &Path) -> bool {
    device.join("driver").canonicalize().is_ok_and(|driver| driver.ends_with("kmem"))
}

/// A mounted file system that has direct access, or could have.
struct Mount {
    device: String,
    folder: String,
    kind: String,
    /// The option that gives direct access.
    option: Option<String>,
}

impl Mount {
    /// A line of `/proc/mounts`.
    fn parse(line: &str) -> Option<Mount> {
        let mut words = line.split(' ').map(unescape);
        let (device, folder, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let has = |option: &&str| matches!(*option, "dax" | "dax=always" | "dax=inode");
        let option = options.split(',').find(has).map(str::to_owned);
        let is_persistent = device.starts_with("/dev/pmem");
        (option.is_some() || is_persistent).then_some(Mount { device, folder, kind, option })
    }

    fn finding(&self) -> Finding {
        let Mount { device, folder, kind, option } = self;
        match option {
            Some(option) => Finding::good(folder, format!("{kind} on {device}, mounted with {option}")),
            None => Finding::bad(folder, format!("{kind} on {device}, mounted without direct access")),
        }
    }
}

/// Records what [`examine`] reads.
pub(super) fn record(recorder: &mut Recorder) {
    for name in recorder.folder(DEVICES) {
        let device = format!("{DEVICES}/{name}");
        recorder.file(&format!("{device}/size"));
        recorder.file(&format!("{device}/target_node"));
        recorder.driver(&format!("{device}/driver"));
    }
    for name in recorder.folder("sys/block").iter().filter(|name| name.starts_with("pmem")) {
        recorder.file(&format!("sys/block/{name}/size"));
    }
    recorder.lines("proc/mounts", |line| Mount::parse(line).map(|_| line.to_owned()));
}

fn mounts(root: &Path) -> Vec<Mount> {
    let text = text(&root.join("proc/mounts")).unwrap_or_default();
    text.lines().filter_map(Mount::parse).collect()
}

/// The kernel writes a blank in a path as `\040`.
fn unescape(word: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(word.to_owned(), |word, (escaped, plain)| word.replace(escaped, plain))
}
