//! Copying past the caches: non-temporal stores of whole cache lines, with the widest registers that the processor has.
//!
//! For bytes that are written once and not read soon. Such stores do not read the old line first, do not evict other
//! lines from the caches, and need no flush. Use an ordinary copy for bytes that are read back at once.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::flush::LINE_BYTES;

/// How lines are copied.
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copy {
    /// One 64-byte non-temporal store a line.
    Avx512,
    /// Two 32-byte ones.
    Avx2,
    /// Four 16-byte ones.
    Sse2,
    /// An ordinary copy, which leaves lines in the caches.
    Plain,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Copy {
    /// The kinds that this processor has, best first.
    pub(super) fn available() -> Vec<Copy> {
        let mut found = Vec::new();
        if is_x86_feature_detected!("avx512f") {
            found.push(Copy::Avx512);
        }
        if is_x86_feature_detected!("avx2") {
            found.push(Copy::Avx2);
        }
        found.extend([Copy::Sse2, Copy::Plain]);
        found
    }

    /// Copies `lines` cache lines.
    ///
    /// # Safety
    ///
    /// `target` is aligned to a line and writable, `source` readable for `lines` lines; they do not overlap; and the
    /// kind is one of [`Copy::available`].
    pub(super) unsafe fn lines(self, target: *mut u8, source: *const u8, lines: usize) {
        // SAFETY: passed on; the processor has the instructions.
        unsafe {
            match self {
                Copy::Avx512 => lines_avx512(target, source, lines),
                Copy::Avx2 => lines_avx2(target, source, lines),
                Copy::Sse2 => lines_sse2(target, source, lines),
                Copy::Plain => target.copy_from_nonoverlapping(source, lines * LINE_BYTES),
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Copy {
    /// The ordinary copy alone.
    pub(super) fn available() -> Vec<Copy> {
        vec![Copy::Plain]
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! copy_of_lines {
    ($name:ident, $feature:literal, $register:ty, $load:ident, $stream:ident) => {
        /// # Safety
        ///
        /// As for [`Copy::lines`].
        #[target_feature(enable = $feature)]
        unsafe fn $name(target: *mut u8, source: *const u8, lines: usize) {
            use core::arch::x86_64::{$load, $stream};
            let (target, source) = (target.cast::<$register>(), source.cast::<$register>());
            for at in 0..lines * (LINE_BYTES / size_of::<$register>()) {
                // SAFETY: inside the lines that the caller vouches for; a line's alignment is at least a register's.
                unsafe { $stream(target.add(at), $load(source.add(at))) };
            }
        }
    };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
copy_of_lines!(lines_avx512, "avx512f", core::arch::x86_64::__m512i, _mm512_loadu_si512, _mm512_stream_si512);
#[cfg(all(target_arch = "x86_64", not(miri)))]
copy_of_lines!(lines_avx2, "avx2", core::arch::x86_64::__m256i, _mm256_loadu_si256, _mm256_stream_si256);
#[cfg(all(target_arch = "x86_64", not(miri)))]
copy_of_lines!(lines_sse2, "sse2", core::arch::x86_64::__m128i, _mm_loadu_si128, _mm_stream_si128);
