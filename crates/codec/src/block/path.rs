//! Whether blocks may, must or must not be handed to a device.

use super::setting::SettingError;
use std::fmt;
use std::str::FromStr;

/// The place where an engine with a device does its work. Engines without a device use the CPU, and refuse
/// [`Path::Hardware`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Path {
    /// On the device. The CPU does the jobs that the device cannot do, without an error; they count as
    /// [`fallbacks`](super::CountersSnapshot::fallbacks).
    #[default]
    Auto,
    /// Only on the device. Without a device there is no engine, and a job that the device cannot do is an error of the
    /// engine.
    Hardware,
    /// On the CPU alone.
    Software,
}

impl Path {
    /// Every path.
    pub const ALL: &[Path] = &[Path::Auto, Path::Hardware, Path::Software];

    /// The name that is used on every surface.
    pub fn name(self) -> &'static str {
        match self {
            Path::Auto => "auto",
            Path::Hardware => "hardware",
            Path::Software => "software",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Path {
    type Err = SettingError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Path::ALL.iter().copied().find(|path| path.name() == name);
        found.ok_or_else(|| SettingError::UnknownPath { name: name.to_owned() })
    }
}
