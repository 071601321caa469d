//! How `ziptier serve` is told of far memory.

use clap::Args;
use ziptier::{FarOptions, FarRatio, Options};

/// Where far memory is, how much of it, and what for.
#[derive(Debug, Args)]
pub(crate) struct FarArguments {
    /// Far memory for what memory cannot hold, as 1GiB:/mnt/pmem/far (a file, best on DAX) or 1GiB:node=1 (a NUMA node)
    #[arg(long, env = "ZIPTIER_FAR", value_name = "BYTES:PLACE", help_heading = "Far memory")]
    far: Option<FarOptions>,

    /// Refuse far memory that is no file on DAX
    #[arg(long, env = "ZIPTIER_FAR_REQUIRE_DAX", requires = "far", help_heading = "Far memory")]
    far_require_dax: bool,

    /// Ratio of bytes at which values above 2 KiB lie in memory and far memory, such as 1:3 [default: far memory when
    /// memory is short]
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
    pub(crate) fn apply(self, options: Options) -> Options {
        let far = self.far.map(|far| FarOptions { require_dax: self.far_require_dax, ..far });
        Options { far, far_ratio: self.far_ratio, ..options }
    }
}
