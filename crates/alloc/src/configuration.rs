//! The options of the library, and the environment that sets them.
//!
//! The library reads them before the program's first allocation, so everything here is code for `core` alone: text is
//! `&[u8]`, results are plain values, and a mistake is told by `Display` without an allocation.
//!
//! ```
//! use ziptier_alloc::configuration::{Configuration, Policy, Variables};
//!
//! let variables = Variables { options: Some(b"ratio=1:3, pin=96"), ..Variables::default() };
//! let configuration = Configuration::read(&variables).unwrap();
//! assert_eq!(configuration.policy, Policy::Ratio);
//! assert_eq!((configuration.ratio.dram, configuration.ratio.far), (1, 3));
//!
//! let variables = Variables { options: Some(b"ratio=1;x"), ..Variables::default() };
//! let mistake = Configuration::read(&variables).unwrap_err();
//! assert_eq!(
//!     mistake.to_string(),
//!     "ZIPTIER_ALLOC has `ratio=1`: a ratio is DRAM:FAR, two whole numbers to 65535, not both 0; write ratio=1:3"
//! );
//! ```
//!
//! `ZIPTIER_ALLOC` holds options, separated by commas, semicolons or newlines. An option is a name, then `=` or white
//! space, then its value. [`OPTIONS`] lists the names; those of `TieredMemDB`'s directives are among them, so lines of
//! its configuration file can be pasted. Without that variable, memkind's `MEMKIND_MEM_TIERS` and
//! `MEMKIND_MEM_THRESHOLDS` are read.
//!
//! After a mistake the library says so on stderr, and serves the program by [`Configuration::DRAM_ONLY`], unless
//! [`Mistake::strict`] says that the program must not start.

use core::ffi::CStr;

mod memkind;
mod mistake;
mod options;
mod values;

pub use mistake::Mistake;
pub use options::{OPTIONS, OptionRow};

/// The variable that holds the options.
pub const OPTIONS_VARIABLE: &str = "ZIPTIER_ALLOC";
/// The variable that holds memkind's tiers.
pub const TIERS_VARIABLE: &str = "MEMKIND_MEM_TIERS";
/// The variable that holds memkind's thresholds.
pub const THRESHOLDS_VARIABLE: &str = "MEMKIND_MEM_THRESHOLDS";
/// The variable that holds the nodes of memkind's `KMEM_DAX`.
pub const NODES_VARIABLE: &str = "MEMKIND_DAX_KMEM_NODES";

/// The values of the variables that are read, where they are set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Variables<'a> {
    /// The value of [`OPTIONS_VARIABLE`]. If it is set, the other variables are not read.
    pub options: Option<&'a [u8]>,
    /// The value of [`TIERS_VARIABLE`].
    pub tiers: Option<&'a [u8]>,
    /// The value of [`THRESHOLDS_VARIABLE`].
    pub thresholds: Option<&'a [u8]>,
    /// The value of [`NODES_VARIABLE`].
    pub nodes: Option<&'a [u8]>,
}

impl<'a> Variables<'a> {
    /// Looks up each variable by `get`.
    pub fn from(get: impl Fn(&str) -> Option<&'a [u8]>) -> Variables<'a> {
        Variables {
            options: get(OPTIONS_VARIABLE),
            tiers: get(TIERS_VARIABLE),
            thresholds: get(THRESHOLDS_VARIABLE),
            nodes: get(NODES_VARIABLE),
        }
    }
}

/// The rule that decides the medium of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Everything lies in DRAM.
    OnlyDram = 0,
    /// Everything lies in far memory, but for what is pinned.
    OnlyFar = 1,
    /// Sizes from the threshold lie in far memory.
    Threshold = 2,
    /// The threshold moves so that bytes in DRAM to bytes in far memory are as the ratio.
    Ratio = 3,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] = [Policy::OnlyDram, Policy::OnlyFar, Policy::Threshold, Policy::Ratio];

    /// The name: `only-dram`, `only-far`, `threshold`, `ratio`.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::OnlyDram => "only-dram",
            Policy::OnlyFar => "only-far",
            Policy::Threshold => "threshold",
            Policy::Ratio => "ratio",
        }
    }

    /// The policy of a number, as [`crate::page`] holds it.
    pub const fn of_number(number: u32) -> Option<Policy> {
        match number {
            0 => Some(Policy::OnlyDram),
            1 => Some(Policy::OnlyFar),
            2 => Some(Policy::Threshold),
            3 => Some(Policy::Ratio),
            _ => None,
        }
    }
}

