//! Redis's `client-output-buffer-limit`: when clients are disconnected because of the replies that they have not taken.

use std::fmt;
use std::str::FromStr;

use crate::integer::{bytes_said, strict_i64};

/// The classes of clients, in the order in which they are shown. Only the first exists here.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// When a client is disconnected; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Bytes of unsent replies above which the client goes at once.
    pub(crate) hard_bytes: u64,
    /// Bytes above which it goes after `soft_s` seconds.
    pub(crate) soft_bytes: u64,
    pub(crate) soft_s: u64,
}

impl OutputLimit {
    /// Whether a client goes at all.
    pub(crate) fn is_set(self) -> bool {
        self.hard_bytes > 0 || self.soft_bytes > 0
    }
}

/// The limits of all classes. As text they are `class hard soft seconds`, any number of times.
///
/// ```
/// let limits: ziptier_server::OutputLimits = "normal 256mb 64mb 60".parse()?;
/// assert!(limits.to_string().starts_with("normal 268435456 67108864 60 slave "));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits([OutputLimit; CLASSES.len()]);

/// Redis's.
impl Default for OutputLimits {
    fn default() -> Self {
        Self([
            OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_s: 0 },
            OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_s: 60 },
            OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_s: 60 },
        ])
    }
}

impl OutputLimits {
    /// The limit of ordinary clients.
    pub(crate) fn normal(&self) -> OutputLimit {
        self.0[0]
    }

    /// These limits changed by `value`. Classes that `value` does not name keep theirs.
    pub(crate) fn changed(mut self, value: &[u8]) -> Result<Self, String> {
        if value.is_empty() {
            return Ok(self);
        }
        let words: Vec<&[u8]> = value.split(|&byte| byte == b' ').collect();
        if !words.len().is_multiple_of(4) {
            return Err("Wrong number of arguments in buffer limit configuration.".into());
        }
        for limit in words.chunks_exact(4) {
            let class = match limit[0].to_ascii_lowercase().as_slice() {
                b"replica" => Some(1),
                class => CLASSES.iter().position(|known| known.as_bytes() == class),
            };
            let class = class.ok_or("Invalid client class specified in buffer limit configuration.")?;
            let soft_s = strict_i64(limit[3]).and_then(|seconds| u64::try_from(seconds).ok());
            let (Some(hard_bytes), Some(soft_bytes), Some(soft_s)) =
                (bytes_said(limit[1]), bytes_said(limit[2]), soft_s)
            else {
                return Err(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration.".into()
                );
            };
            self.0[class] = OutputLimit { hard_bytes, soft_bytes, soft_s };
        }
        Ok(self)
    }
}

impl FromStr for OutputLimits {
    type Err = String;

    /// Classes that are not named have Redis's limits.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::default().changed(text.as_bytes())
    }
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (class, limit)) in CLASSES.iter().zip(self.0).enumerate() {
            let blank = if index == 0 { "" } else { " " };
            write!(f, "{blank}{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_s)?;
        }
        Ok(())
    }
}
