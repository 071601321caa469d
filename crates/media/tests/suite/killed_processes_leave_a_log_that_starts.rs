//! A process is killed, another one goes on with what the system has, and then the power is cut: what the first one did
//! and never synced may go although the second one has seen it. A log that was cut where its successor's name is lost
//! cannot be told from a damaged one.

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
