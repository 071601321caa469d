//! Decides which queues can be used, and why the others cannot.

use std::fmt;
use std::path::PathBuf;

use super::{Accelerator, Discovery, NodeFile, QueueMode, State, WorkQueue};
use crate::device::Capabilities;

/// The reason why a work queue cannot be used: the first obstacle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// The device is not enabled.
    DeviceDisabled(State),
    /// The queue is not enabled.
    QueueDisabled(State),
    /// The queue is not for processes: its type and driver.
    WrongType {
        /// `kernel` or `none`, empty if the driver does not tell.
        kind: String,
        /// Such as `crypto`, empty if the driver does not tell.
        driver: String,
    },
    /// The driver does not say whether it is shared or dedicated.
    UnknownMode(String),
    /// The queue is in no group, so no engine serves it.
    NoGroup,
    /// The group of that number has no engine.
    NoEngine(u32),
    /// A dedicated queue that a process has open already.
    InUse,
    /// There is no device node, as in a container that was not given it.
    NoNode(PathBuf),
    /// The device node cannot be opened for reading and writing.
    NoPermission(PathBuf, NodeFile),
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::DeviceDisabled(state) => write!(f, "its device is {state}"),
            WhyNot::QueueDisabled(state) => write!(f, "the queue is {state}"),
            WhyNot::WrongType { kind, driver } => {
                write!(
                    f,
                    "the queue has type `{kind}` and driver `{driver}`, but only type `user` with driver "
                )?;
                f.write_str("`user` can be opened by processes")
            }
            WhyNot::UnknownMode(mode) => write!(f, "the queue is neither shared nor dedicated, but `{mode}`"),
            WhyNot::NoGroup => f.write_str("the queue is in no group"),
            WhyNot::NoEngine(group) => write!(f, "no engine is in group {group}, the group of the queue"),
            WhyNot::InUse => f.write_str("the queue is dedicated, and a process has it open"),
            WhyNot::NoNode(path) => write!(f, "there is no device node {}", path.display()),
            WhyNot::NoPermission(path, file) => {
                let NodeFile { owner, group, mode, .. } = file;
                write!(f, "this process may not read and write {} ", path.display())?;
                write!(f, "(owner {owner}, group {group}, mode {mode:04o})")
            }
        }
    }
}

/// The reason why there is no queue at all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNone {
    /// The machine has no such device.
    NoDevice,
    /// The PCI bus has devices, but the kernel's driver `idxd` does not hold them.
    DriverMissing(usize),
    /// Devices have no queues.
    NoQueues,
}

impl fmt::Display for WhyNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNone::NoDevice => f.write_str("this machine has no Intel IAA device"),
            WhyNone::DriverMissing(count) => {
                write!(
                    f,
                    "the PCI bus has {count} Intel IAA device(s), but the kernel's driver idxd holds none"
                )
            }
            WhyNone::NoQueues => f.write_str("the driver shows devices without work queues"),
        }
    }
}

/// A queue that can be opened, with its device.
#[derive(Debug, Clone, Copy)]
pub struct Usable<'a> {
    /// The device.
    pub device: &'a Accelerator,
    /// One of its queues.
    pub queue: &'a WorkQueue,
}

/// The transfer size that drivers configure, and that clients assume, unless another one is stated.
const TRANSFER_BYTES_DEFAULT: u64 = 2 << 20;

impl Usable<'_> {
    /// Device and queue, such as `iax1/wq1.0`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.queue.name)
    }

    /// The capabilities of the queue and its device. For values that the kernel does not report, the least is assumed.
    pub fn capabilities(&self) -> Capabilities {
        let (device, queue) = (self.device, self.queue);
        let sizes = [queue.max_transfer_size, device.max_transfer_size];
        let bytes = sizes.into_iter().flatten().min().unwrap_or(TRANSFER_BYTES_DEFAULT);
        let tells_full = queue.mode == QueueMode::Shared;
        let size = queue.size.unwrap_or(1);
        let depth = queue.threshold.filter(|_| tells_full).map_or(size, |threshold| threshold.min(size));
        let all = device.op_cap.unwrap_or(OPCODES_USUAL);
        let allowed = queue.op_config.unwrap_or(all);
        Capabilities {
            generation: device.generation(),
            block_on_fault: queue.blocks_on_fault(),
            transfer_bytes_max: bytes.min(u64::from(u32::MAX)) as u32,
            depth: depth.max(1),
            tells_full,
            opcodes: std::array::from_fn(|word| all[word] & allowed[word]),
            iaa_cap: device.iaa_cap.unwrap_or(0),
        }
    }
}

/// Opcodes that every device of generation 1 has: 0x00, 0x02, 0x42 to 0x44, 0x50, 0x52, 0x53, 0x56.
const OPCODES_USUAL: [u64; 4] = [0b101, 0b0100_1101 << 16 | 0b1_1100, 0, 0];

impl Accelerator {
    /// Whether this process can use a queue of this device, or the reason why not.
    pub fn judge<'a>(&'a self, queue: &'a WorkQueue) -> Result<Usable<'a>, WhyNot> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        if self.state != State::Enabled {
            return Err(WhyNot::DeviceDisabled(self.state.clone()));
        }
        if queue.state != State::Enabled {
            return Err(WhyNot::QueueDisabled(queue.state.clone()));
        }
        // Kernels before 6.7 have no names of drivers.
        let of_users = queue.driver_name.as_deref().is_none_or(|driver| matches!(driver, "user" | ""));
        if queue.kind.as_deref() != Some("user") || !of_users {
            return Err(WhyNot::WrongType { kind: text(&queue.kind), driver: text(&queue.driver_name) });
        }
        if let QueueMode::Other(mode) = &queue.mode {
            return Err(WhyNot::UnknownMode(mode.clone()));
        }
        let group = queue.group.ok_or(WhyNot::NoGroup)?;
        if !self.engines.iter().any(|engine| engine.group == Some(group)) {
            return Err(WhyNot::NoEngine(group));
        }
        let Some(file) = &queue.node_file else { return Err(WhyNot::NoNode(queue.node.clone())) };
        if !file.may_open {
            return Err(WhyNot::NoPermission(queue.node.clone(), file.clone()));
        }
        if queue.mode == QueueMode::Dedicated && queue.clients.is_some_and(|clients| clients > 0) {
            return Err(WhyNot::InUse);
        }
        Ok(Usable { device: self, queue })
    }
}

impl Discovery {
    /// Every queue with its verdict, by device and number.
    pub fn verdicts(
        &self,
    ) -> impl Iterator<Item = (&Accelerator, &WorkQueue, Result<Usable<'_>, WhyNot>)> + '_ {
        let pairs =
            self.devices.iter().flat_map(|device| device.queues.iter().map(move |queue| (device, queue)));
        pairs.map(|(device, queue)| (device, queue, device.judge(queue)))
    }

    /// The queues that this process can open, by device and number.
    pub fn usable(&self) -> impl Iterator<Item = Usable<'_>> + '_ {
        self.verdicts().filter_map(|(_, _, verdict)| verdict.ok())
    }

    /// The reason why there is no queue; `None` if there is one.
    pub fn why_none(&self) -> Option<WhyNone> {
        if self.devices.iter().any(|device| !device.queues.is_empty()) {
            None
        } else if !self.devices.is_empty() {
            Some(WhyNone::NoQueues)
        } else if !self.pci.is_empty() {
            Some(WhyNone::DriverMissing(self.pci.len()))
        } else {
            Some(WhyNone::NoDevice)
        }
    }
}
