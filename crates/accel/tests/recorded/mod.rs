//! Recorded sysfs trees as text, one entry a line. `path: content` is an attribute, `path -> target` a link, `path
//! 0660` a device node with its permissions.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ziptier_accel::discovery::{Discovery, Places};

/// The discovery in a tree of that name, for a process that is neither owner nor in the group of any node.
pub(crate) fn discovery(name: &str) -> Discovery {
    with_tree(name, |_| {})
}

/// The same after a change of the tree's `sys/bus/dsa/devices`.
pub(crate) fn with_tree(name: &str, change: impl FnOnce(&Path)) -> Discovery {
    let root = tempfile::tempdir().unwrap();
    let listing = format!("{}/tests/trees/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    for line in fs::read_to_string(listing).unwrap().lines() {
        lay_out(root.path(), line);
    }
    change(&root.path().join("sys/bus/dsa/devices"));
    let others_may = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o006 == 0o006;
    Discovery::read(&Places { may_open: others_may, ..Places::below(root.path()) })
}

fn lay_out(root: &Path, line: &str) {
    let make = |path: &str, make: &dyn Fn(&Path)| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
    };
    if let Some((path, content)) = line.split_once(": ") {
        make(path, &|path| fs::write(path, format!("{content}\n")).unwrap());
    } else if let Some((path, target)) = line.split_once(" -> ") {
        make(path, &|path| symlink(target, path).unwrap());
    } else {
        let (path, mode) = line.split_once(' ').unwrap();
        let mode = fs::Permissions::from_mode(u32::from_str_radix(mode, 8).unwrap());
        make(path, &|path| {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, mode.clone()).unwrap();
        });
    }
}
