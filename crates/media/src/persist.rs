//! Makes bytes in a mapping durable: copy, flush, fence and sync.
//!
//! On directly mapped persistent memory (DAX), a processor's fence makes stores durable after they have left the
//! caches. On a file in the page cache the same calls end in `msync` and `fdatasync`. On anonymous memory nothing
//! survives. [`Persistence`] knows which means is in force, uses it, and describes it in words.
//!
//! Do not use this module for bytes that are read back at once, or that need not outlive the process.

mod copy;
mod domain;
mod flush;

use std::fmt;
use std::fs::File;
use std::io;

use copy::Copy;
pub use domain::Domain;
use flush::Flush;

/// The means that makes bytes of one mapping durable.
#[derive(Debug)]
pub struct Persistence {
    means: Means,
}

#[derive(Debug)]
enum Means {
    /// Stores reach persistent memory by themselves: past the caches or flushed from them.
    Stores { domain: Domain, copy: Copy, flush: Flush },
    /// Stores land in the page cache of this file.
    PageCache(File),
    /// Stores land in a file of tmpfs, for which the kernel has nothing to sync.
    Tmpfs,
    /// Stores land in memory that forgets.
    Forgotten,
}

impl Persistence {
    /// For a mapping of `file` made with `MAP_SYNC` on persistent memory of the given domain. On processors other than
    /// x86-64 the result is that of [`Persistence::of_page_cache`], because there the kernel flushes the caches in
    /// `msync` and `fdatasync`.
    pub fn of_dax(file: File, domain: Domain) -> Persistence {
        match (Copy::available().first(), Flush::available().first()) {
            (Some(&copy), Some(&flush)) => Persistence { means: Means::Stores { domain, copy, flush } },
            _ => Persistence::of_page_cache(file),
        }
    }

    /// For a shared mapping of `file` anywhere else.
    pub fn of_page_cache(file: File) -> Persistence {
        Persistence { means: Means::PageCache(file) }
    }

    /// For a shared mapping of a file on tmpfs. The bytes last until the machine stops, as tmpfs itself does.
    pub fn of_tmpfs() -> Persistence {
        Persistence { means: Means::Tmpfs }
    }

    /// For anonymous memory.
    pub fn of_anonymous() -> Persistence {
        Persistence { means: Means::Forgotten }
    }

    /// Whether stores are durable after [`drain`](Persistence::drain), without a system call.
    pub fn is_immediate(&self) -> bool {
        matches!(self.means, Means::Stores { .. })
    }

    /// Whether bytes outlive the process.
    pub fn survives(&self) -> bool {
        !matches!(self.means, Means::Forgotten)
    }

    /// Copies `bytes` to `target`, past the caches if stores become durable without a system call. In that case the
    /// bytes are durable after the next [`drain`](Persistence::drain); in every case after the next
    /// [`sync`](Persistence::sync).
    ///
    /// # Safety
    ///
    /// `target` lies in this mapping with room for all of `bytes`. No other thread reads or writes that range
    /// meanwhile.
    pub unsafe fn copy(&self, target: *mut u8, bytes: &[u8]) {
        match self.means {
            // SAFETY: the caller's promise; both kinds come from `available`.
            Means::Stores { copy, flush, .. } => unsafe { copy_past_caches(copy, flush, target, bytes) },
            // SAFETY: the caller's promise.
            Means::PageCache(_) | Means::Tmpfs | Means::Forgotten => unsafe {
                target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            },
        }
    }

    /// Starts writing back `bytes` bytes from `start`, stored by ordinary means. Durable as after
    /// [`copy`](Persistence::copy).
    ///
    /// # Safety
    ///
    /// The range lies in this mapping.
    pub unsafe fn flush(&self, start: *const u8, bytes: usize) {
        match self.means {
            // Under eADR the caches are durable.
            Means::Stores { domain: Domain::Caches, .. }
            | Means::PageCache(_)
            | Means::Tmpfs
            | Means::Forgotten => {}
            // SAFETY: the caller's promise; the kind comes from `available`.
            Means::Stores { flush, .. } => unsafe { flush.range(start, bytes) },
        }
    }

