//! How `ziptier serve` is told of far memory.

use clap::Args;
use ziptier::{FarOptions, FarRatio, Options};

/// The place of far memory, its size, and its use.
#[derive(Debug, Args)]
pub(crate) struct FarArguments {
    /// Far memory for data that DRAM has no room for: bytes and a place, such as 1GiB:/mnt/pmem/far (a file, best on
    /// DAX) or 1GiB:node=1 (a NUMA node) [default: no far memory]
    #[arg(long, env = "ZIPTIER_FAR", value_name = "BYTES:PLACE", help_heading = "Far memory")]
    far: Option<FarOptions>,

    /// Refuse to start if far memory is not a file on DAX
    #[arg(long, env = "ZIPTIER_FAR_REQUIRE_DAX", requires_if("true", "far"), help_heading = "Far memory")]
    far_require_dax: bool,

    /// Ratio of the bytes of values above 2 KiB in DRAM to those in far memory, such as 1:3 [default: they go to far
    /// memory when DRAM is short]
    #[arg(
        long,
        env = "ZIPTIER_FAR_RATIO",
        value_name = "MEMORY:FAR",
        requires = "far",
        help_heading = "Far memory"
    )]
    far_ratio: Option<FarRatio>,
}

impl FarArguments {
    pub(crate) fn apply(&self, options: Options) -> Options {
        let far = self.far.clone().map(|far| FarOptions { require_dax: self.far_require_dax, ..far });
        Options { far, far_ratio: self.far_ratio, ..options }
    }
}
