//! Synced bodies come back after a restart and after every power cut, and never with other bytes than were appended.

use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::{Disk, RealDisk};
use ziptier_media::segments::{Place, Purpose, SegmentError, SegmentOptions, Segments};
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

const DIR: &str = "/data/ssd";
const OPTIONS: SegmentOptions = SegmentOptions {
    segment_bytes: 64 << 10,
    write_bytes: 16 << 10,
    limit_bytes: 512 << 10,
    read_threads: 1,
};

fn open(disk: Arc<dyn Disk>) -> Result<Segments, SegmentError> {
    Segments::open(disk, Path::new(DIR), OPTIONS)
}

fn body(i: u64) -> Vec<u8> {
    let mixed = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..1 + (mixed >> 50)).map(|at| (mixed >> (at % 56)) as u8 ^ at as u8).collect()
}

/// Appends and syncs until the tier is full; places, and how many were synced at which position.
fn run(disk: Arc<dyn Disk>, position: impl Fn() -> usize) -> (Vec<Place>, Vec<(usize, usize)>) {
    let (mut places, mut synced) = (Vec::new(), Vec::new());
    let result = (|| {
        let segments = open(disk)?;
        for i in 0.. {
            places.push(segments.append(&body(i), Purpose::New)?);
            if i % 5 == 4 {
                segments.sync()?;
                synced.push((position(), places.len()));
            }
        }
        Ok::<(), SegmentError>(())
    })();
    assert!(result.is_err());
    (places, synced)
}

#[test]
fn synced_bodies_survive_every_power_cut() {
    let disk = RecordingDisk::new();
    let (places, synced) = run(Arc::new(disk.clone()), || disk.position());
    for image in disk.images().sample(5, 3000) {
        let count =
            synced.iter().rfind(|(position, _)| *position <= image.position).map_or(0, |&(_, count)| count);
        let segments = open(Arc::new(image.disk)).unwrap_or_else(|error| panic!("{error}: {}", image.what));
        for (i, &place) in places[..count].iter().enumerate() {
            assert_eq!(segments.read(place).as_deref(), Ok(&body(i as u64)[..]), "{}", image.what);
        }
        // An unsynced body may be there, but never with other bytes.
        for (i, &place) in places.iter().enumerate().skip(count) {
            assert!(
                segments.read(place).is_ok_and(|found| found == body(i as u64))
                    || segments.read(place).is_err()
            );
        }
        // A new body never lies in a segment from before the restart.
        let numbers = segments.numbers();
        if let Ok(place) = segments.append(b"new", Purpose::Cleaning) {
            assert!(!numbers.contains(&place.segment));
        }
    }
}

