//! The classes of sizes by which live bytes are counted: those of jemalloc, four to a doubling.
//!
//! A class is named by its largest size. `malloc_usable_size` answers that size for a block of up to [`paged_above`]
//! bytes. A larger block takes whole pages, and its class has blocks of several usable sizes.

/// Classes up to 2^47 bytes. The last one takes all larger sizes, too.
pub const CLASSES: usize = 5 + 4 * 41;

/// Larger blocks take as many pages as they need: since version 5.3.1, jemalloc has no large size classes by default.
/// jemalloc's pages may be larger than the system's: 64 KiB in builds for aarch64.
pub const fn paged_above(page_bytes: u64) -> u64 {
    8 * page_bytes
}

/// Sizes up to this one are multiples of 16, but for 8.
const FIRST_DOUBLING: u64 = 64;

/// The class of a block of `bytes` bytes.
///
/// ```
/// use ziptier_alloc::size_class::{class, class_bytes};
///
/// assert_eq!(class_bytes(class(0)), 8);
/// assert_eq!(class_bytes(class(100)), 112);
/// assert_eq!(class_bytes(class(1024)), 1024);
/// assert_eq!(class_bytes(class(1025)), 1280);
/// ```
pub const fn class(bytes: u64) -> usize {
    if bytes <= 8 {
        return 0;
    }
    if bytes <= FIRST_DOUBLING {
        return bytes.div_ceil(16) as usize;
    }
    // The doubling is (2^power, 2^(power + 1)], in quarters.
    let power = (bytes - 1).ilog2();
    let quarter = (bytes - 1) >> (power - 2) & 3;
    let class = 5 + 4 * (power as usize - 6) + quarter as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

/// The largest size of a class.
///
/// # Panics
///
/// If there is no such class.
pub const fn class_bytes(class: usize) -> u64 {
    assert!(class < CLASSES);
    match class {
        0 => 8,
        1..5 => 16 * class as u64,
        _ => {
            let (power, quarter) = (6 + (class - 5) / 4, (class as u64 - 5) % 4);
            (1 << power) + ((quarter + 1) << (power - 2))
        }
    }
}

/// The largest size whose block takes at most `bytes` bytes, where jemalloc has pages of `page_bytes`; 0 if there is
/// none.
///
/// ```
/// use ziptier_alloc::size_class::largest_within;
///
/// assert_eq!(largest_within(1024, 4096), 1024);
/// assert_eq!(largest_within(1279, 4096), 1024);
/// assert_eq!(largest_within(50_000, 4096), 49_152);
/// assert_eq!(largest_within(50_000, 65_536), 49_152);
/// assert_eq!(largest_within(56_000, 65_536), 49_152);
/// assert_eq!(largest_within(700_000, 65_536), 655_360);
/// assert_eq!(largest_within(u64::MAX, 4096), u64::MAX);
/// ```
pub const fn largest_within(bytes: u64, page_bytes: u64) -> u64 {
    let class = class(bytes);
    if class == CLASSES - 1 && bytes >= class_bytes(class) {
        return u64::MAX;
    }
    if bytes > paged_above(page_bytes) {
        return bytes - bytes % page_bytes;
    }
    match (class_bytes(class) <= bytes, class.checked_sub(1)) {
        (true, _) => class_bytes(class),
        (false, Some(smaller)) => class_bytes(smaller),
        (false, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_that_of_its_largest_size_and_begins_behind_the_one_before() {
        for index in 0..CLASSES {
            assert_eq!(class(class_bytes(index)), index);
            if index + 1 < CLASSES {
                assert_eq!(class(class_bytes(index) + 1), index + 1);
            }
        }
        assert_eq!(class_bytes(CLASSES - 1), 1 << 47);
        assert_eq!(class(u64::MAX), CLASSES - 1);
        // The first ones as jemalloc has them.
        let first: std::vec::Vec<u64> = (0..14).map(class_bytes).collect();
        assert_eq!(first, [8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320]);
    }
}
