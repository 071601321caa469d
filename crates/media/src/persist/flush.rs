//! Writing cache lines back to memory, with the best instruction that the processor has.

/// Bytes of a cache line, on every processor with one of these instructions.
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
pub(super) const LINE_BYTES: usize = 64;

/// The instruction that writes a cache line back.
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// Writes back and keeps the line.
    Clwb,
    /// Writes back and drops the line; many may be under way.
    ClflushOpt,
    /// Writes back and drops the line, one after the other.
    Clflush,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Flush {
    /// The instructions that this processor has, best first.
    pub(super) fn available() -> Vec<Flush> {
        use core::arch::x86_64::__cpuid_count;
        // Leaf 7, register EBX: bit 24 clwb, bit 23 clflushopt. Every x86-64 processor has clflush.
        let features = if __cpuid_count(0, 0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let mut found = Vec::new();
        if features & (1 << 24) != 0 {
            found.push(Flush::Clwb);
        }
        if features & (1 << 23) != 0 {
            found.push(Flush::ClflushOpt);
        }
        found.push(Flush::Clflush);
        found
    }

    /// Starts writing back every line that `bytes` bytes from `start` touch; a fence waits for them.
    ///
    /// # Safety
    ///
    /// The range is mapped, and the instruction is one of [`Flush::available`].
    pub(super) unsafe fn range(self, start: *const u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let lead = start.addr() % LINE_BYTES;
        let first = start.wrapping_sub(lead);
        for line in (0..lead + bytes).step_by(LINE_BYTES) {
            let line = first.wrapping_add(line);
            // SAFETY: the line holds at least one byte of a mapped range, and pages are whole lines; flushing changes
            // no byte.
            unsafe {
                match self {
                    Flush::Clwb => {
                        core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                    }
                    Flush::ClflushOpt => {
                        core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    Flush::Clflush => core::arch::x86_64::_mm_clflush(line),
                }
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Flush {
    /// No such instruction is used here.
    pub(super) fn available() -> Vec<Flush> {
        Vec::new()
    }

    /// Never called: [`Flush::available`] is empty here.
    ///
    /// # Safety
    ///
    /// None.
    pub(super) unsafe fn range(self, _start: *const u8, _bytes: usize) {
        unreachable!("no flush instruction is available here");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushing_changes_no_byte() {
        let bytes: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
        for flush in Flush::available() {
            for (start, len) in [(0, 0), (0, 1), (1, 63), (63, 2), (7, 900), (0, 1000)] {
                // SAFETY: the range lies inside `bytes`.
                unsafe { flush.range(bytes[start..].as_ptr(), len) };
            }
            assert!(bytes.iter().zip(0..1000u32).all(|(&byte, n)| byte == n as u8), "{flush:?}");
        }
    }
}
