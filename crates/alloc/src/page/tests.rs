use std::vec::Vec;

use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, SealFlags};

use super::*;

fn published(configuration: &Configuration) -> SharedPage {
    let page = SharedPage::create().unwrap();
    page.publish(std::process::id(), "1.2.3", configuration);
    page
}

/// As a command opens the file of another process.
fn attach(fd: i32) -> Result<SharedPage, AttachError> {
    let file = std::fs::File::options().read(true).write(true).open(std::format!("/proc/self/fd/{fd}"));
    SharedPage::attach(file.unwrap().into())
}

#[test]
fn what_the_command_wants_comes_to_the_library_once() {
    let now = Configuration::DEFAULT;
    let library = published(&now);
    let command = attach(library.fd()).unwrap();
    assert_eq!(library.wanted(0, &now), None);

    let wanted = Configuration { ratio: Ratio { dram: 2, far: 5 }, dram_limit_bytes: 1 << 30, ..now };
    let number = command.want(&wanted);
    let (changes, configuration) = library.wanted(0, &now).unwrap();
    assert_eq!((changes, configuration), (number, Some(wanted)));
    assert_eq!(library.wanted(changes, &now), None);
}

#[test]
fn options_that_no_text_can_set_are_refused() {
    let now = Configuration::DEFAULT;
    let page = published(&now);
    let number = page.want(&now);
    for (field, value) in
        [(&page.wanted.ratio, 0), (&page.wanted.ratio, 1 << 63), (&page.wanted.threshold_min_bytes, 9)]
    {
        let before = field.swap(value, Relaxed);
        let max = page.wanted.threshold_max_bytes.swap(8, Relaxed);
        assert_eq!(page.wanted(0, &now), Some((number, None)));
        field.store(before, Relaxed);
        page.wanted.threshold_max_bytes.store(max, Relaxed);
    }
    page.wanted.policy.store(4, Relaxed);
    assert_eq!(page.wanted(0, &now), Some((number, None)));
    page.wanted.policy.store(3, Relaxed);
    page.wanted.tables_in_dram.store(2, Relaxed);
    assert_eq!(page.wanted(0, &now), Some((number, None)));
}

#[test]
fn a_writer_that_was_killed_is_overtaken_by_the_next_one() {
    let now = Configuration::DEFAULT;
    let page = published(&now);
    page.changes.store(7, Relaxed);
    page.wanted.ratio.store(0, Relaxed);
    assert_eq!(page.wanted(6, &now), None);
    assert_eq!(page.want(&now), 8);
    assert_eq!(page.wanted(6, &now), Some((8, Some(now))));
}

#[test]
fn a_file_that_is_no_page_is_refused() {
    let flags = MemfdFlags::ALLOW_SEALING;
    let memfd = |seals, bytes: u64| {
        let fd = rustix::fs::memfd_create(MEMFD_NAME, flags).unwrap();
        rustix::fs::ftruncate(&fd, bytes).unwrap();
        rustix::fs::fcntl_add_seals(fd.as_fd(), seals).unwrap();
        fd
    };
    let size = size_of::<Page>() as u64;
    assert_eq!(SharedPage::attach(memfd(SealFlags::empty(), size)).unwrap_err(), AttachError::NotSealed);
    assert_eq!(SharedPage::attach(memfd(SealFlags::SHRINK, size)).unwrap_err(), AttachError::NoPage);
    let found = SharedPage::attach(memfd(SealFlags::SHRINK, 64)).unwrap_err();
    assert_eq!(found, AttachError::Version { found: 0 });
    let file = tempfile::tempfile().unwrap();
    assert_eq!(SharedPage::attach(file.into()).unwrap_err(), AttachError::NoPage);

    let page = published(&Configuration::DEFAULT);
    page.version.store(VERSION + 1, Relaxed);
    assert_eq!(attach(page.fd()).unwrap_err(), AttachError::Version { found: VERSION + 1 });
}

#[test]
fn the_file_cannot_be_shortened() {
    let page = published(&Configuration::DEFAULT);
    let file =
        std::fs::File::options().write(true).open(std::format!("/proc/self/fd/{}", page.fd())).unwrap();
    assert!(file.set_len(0).is_err());
}

#[test]
fn a_renewed_page_is_another_one_at_the_same_address() {
    let mut page = published(&Configuration::DEFAULT);
    let parent = attach(page.fd()).unwrap();
    let address = &raw const *page;
    let fd = page.fd();
    page.detach();
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, -1, "the descriptor of the parent's page is open");
    page.told.ticks.store(7, Relaxed);
    assert_eq!(parent.told.ticks.load(Relaxed), 0, "what a child tells before it has a page of its own");
    page.detach();
    page.renew().unwrap();
    assert_eq!(&raw const *page, address);
    assert_eq!(page.check(), Err(AttachError::NoPage));
    page.publish(1, "child", &Configuration::DRAM_ONLY);
    assert_eq!(parent.pid.load(Relaxed), std::process::id());
    assert_eq!(attach(page.fd()).unwrap().pid.load(Relaxed), 1);
}

#[test]
fn texts_end_at_their_room() {
    let text = Text::<2>::new();
    let read = |text: &Text<2>| Vec::from(text.get(&mut [[0; 8]; 2]));
    assert_eq!(read(&text), b"");
    text.set(b"0.2.0");
    assert_eq!(read(&text), b"0.2.0");
    text.set(b"longer than sixteen bytes");
    assert_eq!(read(&text), b"longer than sixt");
}

#[test]
fn a_snapshot_of_any_bits_is_within_bounds() {
    let page = published(&Configuration::DEFAULT);
    let told = &page.told;
    told.set_class(ClassName::new(b"gold").as_ref());
    told.dither.store(1 << 31, Relaxed);
    told.medium(Medium::Dram).live_bytes.store(100, Relaxed);
    told.medium(Medium::Far).live_bytes.store(250, Relaxed);
    let seen = Snapshot::of(&page);
    assert_eq!(seen.library_version.as_bytes(), b"1.2.3");
    assert_eq!((seen.class, seen.dither, seen.far_to_dram()), (ClassName::new(b"gold"), 0.5, Some(2.5)));

    // SAFETY: the page holds atomics alone, for which all bits are valid.
    unsafe { std::ptr::from_ref::<Page>(&page).cast_mut().cast::<u8>().write_bytes(0xFF, size_of::<Page>()) };
    let seen = Snapshot::of(&page);
    assert_eq!((seen.policy, seen.ratio, seen.class, seen.far_kind), (None, None, None, FarKind::Unknown));
    assert_eq!((seen.dither, seen.library_version.as_bytes().len()), (1.0, 32));
    assert!(seen.mistake.as_bytes().iter().all(|&byte| byte == b'?'));
}
