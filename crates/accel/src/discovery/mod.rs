//! Finds the devices, groups, engines and work queues of this machine, and the queues that this process may use.
//!
//! Discovery reads only sysfs. The root may differ from `/sys`, so that discovery can read a recorded tree of another
//! machine. The texts are not trusted: a file that cannot be parsed becomes an [`Oddity`], and its value is absent.

mod queue;
mod report;
mod sysfs;
mod verdict;

use std::fmt;
use std::path::{Path, PathBuf};

pub use queue::{NodeFile, QueueMode, WorkQueue};
pub use verdict::{Usable, WhyNone, WhyNot};

use sysfs::{Folder, names, numbered, numbered_twice};

/// The folders to read.
#[derive(Debug, Clone)]
pub struct Places {
    /// The root of sysfs, `/sys`.
    pub sysfs: PathBuf,
    /// The root of device nodes, `/dev`.
    pub dev: PathBuf,
    /// Whether this process may open a file for reading and writing.
    pub may_open: fn(&Path) -> bool,
}

impl Default for Places {
    fn default() -> Places {
        Places { sysfs: "/sys".into(), dev: "/dev".into(), may_open: queue::may_open }
    }
}

impl Places {
    /// A recorded tree with the folders `sys` and `dev`.
    pub fn below(root: &Path) -> Places {
        Places { sysfs: root.join("sys"), dev: root.join("dev"), ..Places::default() }
    }
}

/// All that was found.
#[derive(Debug, Clone, Default)]
pub struct Discovery {
    /// The root of sysfs that was read.
    pub sysfs: PathBuf,
    /// Whether the kernel has the driver's bus, `bus/dsa`: without it, no device can be seen.
    pub has_bus: bool,
    /// Known PCI functions of this accelerator, with or without a driver.
    pub pci: Vec<PciFunction>,
    /// Devices that the driver knows, by number.
    pub devices: Vec<Accelerator>,
    /// Which processors belong to which NUMA node.
    pub nodes: Vec<Node>,
    /// Files that could not be read or understood.
    pub oddities: Vec<Oddity>,
}

/// A file or folder that could not be read or understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// Its path.
    pub path: PathBuf,
    /// The fault, such as `is not a number: "x"`.
    pub what: String,
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.what)
    }
}

/// A function on the PCI bus whose identity is known to be that of an IAA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Its address, such as `0000:6a:02.0`.
    pub address: String,
    /// Its device number; the vendor is Intel, 0x8086.
    pub device: u16,
    /// The driver that holds it, `idxd` if all is well.
    pub driver: Option<String>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: i32,
    /// Ranges of its processors, both ends included.
    pub processors: Vec<(u32, u32)>,
}

/// Whether a device or a queue is switched on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It takes jobs.
    Enabled,
    /// It is switched off.
    Disabled,
    /// The driver says something else, or (empty) nothing.
    Other(String),
}

impl State {
    fn of(text: Option<String>) -> State {
        match text.as_deref() {
            Some("enabled") => State::Enabled,
            Some("disabled") => State::Disabled,
            _ => State::Other(text.unwrap_or_default()),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Enabled => "enabled",
            State::Disabled => "disabled",
            State::Other(text) if text.is_empty() => "in no state that the driver tells",
            State::Other(text) => text,
        })
    }
}