    /// Waits until everything that this thread copied and flushed is durable, if stores become durable without a system
    /// call. Otherwise it only keeps the order that other threads see.
    pub fn drain(&self) {
        if self.is_immediate() {
            store_fence();
        }
    }

    /// Makes everything copied and flushed durable: a fence, or `fdatasync` of the file.
    ///
    /// # Errors
    ///
    /// The errors of `fdatasync`. After one it is unknown which bytes are durable: the kernel may have dropped pages
    /// that it could not write.
    pub fn sync(&self) -> io::Result<()> {
        match &self.means {
            Means::Stores { .. } => store_fence(),
            Means::PageCache(file) => file.sync_data()?,
            Means::Tmpfs | Means::Forgotten => {}
        }
        Ok(())
    }

    /// Makes only the range durable: flush and fence, or `msync` of its pages.
    ///
    /// # Errors
    ///
    /// The errors of `msync`, as for [`sync`](Persistence::sync).
    ///
    /// # Safety
    ///
    /// The range lies in this mapping.
    pub unsafe fn sync_range(&self, start: *mut u8, bytes: usize) -> io::Result<()> {
        match &self.means {
            Means::Stores { .. } => {
                // SAFETY: the caller's promise.
                unsafe { self.flush(start, bytes) };
                store_fence();
            }
            Means::PageCache(_) => {
                let lead = start.addr() % rustix::param::page_size();
                // SAFETY: the pages of the range are mapped, by the caller's promise.
                unsafe {
                    rustix::mm::msync(
                        start.wrapping_sub(lead).cast(),
                        lead + bytes,
                        rustix::mm::MsyncFlags::SYNC,
                    )?
                };
            }
            Means::Tmpfs | Means::Forgotten => {}
        }
        Ok(())
    }
}

/// One line for start-up and INFO: the means in force, and its instructions or calls.
impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Means::Stores { domain, copy, flush } = &self.means else {
            return f.write_str(match self.means {
                Means::PageCache(_) => "no DAX: durable after msync or fdatasync",
                Means::Tmpfs => "tmpfs: survives the process, not the machine",
                _ => "memory only: nothing survives the process",
            });
        };
        let copy = match copy {
            Copy::Avx512 => "AVX-512 non-temporal stores",
            Copy::Avx2 => "AVX2 non-temporal stores",
            Copy::Sse2 => "SSE2 non-temporal stores",
            Copy::Plain => "ordinary stores",
        };
        let flush = match flush {
            Flush::Clwb => "clwb",
            Flush::ClflushOpt => "clflushopt",
            Flush::Clflush => "clflush",
        };
        match domain {
            Domain::Caches => write!(f, "DAX with eADR: durable after sfence ({copy})"),
            Domain::MemoryController => write!(f, "DAX with ADR: durable after {flush} and sfence ({copy})"),
            Domain::Unstated => write!(f, "DAX, eADR not stated: durable after {flush} and sfence ({copy})"),
        }
    }
}

/// Copies whole lines past the caches. The ends share their lines with other bytes, so ordinary stores and a flush
/// write them.
///
/// # Safety
///
/// `target` is writable for all of `bytes`, and both kinds are available.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_past_caches(copy: Copy, flush: Flush, target: *mut u8, bytes: &[u8]) {
    let head = target.align_offset(flush::LINE_BYTES).min(bytes.len());
    let lines = (bytes.len() - head) / flush::LINE_BYTES;
    let tail = head + lines * flush::LINE_BYTES;
    // SAFETY: the three parts lie in `bytes` and in as many bytes from `target`; the middle is aligned by `head`.
    unsafe {
        target.copy_from_nonoverlapping(bytes.as_ptr(), head);
        flush.range(target, head);
        copy.lines(target.add(head), bytes.as_ptr().add(head), lines);
        if copy == Copy::Plain {
            flush.range(target.add(head), lines * flush::LINE_BYTES);
        }
        target.add(tail).copy_from_nonoverlapping(bytes.as_ptr().add(tail), bytes.len() - tail);
        flush.range(target.add(tail), bytes.len() - tail);
    }
}

