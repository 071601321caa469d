//! The commands that make a queue usable, by `accel-config` where it is installed, otherwise by sysfs alone.

use crate::discovery::{Accelerator, Engine, State, WhyNot, WorkQueue};
use std::path::Path;

/// Entries that a queue gets, if this many are free.
const ENTRIES: u32 = 128;

/// The most bytes that the queue's jobs may read or write: the size that clients assume.
const TRANSFER_BYTES: u32 = 2 << 20;

/// The paths of `accel-config`.
pub(super) const TOOLS: [&str; 3] =
    ["usr/bin/accel-config", "usr/local/bin/accel-config", "usr/sbin/accel-config"];

/// The tool for the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    AccelConfig,
    Sysfs,
}

impl Tool {
    /// The tool that the machine has.
    pub(super) fn find(root: &Path) -> Tool {
        let is_there = TOOLS.iter().any(|place| root.join(place).exists());
        if is_there { Tool::AccelConfig } else { Tool::Sysfs }
    }

    fn disable_queue(self, device: &Accelerator, queue: &WorkQueue) -> String {
        let driver = queue.driver_name.as_deref().filter(|name| is_word(name)).unwrap_or("user");
        match self {
            Tool::AccelConfig => format!("sudo accel-config disable-wq {}/{}", device.name, queue.name),
            Tool::Sysfs => format!("echo {} > drivers/{driver}/unbind", queue.name),
        }
    }

    fn disable_device(self, device: &Accelerator) -> String {
        match self {
            Tool::AccelConfig => format!("sudo accel-config disable-device {}", device.name),
            Tool::Sysfs => format!("echo {} > drivers/idxd/unbind", device.name),
        }
    }

    fn enable_device(self, device: &Accelerator) -> String {
        match self {
            Tool::AccelConfig => format!("sudo accel-config enable-device {}", device.name),
            Tool::Sysfs => format!("echo {} > drivers/idxd/bind", device.name),
        }
    }

    fn enable_queue(self, device: &Accelerator, queue: &WorkQueue) -> String {
        match self {
            Tool::AccelConfig => format!("sudo accel-config enable-wq {}/{}", device.name, queue.name),
            Tool::Sysfs => format!("echo {} > drivers/user/bind", queue.name),
        }
    }

    /// Puts an engine into a group.
    fn engine(self, device: &Accelerator, engine: &Engine, group: u32) -> String {
        let (device, engine) = (&device.name, &engine.name);
        match self {
            Tool::AccelConfig => {
                format!("sudo accel-config config-engine {device}/{engine} --group-id={group}")
            }
            Tool::Sysfs => format!("echo {group} > devices/{engine}/group_id"),
        }
    }

    /// Sets attributes of a queue, in the order in which the kernel takes them.
    fn queue(self, device: &Accelerator, queue: &WorkQueue, attributes: &[(&str, String)]) -> Vec<String> {
        if self == Tool::Sysfs {
            let set =
                |(name, value): &(&str, String)| format!("echo {value} > devices/{}/{name}", queue.name);
            return attributes.iter().map(set).collect();
        }
        let option = |(name, value): &(&str, String)| {
            let name = if *name == "size" { "wq-size".to_owned() } else { name.replace('_', "-") };
            format!("--{name}={value}")
        };
        let options: Vec<String> = attributes.iter().map(option).collect();
        let mut lines = vec![format!("sudo accel-config config-wq {}/{} \\", device.name, queue.name)];
        lines.extend(options.chunks(4).map(|options| format!("  {} \\", options.join(" "))));
        if let Some(last) = lines.last_mut() {
            last.truncate(last.len() - " \\".len());
        }
        lines
    }

    /// The lines to paste. One shell writes the kernel's files and stops at the first refusal.
    fn script(self, steps: Vec<String>) -> Vec<String> {
        if self == Tool::AccelConfig {
            return steps;
        }
        let mut script = vec!["sudo sh -ec '".to_owned(), "  cd /sys/bus/dsa".to_owned()];
        script.extend(steps.into_iter().map(|step| format!("  {step}")));
        script.push("'".to_owned());
        script
    }
}

/// Whether a text from the kernel may stand in a command.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The queue of a device that needs the fewest steps to be usable, and its obstacle.
pub(super) fn nearest(device: &Accelerator) -> Option<(&WorkQueue, WhyNot)> {
    let judged = device.queues.iter().filter_map(|queue| Some((queue, device.judge(queue).err()?)));
    judged.min_by_key(|(queue, why)| (effort(device, queue, why), queue.number))
}

