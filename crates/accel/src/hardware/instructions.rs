//! The two instructions that store 64 bytes at once to a device, each behind the proof that the processor has it.

use crate::descriptor::Descriptor;

pub(super) use of_this_processor::{Enqcmd, Movdir64b, fence};

/// Stores a descriptor to 64 bytes of a queue's mapped page, and returns whether the queue took it. The buffers satisfy
/// the contract of [`Device::submit`](crate::Device::submit).
pub(super) type Sender = unsafe fn(*mut u8, &Descriptor) -> bool;

#[cfg(target_arch = "x86_64")]
mod of_this_processor {
    use std::arch::naked_asm;
    use std::arch::x86_64::{__cpuid_count, __get_cpuid_max, _mm_sfence};

    use super::Sender;
    use crate::descriptor::Descriptor;

    /// Proof that the processor has ENQCMD: it stores 64 bytes to a queue and reports whether the queue took them.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Enqcmd(());

    /// Proof that the processor has MOVDIR64B: it stores 64 bytes as one write.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Movdir64b(());

    /// Bit of register ECX of CPUID leaf 7.
    const ENQCMD_BIT: u32 = 29;
    const MOVDIR64B_BIT: u32 = 28;

    fn has(bit: u32) -> bool {
        // Miri has neither CPUID nor devices.
        if cfg!(miri) || __get_cpuid_max(0).0 < 7 {
            return false;
        }
        __cpuid_count(7, 0).ecx >> bit & 1 == 1
    }

    impl Enqcmd {
        pub(crate) fn detect() -> Option<Enqcmd> {
            has(ENQCMD_BIT).then_some(Enqcmd(()))
        }

        /// Stores to a shared queue, which may be full.
        pub(crate) fn sender(self) -> Sender {
            // SAFETY: the processor has the instruction, as `self` proves; the rest is the caller's.
            |portal, descriptor| unsafe { enqcmd(portal, descriptor) == 0 }
        }
    }

    impl Movdir64b {
        pub(crate) fn detect() -> Option<Movdir64b> {
            has(MOVDIR64B_BIT).then_some(Movdir64b(()))
        }

        /// Stores to a dedicated queue, which has a free entry.
        pub(crate) fn sender(self) -> Sender {
            |portal, descriptor| {
                // SAFETY: the processor has the instruction, as `self` proves; the rest is the caller's.
                unsafe { movdir64b(portal, descriptor) };
                true
            }
        }
    }

    /// Makes all earlier stores visible to the device before later ones.
    pub(crate) fn fence() {
        // SAFETY: part of SSE, which every x86-64 processor has.
        #[allow(unused_unsafe)]
        unsafe {
            _mm_sfence();
        }
    }

    /// 1 if the queue did not take the descriptor (the zero flag is set), otherwise 0.
    ///
    /// # Safety
    ///
    /// As for [`Sender`]; the processor has the instruction.
    #[unsafe(naked)]
    unsafe extern "sysv64" fn enqcmd(portal: *mut u8, descriptor: *const Descriptor) -> u8 {
        naked_asm!("enqcmd rdi, [rsi]", "setz al", "ret")
    }

    /// # Safety
    ///
    /// As for [`Sender`]; the processor has the instruction.
    #[unsafe(naked)]
    unsafe extern "sysv64" fn movdir64b(portal: *mut u8, descriptor: *const Descriptor) {
        naked_asm!("movdir64b rdi, [rsi]", "ret")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Bytes from the processor manual: prefix, opcode 0F 38 F8, register RDI with memory at RSI (3E).
        #[test]
        #[cfg(not(miri))]
        fn instructions_are_those_of_the_manual() {
            // SAFETY: both functions have at least so many bytes of code, which can be read.
            let bytes = |function: *const u8, length| unsafe { std::slice::from_raw_parts(function, length) };
            let golden = [0xF2, 0x0F, 0x38, 0xF8, 0x3E, 0x0F, 0x94, 0xC0, 0xC3];
            assert_eq!(bytes(enqcmd as *const u8, 9), golden);
            let golden = [0x66, 0x0F, 0x38, 0xF8, 0x3E, 0xC3];
            assert_eq!(bytes(movdir64b as *const u8, 6), golden);
        }

        #[test]
        #[cfg(not(miri))]
        fn sixty_four_bytes_are_stored_where_the_processor_can() {
            fence();
            let Some(instruction) = Movdir64b::detect() else { return };
            let descriptor = Descriptor::from_bytes(std::array::from_fn(|at| at as u8));
            let mut target = Descriptor::from_bytes([0; 64]);
            // SAFETY: ordinary memory of 64 aligned bytes takes the same store.
            let taken = unsafe { (instruction.sender())((&raw mut target).cast(), &descriptor) };
            assert!(taken);
            assert_eq!(target, descriptor);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod of_this_processor {
    use super::Sender;

    /// No processor of this architecture has it.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Enqcmd {}

    /// No processor of this architecture has it.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Movdir64b {}

    impl Enqcmd {
        pub(crate) fn detect() -> Option<Enqcmd> {
            None
        }

        pub(crate) fn sender(self) -> Sender {
            match self {}
        }
    }

    impl Movdir64b {
        pub(crate) fn detect() -> Option<Movdir64b> {
            None
        }

        pub(crate) fn sender(self) -> Sender {
            match self {}
        }
    }

    /// Without a mapping there is nothing to fence.
    pub(crate) fn fence() {}
}
