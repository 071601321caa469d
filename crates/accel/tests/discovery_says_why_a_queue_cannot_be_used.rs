//! The most frequent complaint about such drivers: a machine does not use its accelerator, and no message says why.

#![allow(clippy::unwrap_used)]

mod recorded;

use std::fs;
use std::os::unix::fs::symlink;

use recorded::{discovery, with_tree};
use ziptier_accel::Opcode;
use ziptier_accel::discovery::{Discovery, QueueMode, State, WhyNone, WhyNot};

fn only_reason(found: &Discovery) -> WhyNot {
    assert_eq!(found.usable().count(), 0, "{found}");
    assert_eq!(found.oddities, []);
    let reasons = found.reasons();
    assert_eq!(reasons.len(), 1, "{found}");
    reasons[0].0.clone()
}

#[test]
fn nothing_there() {
    let found = discovery("none");
    assert_eq!(found.why_none(), Some(WhyNone::NoDevice));
    assert!(!found.has_bus);
    let report = found.to_string();
    assert!(
        report.starts_with("No work queue of an Intel IAA can be used: this machine has no Intel IAA"),
        "{report}"
    );
    assert!(report.contains("no bus `dsa`"), "{report}");
    let nowhere = Discovery::read(&ziptier_accel::discovery::Places::below("/nowhere".as_ref()));
    assert_eq!(nowhere.why_none(), Some(WhyNone::NoDevice));
    // Whatever this machine has, looking is safe.
    Discovery::read(&Default::default()).to_string();
}

#[test]
fn driver_missing() {
    let found = discovery("driver_missing");
    assert_eq!(found.why_none(), Some(WhyNone::DriverMissing(1)));
    assert_eq!((found.pci[0].device, &found.pci[0].driver), (0x0CFE, &None));
    assert!(found.to_string().contains("driver idxd holds none"));
}

#[test]
fn switched_off() {
    assert_eq!(only_reason(&discovery("device_disabled")), WhyNot::DeviceDisabled(State::Disabled));
    let found = discovery("queue_disabled");
    assert_eq!(only_reason(&found), WhyNot::QueueDisabled(State::Disabled));
    assert!(found.to_string().contains("iax1/wq1.0, iax1/wq1.1: the queue is disabled."), "{found}");
}

#[test]
fn of_the_kernel() {
    let found = discovery("wrong_type");
    assert_eq!(only_reason(&found), WhyNot::WrongType { kind: "kernel".into(), driver: "crypto".into() });
}

#[test]
fn without_engine() {
    assert_eq!(only_reason(&discovery("no_engine")), WhyNot::NoEngine(0));
}

#[test]
fn without_node_or_permission() {
    let WhyNot::NoNode(path) = only_reason(&discovery("no_node")) else { panic!() };
    assert!(path.ends_with("dev/iax/wq1.0"));
    let found = discovery("no_permission");
    let WhyNot::NoPermission(path, file) = only_reason(&found) else { panic!() };
    assert!(path.ends_with("dev/iax/wq1.0"));
    assert_eq!((file.mode, file.may_open), (0o600, false));
    assert!(found.to_string().contains("mode 0600"), "{found}");
}

#[test]
fn shared() {
    let found = discovery("shared");
    let usable: Vec<_> = found.usable().collect();
    assert_eq!(usable.len(), 1);
    assert_eq!((usable[0].name().as_str(), &usable[0].queue.mode), ("iax1/wq1.0", &QueueMode::Shared));
    let can = usable[0].capabilities();
    assert_eq!((can.generation, can.depth, can.transfer_bytes_max), (1, 120, 2 << 20));
    assert!(can.tells_full && can.block_on_fault && can.iaa_cap == 0);
    for opcode in [Opcode::Decompress, Opcode::Compress, Opcode::Crc64, Opcode::Scan, Opcode::Expand] {
        assert!(can.has(opcode), "{opcode:?}");
    }
    assert!(!can.has(Opcode::RleBurst));
    let report = found.to_string();
    assert!(report.starts_with("One work queue can be used: iax1/wq1.0. iax1/wq1.1: the queue"), "{report}");
    assert_eq!(found.pci[0].driver.as_deref(), Some("idxd"));
    let device = &found.devices[0];
    assert_eq!((device.cdev_major, device.max_engines, device.numa_node), (Some(234), Some(8), Some(0)));
    assert_eq!((device.engines.len(), device.groups.len(), device.engines[2].group), (3, 1, None));
    assert_eq!(device.queues[0].priority, Some(10));
}

