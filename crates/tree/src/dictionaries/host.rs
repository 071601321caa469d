//! The requests of a training to the host.

use super::sample::Sample;
use crate::stats::Counters;

/// The host, as trainings see it.
pub trait TrainingHost {
    /// Where trainings and adoptions are counted.
    fn counters(&self) -> &Counters;

    /// Values of random leaves, about `bytes` of them in all.
    fn sample(&self, bytes: usize) -> Sample;

    /// Bytes that a training may take now, where another dictionary would save the part `saving` of what is written.
    fn training_room_bytes(&self, saving: Option<f64>) -> u64;

    /// Has the writers evict until a training has so many bytes of room, 0 for no such wish. `false` if room is made in
    /// another way.
    fn ask_for_training_room(&self, bytes: u64) -> bool;

    /// Whether a training has its room, which is made if it can be. The caller holds no guard.
    fn has_room_to_train(&self, bytes: usize) -> bool;
}
