//! Devices and their queues: state, mode, permissions, and obstacles.

use super::enabling::{Tool, costs_others, nearest, steps};
use super::text;
use crate::discovery::{Accelerator, Discovery, PciFunction, QueueMode, State, WhyNot, WorkQueue};
use std::path::Path;
use ziptier_findings::{Finding, Section, shell_word};

/// The most lines about oddities.
const ODDITIES_MAX: usize = 5;

pub(super) fn examine(root: &Path, found: &Discovery) -> Section {
    let mut section = Section::new("Accelerators");
    for function in &found.pci {
        let subject = format!("PCI {}", function.address);
        let identity = format!("Intel IAA, 8086:{:04x}", function.device);
        match function.driver.as_deref() {
            Some("idxd") => section.add(Finding::good(subject, format!("{identity}, driver idxd"))),
            None => {
                section.add(Finding::bad(subject, format!("{identity}, no driver")));
                if found.has_bus {
                    let commands = [bind(function, "idxd", "bind"), "sudo dmesg | grep -i idxd".to_owned()];
                    section.remedy(
                        format!("Have the driver idxd try {} again (until the next boot)", function.address),
                        commands,
                    );
                }
            }
            Some(other) => {
                section.add(Finding::bad(subject, format!("{identity}, held by driver {other}")));
                let commands = [bind(function, other, "unbind"), bind(function, "idxd", "bind")];
                section.remedy(
                    format!("Give {} to the driver idxd (until the next boot)", function.address),
                    commands,
                );
            }
        }
    }
    if found.pci.is_empty() && found.devices.is_empty() {
        section
            .add(Finding::note("Intel IAA", "none on the PCI bus (4th generation Xeon and later have it)"));
    }
    for device in &found.devices {
        section.add(device_line(device));
        for queue in &device.queues {
            section.add(queue_line(device, queue));
        }
    }
    for oddity in found.oddities.iter().take(ODDITIES_MAX) {
        let path = oddity.path.strip_prefix(root).unwrap_or(&oddity.path);
        section.add(Finding::note("odd", format!("{} {}", path.display(), oddity.what)));
    }
    remedies(root, found, &mut section);
    section
}

fn bind(function: &PciFunction, driver: &str, what: &str) -> String {
    let address = shell_word(&function.address);
    format!("echo {address} | sudo tee /sys/bus/pci/drivers/{}/{what}", shell_word(driver))
}

fn device_line(device: &Accelerator) -> Finding {
    let mut told = vec![device.state.to_string(), format!("generation {}", device.generation())];
    told.extend(device.numa_node.map(|node| format!("NUMA node {node}")));
    told.push(format!("{} of {} engines in groups", in_groups(device), device.engines.len()));
    told.extend(
        device.cmd_status.filter(|status| *status != 0).map(|status| format!("last command {status:#x}")),
    );
    let text = told.join(", ");
    let name = device.name.clone();
    if device.state == State::Enabled { Finding::good(name, text) } else { Finding::bad(name, text) }
}

fn in_groups(device: &Accelerator) -> usize {
    device.engines.iter().filter(|engine| engine.group.is_some()).count()
}

fn queue_line(device: &Accelerator, queue: &WorkQueue) -> Finding {
    let mut told = vec![format!("type {}", queue.kind.as_deref().unwrap_or("none"))];
    if let QueueMode::Shared | QueueMode::Dedicated = queue.mode {
        told.push(queue.mode.to_string());
    }
    told.extend(queue.size.map(|size| format!("{size} entries")));
    told.extend(queue.node_file.as_ref().map(|file| format!("permissions {:04o}", file.mode)));
    let how = told.join(", ");
    let name = queue.name.clone();
    match device.judge(queue) {
        Ok(_) if queue.blocks_on_fault() => Finding::good(name, how),
        Ok(_) => Finding::good(name, format!("{how}, page faults end a job")),
        // An unconfigured queue is no obstacle while another one works.
        Err(why) if usable(device) => Finding::note(name, format!("{}: {how}", short(&why))),
        Err(why) => Finding::bad(name, format!("{}: {how}", short(&why))),
    }
}

fn usable(device: &Accelerator) -> bool {
    device.queues.iter().any(|queue| device.judge(queue).is_ok())
}

