//! Writes any bytes over a page, as a hostile process may, and reads the page from both sides. Nothing may panic, and
//! what is read must be within its bounds.

#![no_main]

use std::ptr::from_ref;

use libfuzzer_sys::fuzz_target;
use ziptier_alloc::configuration::Configuration;
use ziptier_alloc::page::{Page, Snapshot};

fuzz_target!(|input: (bool, Vec<(u16, Vec<u8>)>, u64)| {
    let (is_published, changes, seen) = input;
    let page = Box::new(Page::new());
    if is_published {
        page.publish(1, "0.2.0", &Configuration::DEFAULT);
    }
    for (at, bytes) in changes {
        let at = usize::from(at) % size_of::<Page>();
        let len = bytes.len().min(size_of::<Page>() - at);
        // SAFETY: the bytes lie in the page, which holds atomics alone, for which all bits are valid.
        unsafe {
            let target = from_ref(&*page).cast::<u8>().cast_mut().add(at);
            target.copy_from_nonoverlapping(bytes.as_ptr(), len);
        }
    }
    let _ = page.check();
    if let Some((_, Some(wanted))) = page.wanted(seen, &Configuration::DEFAULT) {
        assert!(wanted.is_valid());
    }
    let snapshot = Snapshot::of(&page);
    assert!((0.0..=1.0).contains(&snapshot.dither));
    assert!(!snapshot.mistake.as_bytes().contains(&b'\n'));
});