#[test]
fn dedicated() {
    let found = discovery("dedicated");
    let usable: Vec<_> = found.usable().collect();
    assert_eq!((usable.len(), usable[0].queue.number), (1, 0));
    assert_eq!((usable[0].capabilities().depth, usable[0].capabilities().tells_full), (128, false));
    assert_eq!(found.reasons()[0].0, WhyNot::InUse);
}

#[test]
fn two_sockets() {
    let found = discovery("two_sockets");
    assert_eq!((found.node_of(9), found.node_of(5), found.node_of(99)), (Some(0), Some(1), None));
    let usable: Vec<_> = found.usable().map(|usable| (usable.name(), usable.device.numa_node)).collect();
    assert_eq!(usable, [("iax1/wq1.0".to_owned(), Some(0)), ("iax3/wq3.0".to_owned(), Some(1))]);
}

#[test]
fn generation_2() {
    let found = discovery("generation_2");
    let can = found.usable().next().unwrap().capabilities();
    assert_eq!((can.generation, can.iaa_cap, can.block_on_fault), (2, 0x1FF, false));
    assert_eq!(found.devices[0].event_log_size, Some(64));
}

#[test]
fn odd_files_are_named_and_nothing_else_suffers() {
    let found = with_tree("shared", |devices| {
        fs::write(devices.join("iax1/gen_cap"), "lots\n").unwrap();
        fs::write(devices.join("iax1/errors"), vec![b'0'; 5000]).unwrap();
        fs::write(devices.join("iax1/version"), [0xFF, 0xFE, 0]).unwrap();
        fs::write(devices.join("wq1.0/size"), "99999999999999999999").unwrap();
        fs::remove_file(devices.join("wq1.0/priority")).unwrap();
        fs::create_dir(devices.join("wq1.0/priority")).unwrap();
        fs::create_dir(devices.join("iax999999999999")).unwrap();
        symlink("nowhere", devices.join("iax7")).unwrap();
        symlink("iax8", devices.join("iax8")).unwrap();
    });
    assert_eq!(found.usable().count(), 1);
    assert_eq!((found.devices[0].generation(), found.usable().next().unwrap().capabilities().depth), (1, 1));
    let odd: Vec<String> = found.oddities.iter().map(|oddity| oddity.to_string()).collect();
    for (file, what) in [
        ("iax1/gen_cap", "is not a number: \"lots\""),
        ("iax1/errors", "is longer than 4096 bytes"),
        ("iax1/version", "is not text"),
        ("wq1.0/size", "is not a number"),
        ("wq1.0/priority", "is not a file"),
        ("iax8/state", "cannot be read"),
    ] {
        assert!(odd.iter().any(|line| line.contains(file) && line.contains(what)), "{file}: {odd:#?}");
    }
    assert!(found.to_string().contains("Could not be understood"), "{found}");
}

#[test]
fn unknown_words_are_reasons() {
    let found = with_tree("shared", |devices| fs::write(devices.join("wq1.0/mode"), "lonely").unwrap());
    assert_eq!(found.reasons()[0].0, WhyNot::UnknownMode("lonely".into()));
    let found = with_tree("shared", |devices| fs::write(devices.join("wq1.0/state"), "locked").unwrap());
    assert_eq!(found.reasons()[0].0, WhyNot::QueueDisabled(State::Other("locked".into())));
    let found = with_tree("shared", |devices| fs::write(devices.join("wq1.0/group_id"), "-1").unwrap());
    assert_eq!(found.reasons()[0].0, WhyNot::NoGroup);
}

#[test]
fn a_file_in_place_of_a_node_is_not_opened() {
    // The recorded tree's nodes are ordinary files; it is gone by now, so that the path does not open at all.
    let mut found = discovery("shared");
    let refusal = |found: &Discovery| {
        let usable: Vec<_> = found.usable().collect();
        assert_eq!(usable.len(), 1);
        ziptier_accel::hardware::open(&usable[0]).err().unwrap().to_string()
    };
    let error = refusal(&found);
    assert!(error.starts_with("cannot open"), "{error}");
    // One that is there is no device.
    found.devices[0].queues[0].node = std::env::current_exe().unwrap().with_extension("not-a-device");
    fs::write(&found.devices[0].queues[0].node, "").unwrap();
    let error = refusal(&found);
    fs::remove_file(&found.devices[0].queues[0].node).unwrap();
    assert!(error.contains("it is no device node"), "{error}");
}
