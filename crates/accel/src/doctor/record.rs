//! Records the files that the sections about processor, kernel and devices read.

use super::enabling::TOOLS;
use super::kernel;
use crate::discovery::Places;
use ziptier_findings::Recorder;

/// Fields of `proc/cpuinfo`.
const CPU_FIELDS: [&str; 4] = ["processor", "model name", "flags", "Features"];

/// Parts of an accelerator on the bus, by the beginning of their names.
const PARTS: [&str; 4] = ["iax", "group", "engine", "wq"];

/// Attributes of devices, groups, engines and queues.
const ATTRIBUTES: [&str; 35] = [
    "state",
    "version",
    "gen_cap",
    "iaa_cap",
    "op_cap",
    "numa_node",
    "pasid_enabled",
    "max_transfer_size",
    "max_work_queues",
    "max_work_queues_size",
    "max_engines",
    "max_groups",
    "cdev_major",
    "cmd_status",
    "errors",
    "configurable",
    "clients",
    "event_log_size",
    "engines",
    "work_queues",
    "group_id",
    "mode",
    "type",
    "driver_name",
    "name",
    "size",
    "threshold",
    "priority",
    "block_on_fault",
    "prs_disable",
    "ats_disable",
    "op_config",
    "cdev_minor",
    "occupancy",
    "enqcmds_retries",
];

/// Records what [`super::examine`] and the discovery below `places` read, and nothing else.
pub fn record(recorder: &mut Recorder, places: &Places) {
    recorder.lines("proc/cpuinfo", |line| {
        let field = line.split_once(':').map(|(field, _)| field.trim());
        field.is_some_and(|field| CPU_FIELDS.contains(&field)).then(|| line.to_owned())
    });
    recorder.lines("proc/cmdline", |line| Some(kernel::wanted_options(line).join(" ")));
    recorder.lines("proc/self/status", |line| line.starts_with("CapEff:").then(|| line.to_owned()));
    recorder.file("proc/sys/kernel/osrelease");
    for iommu in recorder.folder("sys/class/iommu") {
        recorder.folder(&format!("sys/class/iommu/{iommu}"));
    }
    let of_accelerators = crate::discovery::Discovery::read(places).pci;
    recorder.folder("sys/bus/pci/devices");
    for function in of_accelerators {
        let folder = format!("sys/bus/pci/devices/{}", function.address);
        recorder.file(&format!("{folder}/vendor"));
        recorder.file(&format!("{folder}/device"));
        recorder.driver(&format!("{folder}/driver"));
    }
    for part in recorder.folder("sys/bus/dsa/devices") {
        if PARTS.iter().any(|prefix| part.starts_with(prefix)) {
            ATTRIBUTES
                .iter()
                .for_each(|attribute| recorder.file(&format!("sys/bus/dsa/devices/{part}/{attribute}")));
        }
    }
    for queue in recorder.folder("dev/iax") {
        let node = format!("dev/iax/{queue}");
        recorder.node(&node, (places.may_open)(&recorder.source(&node)));
    }
    TOOLS.iter().for_each(|tool| recorder.presence(tool));
}
