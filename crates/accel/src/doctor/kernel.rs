//! The kernel's boot options, and whether devices may use virtual addresses.

use super::text;
use crate::discovery::{Accelerator, Discovery};
use std::path::Path;
use ziptier_findings::{Finding, Section};

/// Beginnings of boot options that matter here.
const BOOT_OPTIONS: [&str; 6] = ["intel_iommu", "amd_iommu", "iommu", "no5lvl", "idxd", "iaa_crypto"];

/// The boot options that a queue for processes needs.
const SCALABLE_MODE: &str = "intel_iommu=on,sm_on";

pub(super) fn examine(root: &Path, found: &Discovery) -> Section {
    let mut section = Section::new("Kernel");
    let is_wanted = !found.pci.is_empty() || !found.devices.is_empty();
    let missing = |subject: &str, text: &str| {
        if is_wanted { Finding::bad(subject, text) } else { Finding::note(subject, text) }
    };
    let release = text(root, "proc/sys/kernel/osrelease");
    section.add(Finding::note("release", release.as_deref().unwrap_or("not told")));
    section.add(boot_options(root));
    let iommus = names(&root.join("sys/class/iommu"));
    let lacks_addresses =
        |device: &&Accelerator| device.pasid_enabled == Some(false) && !device.queues.is_empty();
    let without: Vec<&str> =
        found.devices.iter().filter(lacks_addresses).map(|device| device.name.as_str()).collect();
    let works = found.devices.iter().any(|device| device.pasid_enabled == Some(true));
    section.add(match iommus.first() {
        Some(first) if iommus.len() == 1 => Finding::good("IOMMU", format!("on: {first}")),
        Some(first) => Finding::good("IOMMU", format!("on: {first} and {} more", iommus.len() - 1)),
        None if works => Finding::good("IOMMU", "on"),
        None => missing("IOMMU", "off, or the machine has none"),
    });
    if found.has_bus {
        section.add(Finding::good("driver idxd", "loaded"));
    } else {
        section.add(missing("driver idxd", "not loaded"));
    }
    if !without.is_empty() {
        section.add(Finding::bad(
            "SVA",
            format!("off for {}: no queue of it can be opened by a process", without.join(", ")),
        ));
    } else if works {
        section.add(Finding::good("SVA", "on: devices use the addresses of a process"));
    }
    if is_wanted && !found.has_bus {
        section.remedy("Load the kernel's driver (until the next boot)", ["sudo modprobe idxd"]);
    }
    if !without.is_empty() || (is_wanted && iommus.is_empty() && !works) {
        section.remedy(
            "Let devices use the addresses of a process (also switch VT-d on in the firmware), then boot again",
            [
                format!("sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{SCALABLE_MODE} /' /etc/default/grub"),
                "sudo update-grub || sudo grub2-mkconfig -o /boot/grub2/grub.cfg".to_owned(),
                "sudo reboot".to_owned(),
            ],
        );
    }
    section
}

fn boot_options(root: &Path) -> Finding {
    let line = text(root, "proc/cmdline").unwrap_or_default();
    let options = wanted_options(&line);
    let text = if options.is_empty() { "none about IOMMU or driver".to_owned() } else { options.join(" ") };
    if options.contains(&SCALABLE_MODE) {
        Finding::good("boot options", text)
    } else {
        Finding::note("boot options", text)
    }
}

/// The boot options that matter here.
pub(super) fn wanted_options(line: &str) -> Vec<&str> {
    let is_wanted = |word: &&str| {
        let name = word.split(['=', '.']).next().unwrap_or_default();
        BOOT_OPTIONS.contains(&name)
    };
    line.split_whitespace().filter(is_wanted).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