/// A device. Values that the kernel does not report are `None`; older kernels lack some files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    /// Its name on the bus, such as `iax1`.
    pub name: String,
    /// The number in its name.
    pub number: u32,
    /// Whether it is switched on.
    pub state: State,
    /// Version: 0x100 for generation 1, 0x200 for generation 2.
    pub version: Option<u32>,
    /// Register GENCAP.
    pub gen_cap: Option<u64>,
    /// Register IAACAP, from generation 2 on.
    pub iaa_cap: Option<u64>,
    /// Opcodes that it has: bit *n* for opcode *n*.
    pub op_cap: Option<[u64; 4]>,
    /// The NUMA node; `None` too where the machine has one node only.
    pub numa_node: Option<i32>,
    /// Whether it takes virtual addresses of processes (shared virtual addressing).
    pub pasid_enabled: Option<bool>,
    /// Bytes that one job may read or write at most.
    pub max_transfer_size: Option<u64>,
    /// Work queues that it has.
    pub max_work_queues: Option<u32>,
    /// Entries that all queues share.
    pub max_work_queues_size: Option<u32>,
    /// Engines that it has.
    pub max_engines: Option<u32>,
    /// Groups that it has.
    pub max_groups: Option<u32>,
    /// Major number of its device nodes.
    pub cdev_major: Option<u32>,
    /// Result of the last command of the driver, 0 for success.
    pub cmd_status: Option<u32>,
    /// Register SWERROR: the last fault.
    pub errors: Option<String>,
    /// Whether queues and groups can be configured.
    pub configurable: Option<bool>,
    /// Processes that have one of its queues open.
    pub clients: Option<u32>,
    /// Entries of the event log, from generation 2 on.
    pub event_log_size: Option<u32>,
    /// Groups, by number.
    pub groups: Vec<Group>,
    /// Engines, by number.
    pub engines: Vec<Engine>,
    /// Work queues, by number.
    pub queues: Vec<WorkQueue>,
}

impl Accelerator {
    /// 1 or 2: the major version, 1 where the driver does not tell.
    pub fn generation(&self) -> u8 {
        self.version.map_or(1, |version| (version >> 8).clamp(1, 255) as u8)
    }
}

/// A group: queues, and the engines that serve them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, such as `group1.0`.
    pub name: String,
    /// The number behind the dot.
    pub number: u32,
    /// Names of its engines, as the driver lists them.
    pub engines: Option<String>,
    /// Names of its queues, as the driver lists them.
    pub work_queues: Option<String>,
}

/// An engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its name, such as `engine1.0`.
    pub name: String,
    /// The number behind the dot.
    pub number: u32,
    /// The group whose queues it serves, if any.
    pub group: Option<u32>,
}

impl Discovery {
    /// Looks at this machine, or at a recorded tree.
    pub fn read(places: &Places) -> Discovery {
        let mut found = Discovery { sysfs: places.sysfs.clone(), ..Discovery::default() };
        found.read_pci();
        found.read_nodes();
        let bus = places.sysfs.join("bus/dsa/devices");
        if let Some(names) = names(&bus, &mut found.oddities) {
            found.has_bus = true;
            found.read_bus(&bus, &names, places);
        }
        found
    }

    fn read_bus(&mut self, bus: &Path, names: &[String], places: &Places) {
        let mut devices: Vec<Accelerator> = names
            .iter()
            .filter_map(|name| Some((name, numbered(name, "iax")?)))
            .map(|(name, number)| read_device(&mut self.folder(bus, name), name, number))
            .collect();
        devices.sort_by_key(|device| device.number);
        for device in &mut devices {
            let of_device = |prefix: &str| {
                let parts = names.iter().filter_map(|name| Some((name, numbered_twice(name, prefix)?)));
                let mut parts: Vec<(&String, u32)> = parts
                    .filter(|(_, (owner, _))| *owner == device.number)
                    .map(|(name, (_, number))| (name, number))
                    .collect();
                parts.sort_by_key(|(_, number)| *number);
                parts
            };
            let (groups, engines, queues) = (of_device("group"), of_device("engine"), of_device("wq"));
            device.groups = groups
                .iter()
                .map(|(name, number)| read_group(&mut self.folder(bus, name), name, *number))
                .collect();
            device.engines = engines
                .iter()
                .map(|(name, number)| read_engine(&mut self.folder(bus, name), name, *number))
                .collect();
            device.queues = queues
                .iter()
                .map(|(name, number)| queue::read(&mut self.folder(bus, name), name, *number, places))
                .collect();
        }
        self.devices = devices;
    }

