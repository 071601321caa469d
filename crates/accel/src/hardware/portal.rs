//! A queue whose page is mapped: descriptors are stored to it without a system call.

use std::fs::File;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::in_flight::InFlight;
use super::instructions::{Enqcmd, Movdir64b, Sender, fence};
use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device, SubmitError};

/// The page of a queue, whose every 64 bytes take descriptors.
const PAGE_BYTES: usize = 4096;

/// A mapped queue.
pub(super) struct Portal {
    name: String,
    capabilities: Capabilities,
    page: Page,
    /// The place of the last descriptor. A new place for each lets the processor have several stores under way.
    place: AtomicUsize,
    instruction: Instruction,
    /// The queue belongs to this process while the file is open.
    _file: File,
}

struct Instruction {
    send: Sender,
    /// Jobs of a dedicated queue, which does not say when it is full.
    in_flight: Option<InFlight>,
}

impl Instruction {
    fn for_queue(capabilities: &Capabilities) -> Option<Instruction> {
        let send = match capabilities.tells_full {
            true => Enqcmd::detect()?.sender(),
            false => Movdir64b::detect()?.sender(),
        };
        Some(Instruction::with(send, capabilities))
    }

    fn with(send: Sender, capabilities: &Capabilities) -> Instruction {
        let is_dedicated = !capabilities.tells_full;
        Instruction { send, in_flight: is_dedicated.then(|| InFlight::new(capabilities.depth)) }
    }
}

impl Portal {
    /// Maps a queue. Returns the file if the processor lacks the instruction or the kernel refuses.
    pub(super) fn map(
        file: File,
        name: String,
        capabilities: Capabilities,
    ) -> Result<Portal, (File, String, Capabilities)> {
        let instruction = Instruction::for_queue(&capabilities);
        Portal::map_for(instruction, file, name, capabilities)
    }

    fn map_for(
        instruction: Option<Instruction>,
        file: File,
        name: String,
        capabilities: Capabilities,
    ) -> Result<Portal, (File, String, Capabilities)> {
        match instruction.zip(Page::map(&file)) {
            None => Err((file, name, capabilities)),
            Some((instruction, page)) => {
                Ok(Portal { name, capabilities, page, place: AtomicUsize::new(0), instruction, _file: file })
            }
        }
    }
}

impl Device for Portal {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        let place = self.page.place(self.place.fetch_add(64, Ordering::Relaxed));
        let Instruction { send, in_flight } = &self.instruction;
        if in_flight.as_ref().is_some_and(|in_flight| !in_flight.take()) {
            return Err(SubmitError::Full);
        }
        fence();
        // SAFETY: the place lies in the queue's page, and a dedicated queue has a free entry; the buffers are the
        // caller's promise.
        let taken = unsafe { send(place, descriptor) };
        if taken { Ok(()) } else { Err(SubmitError::Full) }
    }

    fn retire(&self) {
        if let Some(in_flight) = &self.instruction.in_flight {
            in_flight.give_back();
        }
    }
}

/// A page that can only be written to, and that a forked child does not have.
struct Page(NonNull<u8>);

// SAFETY: the page belongs to no thread, and the instructions that store to it are atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the first page of a file; `None` if the kernel refuses.
    fn map(file: &File) -> Option<Page> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let page = unsafe { mmap(null_mut(), PAGE_BYTES, ProtFlags::WRITE, flags, file, 0) };
        let page = NonNull::new(page.ok()?.cast()).map(Page)?;
        // The present driver already keeps its pages from children; other kernels may not. SAFETY: the page is ours.
        let _ = unsafe { madvise(page.0.as_ptr().cast(), PAGE_BYTES, Advice::LinuxDontFork) };
        Some(page)
    }

    /// 64 bytes of the page, at an offset that wraps around.
    fn place(&self, offset: usize) -> *mut u8 {
        self.0.as_ptr().wrapping_add((offset % PAGE_BYTES) & !63)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody holds a place in it.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::null::NullDevice;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memory_file() -> File {
        let file = memfd_create("queue", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        File::from(file)
    }

    #[test]
    fn places_rotate_within_the_page() {
        let page = Page::map(&memory_file()).unwrap();
        let offsets: Vec<usize> = [0, 64, 4032, 4096, 4160]
            .iter()
            .map(|&at| page.place(at) as usize - page.0.as_ptr() as usize)
            .collect();
        assert_eq!(offsets, [0, 64, 4032, 0, 64]);
    }

    #[test]
    fn a_mapping_that_the_kernel_refuses_gives_the_file_back() {
        let file = memory_file();
        fcntl_add_seals(&file, SealFlags::WRITE).unwrap();
        assert!(Page::map(&file).is_none());
        let capabilities = NullDevice::new().capabilities().clone();
        let Err((_, name, _)) = Portal::map(file, "sealed".into(), capabilities) else { panic!() };
        assert_eq!(name, "sealed");
    }

    #[test]
    fn a_dedicated_queue_counts_its_jobs() {
        let mut capabilities = NullDevice::new().capabilities().clone();
        (capabilities.tells_full, capabilities.depth) = (false, 2);
        // A plain copy in the place of the instruction, which not every processor has: the accounting is the same.
        let copied: Sender = |place, descriptor| {
            // SAFETY: the place is 64 bytes of the page of a file in memory.
            unsafe { place.copy_from_nonoverlapping(descriptor.as_bytes().as_ptr(), 64) };
            true
        };
        let (file, instruction) = (memory_file(), Instruction::with(copied, &capabilities));
        let stored = file.try_clone().unwrap();
        let portal = Portal::map_for(Some(instruction), file, "dedicated".into(), capabilities);
        let Ok(portal) = portal else { panic!("a file in memory can be mapped") };
        let descriptor = Descriptor::from_bytes([7; 64]);
        // SAFETY: nobody executes the descriptor.
        let submit = || unsafe { portal.submit(&descriptor) };
        assert!(submit().is_ok() && submit().is_ok());
        assert!(matches!(submit(), Err(SubmitError::Full)));
        portal.retire();
        assert!(submit().is_ok() && matches!(submit(), Err(SubmitError::Full)));
        let mut page = [0; 257];
        stored.read_exact_at(&mut page, 0).unwrap();
        // The descriptor that found no entry also has a place, and left it unchanged.
        let places: [bool; 4] = std::array::from_fn(|place| page[64 * place..64 * place + 64] == [7; 64]);
        assert_eq!((places, page[256]), ([true, true, false, true], 0));
    }

    /// The page of a child would be the parent's queue.
    #[test]
    fn a_forked_child_does_not_have_the_page() {
        let page = Page::map(&memory_file()).unwrap();
        // SAFETY: the child writes to the page, which should kill it, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                page.place(0).write_volatile(1);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: the child is ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status}");
    }

    #[test]
    fn a_shared_queue_says_when_it_is_full() {
        let mut capabilities = NullDevice::new().capabilities().clone();
        (capabilities.tells_full, capabilities.depth) = (true, 1);
        let full: Sender = |_, _| false;
        let instruction = Instruction::with(full, &capabilities);
        let portal = Portal::map_for(Some(instruction), memory_file(), "shared".into(), capabilities);
        let Ok(portal) = portal else { panic!("a file in memory can be mapped") };
        // SAFETY: nobody executes the descriptor.
        let submit = || unsafe { portal.submit(&Descriptor::from_bytes([7; 64])) };
        assert!(matches!(submit(), Err(SubmitError::Full)) && matches!(submit(), Err(SubmitError::Full)));
        portal.retire();
    }
}
