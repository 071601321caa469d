//! The source of an engine's devices.

#[cfg(feature = "iaa")]
use ziptier_accel::ModelOptions;

/// A source of devices.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum DeviceSource {
    /// The devices of this machine.
    #[default]
    Discovered,
    /// A model in software. All its results are *modelled*.
    #[cfg(feature = "iaa")]
    Modelled(ModelOptions),
}
