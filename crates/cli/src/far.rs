//! How `ziptier serve` is told of far memory.

use std::str::FromStr;

use clap::Args;
use ziptier::{FarOptions, FarPlace, FarRatio, Options};

use crate::serve::Bytes;

/// The place of far memory, its size, and its use.
#[derive(Debug, Args)]
pub(crate) struct FarArguments {
    /// Far memory for data that DRAM has no room for: bytes and a place, such as 1GiB:/mnt/pmem/far (a file, best on
    /// DAX) or 1GiB:node=1 (a NUMA node) [default: no far memory]
    #[arg(long, env = "ZIPTIER_FAR", value_name = "BYTES:PLACE", help_heading = "Far memory")]
    far: Option<FarSpace>,

    /// Refuse to start if far memory is not a file on DAX
    #[arg(long, env = "ZIPTIER_FAR_REQUIRE_DAX", requires = "far", help_heading = "Far memory")]
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
    pub(crate) fn apply(self, options: Options) -> Options {
        let far = self.far.map(|FarSpace { capacity_bytes, place }| FarOptions {
            place,
            capacity_bytes,
            require_dax: self.far_require_dax,
        });
        Options { far, far_ratio: self.far_ratio, ..options }
    }
}

/// A size and a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FarSpace {
    capacity_bytes: u64,
    place: FarPlace,
}

impl FromStr for FarSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "write a size and a place, such as 1GiB:/mnt/pmem/far or 1GiB:node=1";
        let (size, place) = text.split_once(':').filter(|(_, place)| !place.is_empty()).ok_or(USAGE)?;
        let Bytes(capacity_bytes) = size.parse()?;
        let place = match place.strip_prefix("node=") {
            Some(node) => FarPlace::Node(node.parse().map_err(|_| USAGE)?),
            None => FarPlace::File(place.into()),
        };
        Ok(Self { capacity_bytes, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_files_and_nodes() {
        let space = |text: &str| text.parse::<FarSpace>();
        let far = |capacity_bytes, place| Ok(FarSpace { capacity_bytes, place });
        assert_eq!(space("1GiB:/mnt/far"), far(1 << 30, FarPlace::File("/mnt/far".into())));
        assert_eq!(space("64MiB:a:b"), far(64 << 20, FarPlace::File("a:b".into())));
        assert_eq!(space("2MB:node=1"), far(2_000_000, FarPlace::Node(1)));
        assert_eq!(space("2MB:./node=1"), far(2_000_000, FarPlace::File("./node=1".into())));
        for text in ["", "1GiB", "1GiB:", ":/mnt/far", "1XB:/mnt/far", "1GiB:node=one", "1GiB:node=-1"] {
            assert!(space(text).is_err(), "{text}");
        }
    }
}
