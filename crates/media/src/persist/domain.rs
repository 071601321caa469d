//! Finds which part of the machine survives a power cut, according to the kernel.
//!
//! The kernel describes every region of persistent memory under `/sys/bus/nd/devices`, in the file
//! `persistence_domain`. The value `cpu_cache` means that the platform writes its caches back when power fails (eADR).
//! The value `memory_controller` means that it saves only bytes that have reached the memory controller (ADR). The file
//! is missing if the firmware states neither.

use std::fs;
use std::path::Path;

/// The part that a platform saves when power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// eADR: the processor's caches too, so that a fence alone makes stores durable.
    Caches,
    /// ADR: bytes that have left the caches, so that lines must be flushed before the fence.
    MemoryController,
    /// The firmware does not say; lines are flushed as under ADR.
    Unstated,
}

impl Domain {
    /// The domain of the region of persistent memory that block device `major:minor` lies on, read from the sysfs
    /// mounted at `sysfs`.
    ///
    /// If the device's region cannot be found (behind a device mapper, say), returns the weakest domain of all regions.
    pub fn of_device(sysfs: &Path, major: u32, minor: u32) -> Domain {
        let device = sysfs.join(format!("dev/block/{major}:{minor}"));
        if let Ok(device) = device.canonicalize() {
            // /sys/devices/.../ndbus0/region0/pfn0.1/block/pmem0
            for folder in device.ancestors().take_while(|&folder| folder != sysfs) {
                if is_region(folder) {
                    return of_region(folder);
                }
            }
        }
        Domain::weakest(sysfs)
    }

    /// The weakest domain of all regions under `sysfs`.
    fn weakest(sysfs: &Path) -> Domain {
        let Ok(devices) = fs::read_dir(sysfs.join("bus/nd/devices")) else { return Domain::Unstated };
        devices
            .flatten()
            .map(|device| device.path())
            .filter(|path| is_region(path))
            .map(|path| of_region(&path))
            .reduce(|one, other| if one == other { one } else { one.weaker(other) })
            .unwrap_or(Domain::Unstated)
    }

    fn weaker(self, other: Domain) -> Domain {
        match (self, other) {
            (Domain::Unstated, _) | (_, Domain::Unstated) => Domain::Unstated,
            (Domain::MemoryController, _) | (_, Domain::MemoryController) => Domain::MemoryController,
            (Domain::Caches, Domain::Caches) => Domain::Caches,
        }
    }
}

fn is_region(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("region")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn of_region(folder: &Path) -> Domain {
    match fs::read_to_string(folder.join("persistence_domain")).as_deref().map(str::trim) {
        Ok("cpu_cache") => Domain::Caches,
        Ok("memory_controller") => Domain::MemoryController,
        _ => Domain::Unstated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with the given domains of regions 0, 1, ..., and device 259:N on region N.
    fn sysfs(domains: &[Option<&str>]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("bus/nd/devices")).unwrap();
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        for (number, domain) in domains.iter().enumerate() {
            let region = root.path().join(format!("devices/ndbus0/region{number}"));
            let block = region.join(format!("namespace{number}.0/block/pmem{number}"));
            fs::create_dir_all(&block).unwrap();
            if let Some(domain) = domain {
                fs::write(region.join("persistence_domain"), format!("{domain}\n")).unwrap();
            }
            symlink(&region, root.path().join(format!("bus/nd/devices/region{number}"))).unwrap();
            symlink(&block, root.path().join(format!("dev/block/259:{number}"))).unwrap();
        }
        root
    }

    #[test]
    fn each_device_has_the_domain_of_its_region() {
        let root = sysfs(&[Some("cpu_cache"), Some("memory_controller"), None, Some("something new")]);
        let of = |minor| Domain::of_device(root.path(), 259, minor);
        assert_eq!(of(0), Domain::Caches);
        assert_eq!(of(1), Domain::MemoryController);
        assert_eq!(of(2), Domain::Unstated);
        assert_eq!(of(3), Domain::Unstated);
    }

    #[test]
    fn an_unknown_device_has_the_weakest_domain_of_all() {
        assert_eq!(Domain::of_device(sysfs(&[Some("cpu_cache"); 2]).path(), 8, 0), Domain::Caches);
        let mixed = sysfs(&[Some("cpu_cache"), Some("memory_controller")]);
        assert_eq!(Domain::of_device(mixed.path(), 8, 0), Domain::MemoryController);
        assert_eq!(Domain::of_device(sysfs(&[Some("cpu_cache"), None]).path(), 8, 0), Domain::Unstated);
        assert_eq!(Domain::of_device(sysfs(&[]).path(), 8, 0), Domain::Unstated);
        assert_eq!(Domain::of_device(Path::new("/nowhere"), 8, 0), Domain::Unstated);
    }
}
