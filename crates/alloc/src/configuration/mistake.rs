//! What is wrong with an option, told in one sentence and without an allocation.

use core::fmt::{self, Write};

use super::OPTIONS;

/// An option that cannot be read. `Display` writes the sentence: the variable, the text, what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mistake<'a> {
    /// The variable, or what else the text comes from.
    pub source: &'static str,
    /// The part of the text that is wrong.
    pub text: &'a [u8],
    /// Why.
    pub(super) reason: Reason,
    /// Whether the options say that the program must not start after a mistake.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// No option has this name.
    Unknown,
    /// What the option takes, and an example.
    Expected(&'static str),
}

/// Characters of the text that a sentence repeats.
const TEXT_MAX: usize = 60;

impl fmt::Display for Mistake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has `", self.source)?;
        for &byte in &self.text[..self.text.len().min(TEXT_MAX)] {
            let is_plain = byte == b' ' || byte.is_ascii_graphic();
            f.write_char(if is_plain { byte.into() } else { '?' })?;
        }
        f.write_str(if self.text.len() > TEXT_MAX { "...`" } else { "`" })?;
        match self.reason {
            Reason::Expected(expected) => write!(f, ": {expected}"),
            Reason::Unknown => {
                f.write_str(", which is no option; the options are ")?;
                for (index, option) in OPTIONS.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    f.write_str(option.name)?;
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for Mistake<'_> {}