#[test]
fn a_failed_operation_is_told_and_loses_nothing() {
    for fault in [Fault::Io, Fault::Full, Fault::ShortWrite, Fault::LyingSync] {
        for nth in 0.. {
            let recording = RecordingDisk::new();
            let disk = FailingDisk::new(Arc::new(recording.clone()), fault, nth);
            let (places, synced) = run(Arc::new(disk.clone()), || recording.position());
            if !disk.has_failed() {
                assert!(nth > 10, "{fault:?} hit nothing");
                break;
            }
            let last = recording.images().sample(nth, 2).last().unwrap();
            let Ok(segments) = open(Arc::new(last.disk)) else { panic!("{fault:?} {nth}") };
            let count = synced
                .iter()
                .rfind(|(position, _)| *position <= last.position)
                .map_or(0, |&(_, count)| count);
            for (i, &place) in places[..count].iter().enumerate() {
                assert_eq!(segments.read(place).as_deref(), Ok(&body(i as u64)[..]), "{fault:?} {nth}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_body_is_damage() {
    let disk = RecordingDisk::new();
    let segments = open(Arc::new(disk.clone())).unwrap();
    let places: Vec<Place> =
        (0..8).map(|i| segments.append(&[i as u8; 100], Purpose::New).unwrap()).collect();
    segments.close().unwrap();
    let path = disk.paths()[0].clone();
    let whole = disk.contents(&path).unwrap();
    let is_body =
        |at: usize| places.iter().position(|place| (0..108).contains(&(at as i64 - i64::from(place.offset))));
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        disk.put(&path, flipped);
        let opened = open(Arc::new(disk.clone()));
        if at < 4096 {
            assert!(matches!(opened, Err(SegmentError::Damaged { offset: 0, .. })), "byte {at}");
            continue;
        }
        let opened = opened.unwrap();
        for (i, &place) in places.iter().enumerate() {
            let read = opened.read(place);
            match is_body(at) {
                Some(flipped) if flipped == i => {
                    let offset = u64::from(place.offset);
                    assert!(matches!(read, Err(SegmentError::Damaged { offset: o, .. }) if o == offset));
                }
                _ => assert_eq!(read.unwrap(), [i as u8; 100]),
            }
        }
    }
}

#[test]
fn a_full_tier_reads_and_cleans() {
    let folder = tempfile::tempdir().unwrap();
    let segments = Segments::open(Arc::new(RealDisk), folder.path(), OPTIONS).unwrap();
    let mut live: Vec<(u64, Place)> = Vec::new();
    let full = loop {
        let i = live.len() as u64;
        match segments.append(&body(i), Purpose::New) {
            Ok(place) => live.push((i, place)),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, SegmentError::Full { limit_bytes: 524_288, .. }), "{full}");
    assert!(segments.stats().allocated_bytes <= OPTIONS.limit_bytes);
    // Every second body of the first half is released; cleaning then makes room again.
    let half = live.len() as u64 / 2;
    live.retain(|&(i, place)| {
        let is_kept = i > half || i % 4 == 0;
        if !is_kept {
            segments.release(place);
        }
        is_kept
    });
    for _ in 0..3 {
        let candidate = segments.candidates()[0];
        assert!(candidate.live_bytes * 2 < candidate.allocated_bytes, "{candidate:?}");
        for (i, place) in live.iter_mut().filter(|(_, place)| place.segment == candidate.segment) {
            let moved = segments.append(&segments.read(*place).unwrap(), Purpose::Cleaning).unwrap();
            assert_eq!(segments.read(moved).unwrap(), body(*i));
            segments.release(*place);
            *place = moved;
        }
        segments.sync().unwrap();
        segments.remove(candidate.segment).unwrap();
    }
    segments.append(&body(1), Purpose::New).unwrap();
    for (i, place) in live {
        assert_eq!(segments.read(place).unwrap(), body(i));
    }
    let stats = segments.stats();
    assert!(
        stats.cleaned_body_bytes > 0 && stats.written_bytes > stats.new_body_bytes + stats.cleaned_body_bytes
    );
    assert!(stats.written_bytes < (stats.new_body_bytes + stats.cleaned_body_bytes) * 5 / 4, "{stats:?}");
}

#[test]
fn bodies_of_a_segment_are_listed_and_numbers_never_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk);
    let segments = Segments::open(disk.clone(), folder.path(), OPTIONS).unwrap();
    let mut places = Vec::new();
    for i in 0..5 {
        places.push(segments.append(&body(i), Purpose::New).unwrap());
        if i % 2 == 0 {
            segments.sync().unwrap();
        }
    }
    // Longer than a write, and than a segment.
    let long = body(3).repeat(10_000_000 / body(3).len() / 64);
    let long_place = segments.append(&long, Purpose::New).unwrap();
    assert_ne!(long_place.segment, places[0].segment);
    assert_eq!(segments.read(long_place).unwrap(), long);
    let mut blocks = segments.blocks(places[0].segment).unwrap();
    let mut listed = Vec::new();
    while let Some((place, bytes)) = blocks.next_block().unwrap() {
        assert_eq!(bytes, body(listed.len() as u64));
        listed.push(place);
    }
    assert_eq!(listed, places);
    assert!(segments.describe().contains("asynchronous reads by"));
    drop(segments);

    let segments = Segments::open(disk.clone(), folder.path(), OPTIONS).unwrap();
    segments.keep(places[1]).unwrap();
    assert_eq!(segments.stats().live_bytes, places[1].block_bytes());
    assert_eq!(segments.read(places[1]).unwrap(), body(1));
    let newest = *segments.numbers().last().unwrap();
    for number in segments.numbers() {
        segments.remove(number).unwrap();
    }
    drop(segments);
    let segments = Segments::open(disk, folder.path(), OPTIONS).unwrap();
    assert!(matches!(segments.read(places[1]), Err(SegmentError::Missing { .. })));
    assert_eq!(segments.append(b"x", Purpose::New).unwrap().segment, newest + 1);
    // The emptied segment was kept for its number. Only the owner removes it, because another process may be reading
    // the folder.
    assert_eq!(segments.numbers(), [newest, newest + 1]);
    let emptied = segments.candidates()[0];
    assert_eq!((emptied.segment, emptied.live_bytes), (newest, 0));
    segments.remove(newest).unwrap();
    assert_eq!(segments.numbers(), [newest + 1]);
}

#[test]
fn sizes_that_do_not_go_together_are_refused() {
    let disk = Arc::new(RecordingDisk::new());
    let refused = |options| Segments::open(disk.clone(), Path::new(DIR), options).err().unwrap().to_string();
    assert!(refused(SegmentOptions { segment_bytes: 1000, ..OPTIONS }).contains("64 KiB"));
    assert!(refused(SegmentOptions { write_bytes: 100, ..OPTIONS }).contains("multiple of 4096"));
    assert!(refused(SegmentOptions { limit_bytes: 1000, ..OPTIONS }).contains("four segments"));
}

#[test]
fn a_segment_that_was_cut_to_nothing_is_the_first_to_be_cleaned() {
    const SEGMENTS: u64 = 30;
    let disk = RecordingDisk::new();
    let options = SegmentOptions { limit_bytes: u64::MAX, ..OPTIONS };
    let open = || Segments::salvage(Arc::new(disk.clone()), Path::new(DIR), options).unwrap();
    let (segments, _) = open();
    let mut places = Vec::new();
    for _ in 0..SEGMENTS {
        places.push([(); 31].map(|()| segments.append(&[1; 1000], Purpose::New).unwrap()));
        segments.close().unwrap();
    }
    let cut = places[places.len() / 2][0].segment;
    disk.put(&segments.path_of(cut), Vec::new());
    drop(segments);

    let (segments, damaged) = open();
    assert_eq!(damaged.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [cut]);
    segments.mend(cut).unwrap();
    let mut shares = vec![(0, cut)];
    for (i, places) in (0..SEGMENTS).zip(&places).filter(|(_, places)| places[0].segment != cut) {
        let live = 1 + i * 7 % SEGMENTS;
        places[..live as usize].iter().for_each(|place| segments.keep(*place).unwrap());
        shares.push((live, places[0].segment));
    }
    shares.sort_unstable();
    let candidates = segments.candidates();
    let found = candidates.iter().map(|candidate| candidate.segment);
    assert!(found.eq(shares.into_iter().map(|(_, segment)| segment)), "{candidates:?}");
    let bytes = |segment| disk.contents(&segments.path_of(segment)).unwrap().len() as u64;
    assert!(candidates.iter().all(|candidate| candidate.allocated_bytes == bytes(candidate.segment)));
}

/// A caller that needs the body has to learn that the medium fails, and not that somebody took the file.
#[test]
fn a_body_in_a_file_that_was_not_opened_names_the_fault_of_the_file() {
    let disk = RecordingDisk::new();
    let segments = open(Arc::new(disk.clone())).unwrap();
    let place = segments.append(&body(1), Purpose::New).unwrap();
    segments.close().unwrap();
    let path = segments.path_of(place.segment);
    drop(segments);
    let failing = FailingDisk::that_does_not_open(Arc::new(disk), move |other| other == path);
    let (segments, damaged) = Segments::salvage(Arc::new(failing), Path::new(DIR), OPTIONS).unwrap();
    let [(segment, fault)] = damaged.as_slice() else { panic!("{damaged:?}") };
    assert_eq!(*segment, place.segment);
    assert!(matches!(fault, SegmentError::Damaged { .. }), "{fault}");
    assert_eq!(segments.read(place), Err(fault.clone()));
}