    fn folder(&mut self, parent: &Path, name: &str) -> Folder<'_> {
        Folder::new(parent.join(name), &mut self.oddities)
    }

    fn read_pci(&mut self) {
        let bus = self.sysfs.join("bus/pci/devices");
        for address in names(&bus, &mut self.oddities).unwrap_or_default() {
            // A function without identity is no oddity.
            let mut ignored = Vec::new();
            let mut folder = Folder::new(bus.join(&address), &mut ignored);
            let vendor = folder.number::<u16>("vendor");
            let Some(device) = folder.number::<u16>("device").filter(|device| PCI_DEVICES.contains(device))
            else {
                continue;
            };
            if vendor != Some(PCI_VENDOR_INTEL) {
                continue;
            }
            let driver = bus.join(&address).join("driver").canonicalize().ok();
            let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            self.pci.push(PciFunction { address, device, driver });
        }
    }

    fn read_nodes(&mut self) {
        let folder = self.sysfs.join("devices/system/node");
        let names = names(&folder, &mut self.oddities).unwrap_or_default();
        for (name, number) in names.iter().filter_map(|name| Some((name, numbered(name, "node")?))) {
            let text = self.folder(&folder, name).text("cpulist").unwrap_or_default();
            let processors = text.split(',').filter_map(range).collect();
            self.nodes.push(Node { number: number as i32, processors });
        }
        self.nodes.sort_by_key(|node| node.number);
    }

    /// The NUMA node of a processor, if the machine tells.
    pub fn node_of(&self, processor: u32) -> Option<i32> {
        let has = |node: &&Node| node.processors.iter().any(|&(low, high)| (low..=high).contains(&processor));
        self.nodes.iter().find(has).map(|node| node.number)
    }
}

const PCI_VENDOR_INTEL: u16 = 0x8086;

/// Sapphire and Emerald Rapids; Diamond Rapids; Panther Lake; Wildcat Lake.
const PCI_DEVICES: [u16; 4] = [0x0CFE, 0x1216, 0xB02D, 0xFD2D];

/// `3` or `0-15`.
fn range(text: &str) -> Option<(u32, u32)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

fn read_device(folder: &mut Folder<'_>, name: &str, number: u32) -> Accelerator {
    Accelerator {
        name: name.to_owned(),
        number,
        state: State::of(folder.text("state")),
        version: folder.number("version"),
        gen_cap: folder.number("gen_cap"),
        iaa_cap: folder.number("iaa_cap"),
        op_cap: folder.bits("op_cap"),
        numa_node: folder.number::<i32>("numa_node").filter(|&node| node >= 0),
        pasid_enabled: folder.flag("pasid_enabled"),
        max_transfer_size: folder.number("max_transfer_size"),
        max_work_queues: folder.number("max_work_queues"),
        max_work_queues_size: folder.number("max_work_queues_size"),
        max_engines: folder.number("max_engines"),
        max_groups: folder.number("max_groups"),
        cdev_major: folder.number("cdev_major"),
        cmd_status: folder.number("cmd_status"),
        errors: folder.text("errors"),
        configurable: folder.flag("configurable"),
        clients: folder.number("clients"),
        event_log_size: folder.number("event_log_size"),
        groups: Vec::new(),
        engines: Vec::new(),
        queues: Vec::new(),
    }
}

fn read_group(folder: &mut Folder<'_>, name: &str, number: u32) -> Group {
    let (engines, work_queues) = (folder.text("engines"), folder.text("work_queues"));
    Group { name: name.to_owned(), number, engines, work_queues }
}

fn read_engine(folder: &mut Folder<'_>, name: &str, number: u32) -> Engine {
    Engine { name: name.to_owned(), number, group: read_group_id(folder) }
}

/// The group of an engine or a queue; -1 says that it has none.
fn read_group_id(folder: &mut Folder<'_>) -> Option<u32> {
    folder.number::<i64>("group_id").and_then(|group| u32::try_from(group).ok())
}