/// Never called: no flush instruction is available here.
///
/// # Safety
///
/// `target` is writable for all of `bytes`.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_past_caches(_copy: Copy, _flush: Flush, target: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Waits for this thread's earlier stores, flushes and non-temporal stores.
fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has SSE, and a fence touches no memory.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every copy kind and flush that this machine has, as if its memory were persistent.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn all_kinds() -> Vec<Persistence> {
        let domains = [Domain::Caches, Domain::MemoryController, Domain::Unstated];
        let mut all = Vec::new();
        for copy in Copy::available() {
            for flush in Flush::available() {
                all.extend(
                    domains.map(|domain| Persistence { means: Means::Stores { domain, copy, flush } }),
                );
            }
        }
        all
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn all_kinds() -> Vec<Persistence> {
        Vec::new()
    }

    #[test]
    fn copies_are_exact_at_every_alignment_and_length() {
        let source: Vec<u8> = (0..600u32).map(|n| (n * 7 + 1) as u8).collect();
        for persistence in all_kinds().into_iter().chain([Persistence::of_anonymous()]) {
            let mut target = vec![0u8; 800];
            for start in [0, 1, 17, 63, 64] {
                for len in [0, 1, 15, 63, 64, 65, 127, 128, 129, 511, 600] {
                    target.fill(0);
                    // SAFETY: 64 + 600 bytes fit into the target, which only this test uses.
                    unsafe {
                        let start = target.as_mut_ptr().add(start);
                        persistence.copy(start, &source[..len]);
                        persistence.flush(start, len);
                    }
                    persistence.drain();
                    assert_eq!(
                        target[start..start + len],
                        source[..len],
                        "{persistence}: {len} bytes at {start}"
                    );
                    let outside = target[..start].iter().chain(&target[start + len..]);
                    assert!(
                        outside.copied().all(|byte| byte == 0),
                        "{persistence}: bytes beside {len} at {start}"
                    );
                }
            }
            persistence.sync().unwrap();
        }
    }

    #[test]
    fn what_is_in_force_is_said() {
        assert_eq!(Persistence::of_anonymous().to_string(), "memory only: nothing survives the process");
        let file = Persistence::of_page_cache(tempfile::tempfile().unwrap());
        assert_eq!(file.to_string(), "no DAX: durable after msync or fdatasync");
        assert!(file.survives() && !file.is_immediate());
        assert!(!Persistence::of_anonymous().survives());
        for persistence in all_kinds() {
            assert!(
                persistence.is_immediate() && persistence.to_string().contains("sfence"),
                "{persistence}"
            );
        }
        let dax = Persistence::of_dax(tempfile::tempfile().unwrap(), Domain::Caches);
        assert_eq!(dax.is_immediate(), cfg!(all(target_arch = "x86_64", not(miri))));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_range_of_a_file_is_synced_from_any_byte() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16384).unwrap();
        let persistence = Persistence::of_page_cache(file.try_clone().unwrap());
        // SAFETY: a new mapping of 16 KiB, used inside its bounds and unmapped last.
        unsafe {
            let (protection, flags) =
                (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
            let start = rustix::mm::mmap(std::ptr::null_mut(), 16384, protection, flags, &file, 0)
                .unwrap()
                .cast::<u8>();
            persistence.copy(start.add(4000), &[7; 200]);
            persistence.sync_range(start.add(4000), 200).unwrap();
            rustix::mm::munmap(start.cast(), 16384).unwrap();
        }
        let mut read = [0; 200];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 4000).unwrap();
        assert_eq!(read, [7; 200]);
    }
}
