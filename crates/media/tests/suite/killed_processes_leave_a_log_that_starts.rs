//! A process is killed, another one continues from the system's memory, and then the power is cut. Unsynced operations
//! of the first process may be lost although the second has seen them. If a segment was cut and the name of its
//! successor is lost, the log cannot be told from a damaged one.

use crate::scenario;

/// Images of the power cut for each operation at which the process is killed.
const IMAGES: usize = 8;

#[test]
fn a_kill_at_any_operation_a_restart_and_a_power_cut_lose_nothing() {
    let (disk, promises) = scenario::recorded();
    for position in 0..=disk.position() {
        scenario::go_on(&disk.killed_at(position), &promises, position as u64, IMAGES);
    }
}