/// Bytes in DRAM to bytes in far memory. Not both parts are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// The part of DRAM.
    pub dram: u32,
    /// The part of far memory.
    pub far: u32,
}

impl Ratio {
    /// The largest part.
    pub const PART_MAX: u32 = 65535;

    /// Both parts in one word, as [`crate::page`] holds them: DRAM above, far memory below.
    pub const fn to_word(self) -> u64 {
        (self.dram as u64) << 32 | self.far as u64
    }

    /// The ratio of a word, unless a part is too large or both are 0.
    pub const fn of_word(word: u64) -> Option<Ratio> {
        let ratio = Ratio { dram: (word >> 32) as u32, far: word as u32 };
        let is_within = ratio.dram <= Ratio::PART_MAX && ratio.far <= Ratio::PART_MAX;
        if is_within && word != 0 { Some(ratio) } else { None }
    }
}

/// Where far memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarMemory {
    /// The nodes that have memory and no processors. Simulated, if there is none.
    Auto,
    /// These nodes.
    Nodes(NodeSet),
    /// Ordinary memory that is counted as far.
    Simulated,
}

/// A set of NUMA nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSet {
    /// Bit `n % 64` of word `n / 64` stands for node `n`, as `mbind` takes them.
    pub words: [u64; NodeSet::WORDS],
}

impl NodeSet {
    /// Words of a set.
    pub const WORDS: usize = 16;
    /// One more than the largest node: what a kernel has at most.
    pub const NODES: u32 = 64 * NodeSet::WORDS as u32;

    /// Adds a node.
    ///
    /// # Panics
    ///
    /// If the node is not below [`NodeSet::NODES`].
    pub const fn insert(&mut self, node: u32) {
        self.words[node as usize / 64] |= 1 << (node % 64);
    }

    /// Whether a node is in the set.
    pub const fn contains(&self, node: u32) -> bool {
        node < NodeSet::NODES && self.words[node as usize / 64] >> (node % 64) & 1 == 1
    }

    /// Whether no node is in the set.
    pub fn is_empty(&self) -> bool {
        self.words == [0; NodeSet::WORDS]
    }

    /// The nodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..NodeSet::NODES).filter(|&node| self.contains(node))
    }
}

/// The name of a class: 1 to 31 of the characters `a` to `z`, `0` to `9`, `-` and `_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassName {
    bytes: [u8; ClassName::BYTES],
}

impl ClassName {
    /// Bytes that hold a name, filled up with zeros.
    pub const BYTES: usize = 32;

    /// The name of a text, unless it is none.
    pub fn new(text: &[u8]) -> Option<ClassName> {
        let is_letter = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if text.is_empty() || text.len() >= ClassName::BYTES || !text.iter().all(is_letter) {
            return None;
        }
        let mut bytes = [0; ClassName::BYTES];
        bytes[..text.len()].copy_from_slice(text);
        Some(ClassName { bytes })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(ClassName::BYTES);
        core::str::from_utf8(&self.bytes[..len]).unwrap_or_default()
    }
}

/// The absolute path of a file, with at most 127 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePath {
    bytes: [u8; FilePath::BYTES],
}

/// The root folder, which is no file.
impl Default for FilePath {
    fn default() -> Self {
        let mut bytes = [0; FilePath::BYTES];
        bytes[0] = b'/';
        FilePath { bytes }
    }
}

impl FilePath {
    const BYTES: usize = 128;