/// A reason in a few words, without paths.
fn short(why: &WhyNot) -> String {
    match why {
        WhyNot::DeviceDisabled(state) => format!("its device is {state}"),
        WhyNot::QueueDisabled(state) => state.to_string(),
        WhyNot::WrongType { driver, .. } if driver.is_empty() => "not for processes".to_owned(),
        WhyNot::WrongType { driver, .. } => format!("taken by the kernel's driver {driver}"),
        WhyNot::UnknownMode(_) => "neither shared nor dedicated".to_owned(),
        WhyNot::NoGroup => "in no group".to_owned(),
        WhyNot::NoEngine(group) => format!("no engine in its group {group}"),
        WhyNot::InUse => "another process has it open".to_owned(),
        WhyNot::NoNode(_) => "no device node".to_owned(),
        WhyNot::NoPermission(..) => "no permission".to_owned(),
    }
}

/// The same as half a sentence about a queue.
pub(super) fn sentence(name: &str, why: &WhyNot) -> String {
    match why {
        WhyNot::DeviceDisabled(state) => format!("the device of {name} is {state}"),
        WhyNot::NoEngine(_) => format!("no engine serves {name}"),
        WhyNot::InUse => format!("another process has {name} open"),
        WhyNot::NoNode(_) => format!("{name} has no device node"),
        WhyNot::NoPermission(..) => format!("no permission for {name}"),
        _ => format!("{name} is {}", short(why)),
    }
}

fn remedies(root: &Path, found: &Discovery, section: &mut Section) {
    let tool = Tool::find(root);
    for device in found.devices.iter().filter(|device| !usable(device)) {
        let Some((queue, why)) = nearest(device) else { continue };
        let name = format!("{}/{}", device.name, queue.name);
        let node = format!("/dev/iax/{}", queue.name);
        match why {
            WhyNot::NoPermission(..) => section.remedy(
                format!("Permit yourself to use {name} (until the next boot)"),
                [format!("sudo chown \"$USER\" {node}")],
            ),
            WhyNot::NoNode(_) => section
                .remedy(format!("Hand {node} to the container"), [format!("docker run --device {node} ...")]),
            why => {
                let lost = match costs_others(device, queue) {
                    true => format!(" (all queues of {} lose their settings)", device.name),
                    false => String::new(),
                };
                let what = match why {
                    WhyNot::InUse => {
                        format!(
                            "Wait for the process that has {name}, or make the queue shared until the next boot"
                        )
                    }
                    WhyNot::WrongType { kind, .. } if kind == "kernel" => {
                        format!(
                            "Take {name} from the kernel, which then compresses without it, until the next boot"
                        )
                    }
                    _ => format!("Switch {name} on until the next boot"),
                };
                // The node of a queue that was just switched on is root's.
                let permission = format!("sudo chown \"$USER\" {node}");
                let commands = steps(device, queue, tool).into_iter().chain([permission]);
                section.remedy(what + &lost, commands);
            }
        }
    }
    mapping(root, found, section);
}

/// Kernels since 6.9 map queues of devices that are not safe against hostile submitters for privileged processes only.
fn mapping(root: &Path, found: &Discovery, section: &mut Section) {
    let release = text(root, "proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 9) || !found.usable().any(|usable| usable.device.generation() == 1) {
        return;
    }
    let status = text(root, "proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    if effective >> CAP_SYS_RAWIO & 1 == 1 {
        section.add(Finding::good("submission", "queues can be mapped: no system call for a job"));
        return;
    }
    section.add(Finding::note(
        "submission",
        "by write(): since 6.9 the kernel maps queues for privileged processes only",
    ));
    section.remedy(
        "Optional: submit without a system call (the right is a strong one)",
        ["sudo setcap cap_sys_rawio+ep \"$(command -v ziptier)\""],
    );
}

/// The number of the capability.
const CAP_SYS_RAWIO: u32 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a recorded tree are another machine's, and its reader pastes the commands.
    #[test]
    fn no_name_of_a_recorded_tree_becomes_a_command() {
        let driver = Some("a;b".to_owned());
        let function = PciFunction { address: "$(reboot)".to_owned(), device: 0x0CFE, driver };
        let found = Discovery { has_bus: true, pci: vec![function], ..Discovery::default() };
        let section = examine(Path::new("/nowhere"), &found);
        assert_eq!(
            section.remedies[0].commands,
            [
                "echo '$(reboot)' | sudo tee /sys/bus/pci/drivers/'a;b'/unbind",
                "echo '$(reboot)' | sudo tee /sys/bus/pci/drivers/idxd/bind",
            ]
        );
    }
}
