//! A queue whose page is mapped: descriptors are stored to it without a system call.

use std::fs::File;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::in_flight::InFlight;
use super::instructions::{Enqcmd, Movdir64b, fence};
use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device, SubmitError};

/// The page of a queue, whose every 64 bytes take descriptors.
const PAGE_BYTES: usize = 4096;

/// A mapped queue.
pub(super) struct Portal {
    name: String,
    capabilities: Capabilities,
    page: Page,
    /// Where the last descriptor went; a new place for each lets the processor have several stores under way.
    place: AtomicUsize,
    instruction: Instruction,
    /// The queue is ours as long as it is open.
    _file: File,
}

enum Instruction {
    Shared(Enqcmd),
    Dedicated(Movdir64b, InFlight),
}

impl Instruction {
    fn for_queue(capabilities: &Capabilities) -> Option<Instruction> {
        if capabilities.tells_full {
            Enqcmd::detect().map(Instruction::Shared)
        } else {
            let in_flight = InFlight::new(capabilities.depth);
            Movdir64b::detect().map(|movdir64b| Instruction::Dedicated(movdir64b, in_flight))
        }
    }
}

impl Portal {
    /// Maps a queue; gives everything back if the processor lacks the instruction or the kernel refuses.
    pub(super) fn map(
        file: File,
        name: String,
        capabilities: Capabilities,
    ) -> Result<Portal, (File, String, Capabilities)> {
        let mapped = Instruction::for_queue(&capabilities).zip(Page::map(&file));
        match mapped {
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
        fence();
        match &self.instruction {
            Instruction::Shared(enqcmd) => {
                // SAFETY: the place lies in the queue's page; the buffers are the caller's promise.
                let taken = unsafe { enqcmd.send(place, descriptor) };
                if taken { Ok(()) } else { Err(SubmitError::Full) }
            }
            Instruction::Dedicated(movdir64b, in_flight) => {
                if !in_flight.take() {
                    return Err(SubmitError::Full);
                }
                // SAFETY: as above, and the queue has a free entry.
                unsafe { movdir64b.send(place, descriptor) };
                Ok(())
            }
        }
    }

    fn retire(&self) {
        if let Instruction::Dedicated(_, in_flight) = &self.instruction {
            in_flight.give_back();
        }
    }
}

/// A page that can only be written to.
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
        NonNull::new(page.ok()?.cast()).map(Page)
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
        // Where the processor lacks the instruction there is nothing to see; ordinary memory takes its stores.
        let Ok(portal) = Portal::map(memory_file(), "dedicated".into(), capabilities) else { return };
        let descriptor = Descriptor::from_bytes([7; 64]);
        // SAFETY: nobody executes the descriptor.
        let submit = || unsafe { portal.submit(&descriptor) };
        assert!(submit().is_ok() && submit().is_ok());
        assert!(matches!(submit(), Err(SubmitError::Full)));
        portal.retire();
        assert!(submit().is_ok());
    }
}
