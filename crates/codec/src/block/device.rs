//! Where an engine has its devices from.

#[cfg(feature = "iaa")]
use ziptier_accel::ModelOptions;

/// Where devices come from.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum DeviceSource {
    /// Those of this machine.
    #[default]
    Discovered,
    /// A model in software: everything that comes from it is *modelled*.
    #[cfg(feature = "iaa")]
    Modelled(ModelOptions),
}
