//! How a crate tells what it found on this machine, so that one screen can show the findings of all.
//!
//! `ziptier doctor` prints [`Section`]s. Whoever knows how to find something out owns its section; this crate only has
//! the form, and does not know what anything means. A [`Recorder`] copies what they read, for another machine.
//!
//! ```
//! use ziptier_findings::{Finding, Section};
//!
//! let mut section = Section::new("Kernel");
//! section.add(Finding::good("IOMMU", "on"));
//! section.add(Finding::bad("boot options", "`sm_on` is missing"));
//! section.remedy(
//!     "Let the device use virtual addresses",
//!     ["sudo grubby --update-kernel=ALL --args=intel_iommu=on,sm_on"],
//! );
//! assert_eq!(section.remedies.len(), 1);
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod recorder;

pub use recorder::Recorder;

/// What one crate found out about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What it is about, such as `Kernel`.
    pub title: &'static str,
    /// One line each, in the order in which things were looked at.
    pub findings: Vec<Finding>,
    /// What would help, the most important first.
    pub remedies: Vec<Remedy>,
}

impl Section {
    /// A section in which nothing was found yet.
    pub fn new(title: &'static str) -> Section {
        Section { title, findings: Vec::new(), remedies: Vec::new() }
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Adds something that would help.
    pub fn remedy<C: Into<String>>(
        &mut self,
        purpose: impl Into<String>,
        commands: impl IntoIterator<Item = C>,
    ) {
        let commands = commands.into_iter().map(|command| printable(command.into())).collect();
        self.remedies.push(Remedy { purpose: printable(purpose.into()), commands });
    }
}

/// One line: something that was looked for, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether that helps, hinders, or neither.
    pub mark: Mark,
    /// What was looked for, such as `wq1.0`.
    pub subject: String,
    /// How it is, and what follows from it.
    pub text: String,
}

impl Finding {
    fn of(mark: Mark, subject: String, text: String) -> Finding {
        Finding { mark, subject: printable(subject), text: printable(text) }
    }

    /// As it should be.
    pub fn good(subject: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding::of(Mark::Good, subject.into(), text.into())
    }

    /// In the way.
    pub fn bad(subject: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding::of(Mark::Bad, subject.into(), text.into())
    }

    /// Neither: worth knowing.
    pub fn note(subject: impl Into<String>, text: impl Into<String>) -> Finding {
        Finding::of(Mark::Note, subject.into(), text.into())
    }
}

/// Whether a finding helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// As it should be.
    Good,
    /// In the way of something.
    Bad,
    /// Worth knowing.
    Note,
}

impl Mark {
    /// The name that machines read: `good`, `bad`, `note`.
    pub fn name(self) -> &'static str {
        match self {
            Mark::Good => "good",
            Mark::Bad => "bad",
            Mark::Note => "note",
        }
    }

    /// The sign in front of a line.
    pub fn sign(self) -> &'static str {
        match self {
            Mark::Good => "✓",
            Mark::Bad => "✗",
            Mark::Note => "·",
        }
    }
}

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// What it is for, in one sentence without a full stop.
    pub purpose: String,
    /// Lines to paste into a shell, in this order. None, if there is nothing to paste.
    pub commands: Vec<String>,
}

/// The text without what would steer a terminal: some of it is read from files that nobody vouches for.
fn printable(text: String) -> String {
    if text.contains(char::is_control) { text.replace(char::is_control, "\u{FFFD}") } else { text }
}

/// A word as a shell takes it: in quotes, if it has more than letters, digits and what paths are made of.
///
/// ```
/// use ziptier_findings::shell_word;
///
/// assert_eq!(shell_word("/mnt/pool"), "/mnt/pool");
/// assert_eq!(shell_word("/mnt/Ada's pool"), r"'/mnt/Ada'\''s pool'");
/// ```
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