fn effort(device: &Accelerator, queue: &WorkQueue, why: &WhyNot) -> u32 {
    match why {
        WhyNot::NoPermission(..) | WhyNot::NoNode(_) => 0,
        WhyNot::QueueDisabled(_) | WhyNot::DeviceDisabled(_) if is_configured(device, queue) => 1,
        WhyNot::InUse => 2,
        // A queue that the kernel uses is the last to be taken.
        WhyNot::WrongType { .. } if queue.state == State::Enabled => 4,
        _ if entries(device, queue) != 0 => 3,
        _ => 5,
    }
}

/// Whether a queue is fully configured, so that it can be switched on for processes.
fn is_configured(device: &Accelerator, queue: &WorkQueue) -> bool {
    is_served(device, queue) && queue.size != Some(0) && queue.kind.as_deref() == Some("user")
}

/// Whether an engine is in the queue's group.
fn is_served(device: &Accelerator, queue: &WorkQueue) -> bool {
    queue.group.is_some() && device.engines.iter().any(|engine| engine.group == queue.group)
}

/// Entries that a queue has, or could have.
fn entries(device: &Accelerator, queue: &WorkQueue) -> u32 {
    if let Some(size) = queue.size.filter(|size| *size != 0) {
        return size;
    }
    let taken = device.queues.iter().filter_map(|queue| queue.size).fold(0, u32::saturating_add);
    device.max_work_queues_size.unwrap_or(ENTRIES).saturating_sub(taken).min(ENTRIES)
}

/// Whether the device must be off for the change. Size and groups can only be changed while the device is off; the rest
/// needs only the queue off.
fn rebuilds(device: &Accelerator, queue: &WorkQueue) -> bool {
    !is_served(device, queue) || queue.size.unwrap_or(0) == 0
}

/// Whether [`steps`] take the settings of other queues that are in use.
pub(super) fn costs_others(device: &Accelerator, queue: &WorkQueue) -> bool {
    let other_is_on = |other: &WorkQueue| other.number != queue.number && other.state == State::Enabled;
    rebuilds(device, queue) && device.state == State::Enabled && device.queues.iter().any(other_is_on)
}

/// The steps that make any queue a shared queue for processes.
pub(super) fn steps(device: &Accelerator, queue: &WorkQueue, tool: Tool) -> Vec<String> {
    let mut steps = Vec::new();
    let is_ready = is_configured(device, queue) && queue.state != State::Enabled;
    let rebuilds = rebuilds(device, queue);
    if queue.state == State::Enabled {
        steps.push(tool.disable_queue(device, queue));
    }
    let was_on = device.state == State::Enabled;
    if rebuilds && was_on {
        steps.push(tool.disable_device(device));
    }
    let group = queue.group.unwrap_or(0);
    if rebuilds {
        // A device that is switched off forgets the groups of its engines.
        let lacks_group = |engine: &&Engine| was_on || engine.group.is_none();
        let engines = device.engines.iter().filter(lacks_group);
        steps.extend(engines.map(|engine| tool.engine(device, engine, engine.group.unwrap_or(group))));
    }
    if !is_ready {
        let attributes = attributes(device, queue, group, rebuilds);
        steps.extend(tool.queue(device, queue, &attributes));
    }
    if !was_on || rebuilds {
        steps.push(tool.enable_device(device));
    }
    steps.push(tool.enable_queue(device, queue));
    tool.script(steps)
}

fn attributes(
    device: &Accelerator,
    queue: &WorkQueue,
    group: u32,
    rebuilds: bool,
) -> Vec<(&'static str, String)> {
    let entries = entries(device, queue).max(1).to_string();
    let mut attributes = Vec::new();
    if rebuilds {
        attributes.push(("group_id", group.to_string()));
    }
    attributes.push(("mode", "shared".to_owned()));
    if rebuilds {
        attributes.push(("size", entries.clone()));
    }
    attributes.extend([
        ("threshold", entries),
        ("priority", "10".to_owned()),
        ("block_on_fault", "1".to_owned()),
        ("max_transfer_size", TRANSFER_BYTES.to_string()),
        ("type", "user".to_owned()),
        ("name", "ziptier".to_owned()),
        ("driver_name", "user".to_owned()),
    ]);
    attributes
}
