//! Reads any tree in the place of sysfs, given as text like the recorded trees. Discovery and doctor must neither panic
//! nor read without end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use ziptier_accel::discovery::{Discovery, Places};
use ziptier_accel::doctor;

/// The most lines of an input that become files.
const LINES_MAX: usize = 200;

/// Whether a path that starts `depth` folders below the root never leaves the root.
fn stays_below(path: &str, mut depth: usize) -> bool {
    Path::new(path).components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        Component::CurDir => true,
        _ => false,
    })
}

fn made(root: &Path, path: &str) -> io::Result<PathBuf> {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    Ok(path)
}

/// `path: content` for an attribute, `path -> target` for a link, `path 0660` for a device node.
fn lay_out(root: &Path, line: &str) -> io::Result<()> {
    let cut = [": ", " -> ", " "].iter().find_map(|cut| Some((*cut, line.split_once(cut)?)));
    let Some((cut, (path, content))) =
        cut.filter(|(_, (path, _))| !path.contains("..") && stays_below(path, 0))
    else {
        return Ok(());
    };
    let depth = Path::new(path).components().count().saturating_sub(1);
    match cut {
        " -> " if stays_below(content, depth) => symlink(content, made(root, path)?),
        " -> " => Ok(()),
        _ => fs::write(made(root, path)?, content.replace('\u{b6}', "\n")),
    }
}

fuzz_target!(|text: &str| {
    let root = tempfile::tempdir().expect("there is a folder for trees");
    for line in text.lines().take(LINES_MAX) {
        // Lines that cannot become a file are skipped, for instance if a folder has that path.
        let _ = lay_out(root.path(), line);
    }
    let found = Discovery::read(&Places::below(root.path()));
    let sections = doctor::examine(root.path(), &found);
    let told = format!("{found} {} {sections:?}", doctor::headline(&found));
    assert!(told.len() < 64 << 20, "a report can be read");
    for usable in found.usable() {
        assert!(usable.capabilities().depth > 0 && !usable.name().is_empty());
    }
    assert_eq!(doctor::why_not(&found).is_none(), found.usable().next().is_some());
});