    /// The path of a text, unless it is none.
    pub fn new(text: &[u8]) -> Option<FilePath> {
        if !text.starts_with(b"/") || text.len() >= FilePath::BYTES || text.contains(&0) {
            return None;
        }
        let mut bytes = [0; FilePath::BYTES];
        bytes[..text.len()].copy_from_slice(text);
        Some(FilePath { bytes })
    }

    /// The path as C has it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> FilePath {
        let slash = self.as_c_str().to_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let mut bytes = [0; FilePath::BYTES];
        let end = slash.max(1);
        bytes[..end].copy_from_slice(&self.bytes[..end]);
        FilePath { bytes }
    }
}

/// What the library does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// The rule that decides the medium.
    pub policy: Policy,
    /// The ratio that [`Policy::Ratio`] keeps.
    pub ratio: Ratio,
    /// The threshold of [`Policy::Threshold`].
    pub threshold_bytes: u64,
    /// The smallest threshold that [`Policy::Ratio`] takes.
    pub threshold_min_bytes: u64,
    /// The largest threshold that [`Policy::Ratio`] takes.
    pub threshold_max_bytes: u64,
    /// Smaller allocations lie in DRAM by every policy, while DRAM has room.
    pub pinned_below_bytes: u64,
    /// Whether zeroed tables of pointers (`calloc` of a power of two of 8 or 16 bytes), such as hash tables, lie in
    /// DRAM by every policy.
    pub tables_in_dram: bool,
    /// Bytes that may lie in DRAM; [`u64::MAX`] is no limit.
    pub dram_limit_bytes: u64,
    /// Bytes that may lie in far memory; [`u64::MAX`] is no limit.
    pub far_limit_bytes: u64,
    /// Where far memory comes from.
    pub far: FarMemory,
    /// The class whose budgets the process shares.
    pub class: Option<ClassName>,
    /// The file of the class, if it is not that of the user.
    pub class_file: Option<FilePath>,
    /// Milliseconds between two looks at the page and at the class.
    pub period_ms: u32,
    /// Whether a mistake keeps the program from starting.
    pub strict: bool,
}

impl Configuration {
    /// The options of a program whose environment sets none: one part in DRAM to three in far memory.
    pub const DEFAULT: Configuration = Configuration {
        policy: Policy::Ratio,
        ratio: Ratio { dram: 1, far: 3 },
        threshold_bytes: 64,
        threshold_min_bytes: 0,
        threshold_max_bytes: u64::MAX,
        pinned_below_bytes: 0,
        tables_in_dram: true,
        dram_limit_bytes: u64::MAX,
        far_limit_bytes: u64::MAX,
        far: FarMemory::Auto,
        class: None,
        class_file: None,
        period_ms: 100,
        strict: false,
    };

    /// The options after a mistake.
    pub const DRAM_ONLY: Configuration = Configuration { policy: Policy::OnlyDram, ..Configuration::DEFAULT };

    /// The options that an environment sets.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn read<'a>(variables: &Variables<'a>) -> Result<Configuration, Mistake<'a>> {
        if let Some(text) = variables.options {
            return options::read(text);
        }
        match variables.tiers {
            Some(_) => memkind::read(variables),
            None => Ok(Configuration::DEFAULT),
        }
    }

    /// Changes options of a running program by a text such as `ratio=1:3,dram-limit=4GiB`.
    ///
    /// # Errors
    ///
    /// The first mistake, such as an option that is read at the start alone. Nothing is changed then.
    pub fn change<'a>(&mut self, text: &'a [u8]) -> Result<(), Mistake<'a>> {
        *self = options::change(self, text)?;
        Ok(())
    }

    /// Whether every option is one that a text could have set. The page and the file of classes come from other
    /// processes, so their options are judged by this.
    pub fn is_valid(&self) -> bool {
        self.threshold_min_bytes <= self.threshold_max_bytes && self.ratio.to_word() != 0
    }
}

#[cfg(test)]
mod tests;
