//! A command that has libz built in would never notice an accelerator that is preloaded before it.

#![cfg(target_os = "linux")]

use std::process::Command;

#[test]
fn the_command_needs_the_systems_libz() {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_ziptier")).output().unwrap();
    let needed = String::from_utf8_lossy(&output.stdout);
    assert!(needed.lines().any(|line| line.trim().starts_with("libz.so")), "{needed}");
    assert!(!needed.contains("libqpl"), "libqpl must not be needed to start: {needed}");
}
