//! Errors of commands: people find them by their first word, and scripts by the exit status.

use crate::support::refused;

#[test]
fn a_command_without_its_input_says_error_and_ends_with_2() {
    let no_library = ["--rocksdb-library", "/no/such/librocksdb.so"];
    for command in [
        &["cassandra", "estimate"][..],
        &["cassandra", "train"],
        &["rocksdb", "inspect"],
        &["rocksdb", "estimate"],
        &["rocksdb", "migrate-on", "--format", "token"],
        &["rocksdb", "migrate-off"],
    ] {
        let library = if command[0] == "rocksdb" { &no_library[..] } else { &[] };
        let said = refused(&[command, library, &["/no/such/folder"]].concat());
        assert!(said.starts_with("error: ") && said.contains("/no/such/"), "{command:?}: {said}");
    }
}
