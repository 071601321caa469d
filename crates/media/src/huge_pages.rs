//! Huge pages below memory of the program's own, for a large memory that is read at random.
//!
//! A processor keeps the addresses of some thousand pages at hand, and looks up all others in memory. Pages of 2 MiB
//! need 512 times fewer of them. Do not use huge pages where few bytes of each are written: a huge page takes up memory
//! as a whole.
//!
//! 1. The caller reserves memory, writes nothing, and calls [`prefer`].
//! 2. The kernel takes a huge page wherever the first byte of one is written.

use std::mem::MaybeUninit;

use rustix::mm::{Advice, madvise};

/// Bytes of a huge page on x86-64, and on aarch64 with ordinary pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the kernel for huge pages below all of a memory but the parts at both ends that fill none. Whether the kernel
/// takes the advice; without huge pages the memory serves as well.
pub fn prefer(memory: &mut [MaybeUninit<u8>]) -> bool {
    let begin = memory.as_mut_ptr();
    let skipped = begin.addr().next_multiple_of(HUGE_PAGE_BYTES) - begin.addr();
    let bytes = memory.len().saturating_sub(skipped) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if bytes == 0 {
        return false;
    }
    // SAFETY: the range lies inside of `memory`, and the advice changes no byte.
    unsafe { madvise(begin.wrapping_add(skipped).cast(), bytes, Advice::LinuxHugepage) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that an address lies in, as `/proc/self/smaps` tells them.
    fn flags_at(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let hex = |text| usize::from_str_radix(text, 16).ok();
            if let Some((begin, end)) = range.and_then(|(begin, end)| hex(begin).zip(hex(end))) {
                is_there = (begin..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_there) {
                return flags.to_owned();
            }
        }
        String::new()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it asks the kernel")]
    fn whole_huge_pages_are_asked_for_and_no_byte_beyond() {
        let mut room: Vec<u8> = Vec::with_capacity(5 * HUGE_PAGE_BYTES);
        let begin = room.as_ptr().addr();
        let whole = begin.next_multiple_of(HUGE_PAGE_BYTES);
        if !prefer(&mut room.spare_capacity_mut()[..5 * HUGE_PAGE_BYTES]) {
            // A kernel without huge pages.
            assert!(!std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists());
            return;
        }
        assert!(flags_at(whole).contains(" hg"), "{}", flags_at(whole));
        assert!(begin == whole || !flags_at(begin).contains(" hg"));
        room.resize(5 * HUGE_PAGE_BYTES, 7);
        assert!(room.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn memory_without_a_whole_huge_page_is_left_alone() {
        assert!(!prefer(&mut []));
        let mut short: Vec<u8> = Vec::with_capacity(HUGE_PAGE_BYTES - 1);
        assert!(!prefer(&mut short.spare_capacity_mut()[..HUGE_PAGE_BYTES - 1]));
    }
}
