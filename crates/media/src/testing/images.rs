//! Builds the states that a power cut may leave of a recorded run.
//!
//! At each position of the trace, everything that was synced before is there. Every other operation has its own *fate*.
//! A write may be lost, whole, or torn. A new length, and the creation, renaming or removal of a file, may be lost or
//! whole. Fates are independent: a later write may be there without an earlier one, across files and within one.

use super::recording::{Contents, Operation, RecordingDisk};
use std::path::Path;

/// The units in which writes tear: those that memory, an old disk and a page cache write at once.
const UNITS_BYTES: [u64; 3] = [8, 512, 4096];

/// A recorded run.
#[derive(Debug, Clone)]
pub struct Images {
    start: Contents,
    trace: Vec<Operation>,
}

/// The state of the disk after a power cut.
#[derive(Debug)]
pub struct CrashImage {
    /// The disk. It records further operations, so that a second power cut can follow.
    pub disk: RecordingDisk,
    /// Operations before the cut; compare with [`RecordingDisk::position`].
    pub position: usize,
    /// The fates of the operations that were not synced, for the message of a failing test.
    pub what: String,
}

/// The fate of an operation that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Whole,
    /// The bytes before this offset of the file are there.
    Cut(u64),
    /// For each unit of this many bytes, a bit of the hash tells whether the unit is there.
    Holes {
        unit_bytes: u64,
        seed: u64,
    },
}

impl Images {
    pub(super) fn new(start: Contents, trace: Vec<Operation>) -> Images {
        Images { start, trace }
    }

    /// How many images [`Images::all_from`] has, at most `u128::MAX`.
    pub fn count_from(&self, position: usize) -> u128 {
        let mut cursor = Cursor::at(self, position);
        let mut count = cursor.count();
        while cursor.advance() {
            count = count.saturating_add(cursor.count());
        }
        count
    }

    /// Every image at a position and later ones, writes torn at every 8 bytes (and so at every larger unit): for short
    /// runs.
    pub fn all_from(&self, position: usize) -> impl Iterator<Item = CrashImage> + '_ {
        let mut cursor = Cursor::at(self, position);
        let mut index = 0;
        std::iter::from_fn(move || {
            while index == cursor.count() {
                if !cursor.advance() {
                    return None;
                }
                index = 0;
            }
            index += 1;
            Some(cursor.build(&cursor.fates_of(index - 1)))
        })
    }

    /// `count` images, spread evenly over all positions; the same ones for the same seed.
    ///
    /// In addition to the fates of [`Images::all_from`], writes may be torn with holes. With several images at each
    /// position, the first has everything, the second only what was synced. With fewer images, chance decides.
    pub fn sample(&self, seed: u64, count: usize) -> impl Iterator<Item = CrashImage> + '_ {
        self.sample_from(0, seed, count)
    }

    /// The same over a position and later ones.
    pub fn sample_from(
        &self,
        first: usize,
        seed: u64,
        count: usize,
    ) -> impl Iterator<Item = CrashImage> + '_ {
        let mut cursor = Cursor::at(self, first);
        let positions = self.trace.len() + 1 - first;
        let is_sparse = count < 3 * positions;
        let mut at_position = 0;
        (0..count).map(move |index| {
            let position = first + (index as u128 * positions as u128 / count as u128) as usize;
            while cursor.position < position {
                cursor.advance();
                at_position = 0;
            }
            let mut random = Random(seed ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let style = if is_sparse { random.below(5) as usize } else { at_position };
            let fates = cursor.random_fates(style, &mut random);
            at_position += 1;
            cursor.build(&fates)
        })
    }
}

/// A position of the trace, with the durable state there.
struct Cursor<'a> {
    trace: &'a [Operation],
    position: usize,
    durable: Contents,
    /// Operations before the position that were not synced, in their order.
    pending: Vec<&'a Operation>,
}

impl<'a> Cursor<'a> {
    fn at(images: &'a Images, position: usize) -> Cursor<'a> {
        let (trace, durable) = (&images.trace, images.start.clone());
        let mut cursor = Cursor { trace, position: 0, durable, pending: Vec::new() };
        while cursor.position < position && cursor.advance() {}
        cursor
    }

    fn advance(&mut self) -> bool {
        let Some(operation) = self.trace.get(self.position) else { return false };
        self.position += 1;
        let durable = &mut self.durable;
        match operation {
            Operation::SyncData { file: synced } => self.pending.retain(|pending| match pending {
                Operation::Write { file, .. } | Operation::SetLen { file, .. } if file == synced => {
                    durable.apply(pending);
                    false
                }
                _ => true,
            }),
            Operation::SyncDir { dir } => self.pending.retain(|pending| match pending {
                Operation::Create { path, .. }
                | Operation::CreateDir { path }
                | Operation::Remove { path }
                | Operation::Rename { from: path, .. }
                    if path.parent() == Some(dir) =>
                {
                    durable.apply(pending);
                    false
                }
                _ => true,
            }),
            // The writes are whole or lost, by chance, and no later sync changes that.
            Operation::Forget { file: forgotten } => {
                let mut random = Random(self.position as u64);
                self.pending.retain(|pending| match pending {
                    Operation::Write { file, .. } if file == forgotten => {
                        if random.below(2) == 0 {
                            durable.apply(pending);
                        }
                        false
                    }
                    _ => true,
                });
            }
            change => self.pending.push(change),
        }
        true
    }

    fn count(&self) -> u128 {
        let fates = self.pending.iter().map(|operation| u128::from(fates(operation)));
        fates.fold(1, u128::saturating_mul)
    }

    /// The fates with this number, each operation a digit of it.
    fn fates_of(&self, mut index: u128) -> Vec<Fate> {
        let digit = |operation: &&Operation| {
            let base = u128::from(fates(operation));
            let digit = (index % base) as u64;
            index /= base;
            match (digit, operation) {
                (0, _) => Fate::Lost,
                (cut, Operation::Write { offset, .. }) if cut > 1 => Fate::Cut((offset / 8 + cut - 1) * 8),
                _ => Fate::Whole,
            }
        };
        self.pending.iter().map(digit).collect()
    }

    fn random_fates(&self, index: usize, random: &mut Random) -> Vec<Fate> {
        let count = self.pending.len() as u64;
        let kept = random.below(count + 1);
        let style = match index {
            0 => 0,
            1 => 1,
            _ => 2 + random.below(3),
        };
        let fate = |(at, operation): (u64, &&Operation)| match style {
            0 => Fate::Whole,
            1 => Fate::Lost,
            // Operations are kept in order up to one, which may be torn.
            2 if at < kept => Fate::Whole,
            2 if at == kept => torn(operation, random),
            2 => Fate::Lost,
            // Each operation has its own fate; the second kind tears every write.
            3 if random.below(2) == 0 => Fate::Lost,
            3 => Fate::Whole,
            _ if random.below(4) == 0 => Fate::Lost,
            _ => torn(operation, random),
        };
        (0..).zip(&self.pending).map(fate).collect()
    }

    fn build(&self, fates: &[Fate]) -> CrashImage {
        let mut contents = self.durable.clone();
        for (operation, fate) in self.pending.iter().zip(fates) {
            apply(&mut contents, operation, *fate);
        }
        // Files without a name are gone, and so are files in a folder without a name.
        let Contents { dirs, names, files } = &mut contents;
        for (operation, fate) in self.pending.iter().zip(fates) {
            if let (Operation::CreateDir { path: lost }, Fate::Lost) = (operation, fate) {
                dirs.retain(|dir| !dir.starts_with(lost));
                names.retain(|name, _| !name.starts_with(lost));
            }
        }
        files.retain(|file, _| names.values().any(|named| named == file));
        let what = format!("before operation {}: {}", self.position, describe(&self.pending, fates));
        CrashImage { disk: RecordingDisk::with_contents(contents), position: self.position, what }
    }
}

/// How many fates [`Cursor::fates_of`] tells apart.
fn fates(operation: &Operation) -> u64 {
    match operation {
        Operation::Write { offset, bytes, .. } => {
            let cuts = (offset + bytes.len() as u64).div_ceil(8) - offset / 8 - 1;
            2 + cuts
        }
        _ => 2,
    }
}

fn torn(operation: &Operation, random: &mut Random) -> Fate {
    let Operation::Write { offset, bytes, .. } = operation else {
        return if random.below(2) == 0 { Fate::Lost } else { Fate::Whole };
    };
    let unit_bytes = UNITS_BYTES[random.below(3) as usize];
    if random.below(2) == 0 {
        return Fate::Holes { unit_bytes, seed: random.next() };
    }
    let units = (offset + bytes.len() as u64).div_ceil(unit_bytes) - offset / unit_bytes;
    Fate::Cut((offset / unit_bytes + random.below(units + 1)) * unit_bytes)
}

fn apply(contents: &mut Contents, operation: &Operation, fate: Fate) {
    let (Operation::Write { file, offset, bytes }, Fate::Cut(_) | Fate::Holes { .. }) = (operation, fate)
    else {
        if fate != Fate::Lost {
            contents.apply(operation);
        }
        return;
    };
    match fate {
        Fate::Cut(end) => {
            let kept = end.saturating_sub(*offset).min(bytes.len() as u64) as usize;
            contents.write(*file, *offset as usize, &bytes[..kept]);
        }
        Fate::Holes { unit_bytes, seed } => {
            let mut at = *offset;
            let end = offset + bytes.len() as u64;
            while at < end {
                let unit = at / unit_bytes;
                let unit_end = ((unit + 1) * unit_bytes).min(end);
                if Random(seed ^ unit).next() & 1 == 1 {
                    let piece = &bytes[(at - offset) as usize..(unit_end - offset) as usize];
                    contents.write(*file, at as usize, piece);
                }
                at = unit_end;
            }
        }
        Fate::Lost | Fate::Whole => {}
    }
}

fn describe(pending: &[&Operation], fates: &[Fate]) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let operation = |operation: &Operation| match operation {
        Operation::Create { path, .. } => format!("create {}", name(path)),
        Operation::Rename { from, to, .. } => format!("rename {} {}", name(from), name(to)),
        Operation::Remove { path } => format!("remove {}", name(path)),
        Operation::Write { file, offset, bytes } => format!("write {file} {offset}+{}", bytes.len()),
        Operation::SetLen { file, len } => format!("length {file} {len}"),
        Operation::CreateDir { path } => format!("folder {}", name(path)),
        Operation::SyncData { .. } | Operation::SyncDir { .. } | Operation::Forget { .. } => String::new(),
    };
    let each = pending.iter().zip(fates).map(|(pending, fate)| format!("{} {fate:?}", operation(pending)));
    each.collect::<Vec<_>>().join("; ")
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Caching, Disk, write_all_at};

    /// A file of 16 bytes of ones: created, written, synced, its name synced, then 8 bytes overwritten.
    fn run() -> RecordingDisk {
        let disk = RecordingDisk::new();
        let file = disk.create(Path::new("/d/a"), Caching::Cached).unwrap();
        write_all_at(&*file, 0, &[1; 16]).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write_all_at(&*file, 4, &[2; 8]).unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        disk
    }

    #[test]
    fn every_fate_of_every_operation_is_there_once() {
        let images = run().images();
        // Nothing; creation; with a write of 16 bytes (3 fates); synced; named; a write across one boundary; with a
        // rename.
        assert_eq!(images.count_from(0), 1 + 2 + 2 * 3 + 2 + 1 + 3 + 3 * 2);
        let mut last = Vec::new();
        for image in images.all_from(0).filter(|image| image.position == 6) {
            let path = image.disk.paths();
            assert_eq!(path.len(), 1);
            last.push((path[0].clone(), image.disk.contents(&path[0]).unwrap()));
        }
        last.sort();
        last.dedup();
        assert_eq!(last.len(), 6);
        let torn = [vec![1; 4], vec![2; 4], vec![1; 8]].concat();
        assert!(last.contains(&("/d/b".into(), torn)));
        assert_eq!(images.all_from(0).count() as u128, images.count_from(0));
    }

    #[test]
    fn what_was_synced_is_never_lost() {
        let images = run().images();
        for image in images.all_from(0).chain(images.sample(1, 500)) {
            if image.position >= 4 {
                let path = image.disk.paths();
                assert_eq!(path.len(), 1, "{}", image.what);
                let bytes = image.disk.contents(&path[0]).unwrap();
                assert_eq!((bytes.len(), bytes[0], bytes[15]), (16, 1, 1), "{}", image.what);
            }
        }
    }

    #[test]
    fn what_a_failed_sync_forgot_is_seen_until_the_power_is_cut() {
        let mut kept = 0;
        for writes in 0..8 {
            let disk = run();
            disk.sync_dir(Path::new("/d")).unwrap();
            let file = disk.open(Path::new("/d/b"), Caching::Cached).unwrap();
            file.sync_data().unwrap();
            (0..writes).for_each(|_| write_all_at(&*file, 0, &[3; 4]).unwrap());
            disk.fail_sync_forgetfully(0);
            assert!(file.sync_data().is_err());
            let killed = disk.killed();
            assert_eq!(killed.contents(Path::new("/d/b")), disk.contents(Path::new("/d/b")));
            let file = killed.open(Path::new("/d/b"), Caching::Cached).unwrap();
            write_all_at(&*file, 12, &[4; 4]).unwrap();
            file.sync_data().unwrap();
            let synced = killed.position();
            let images = killed.images();
            for image in images.all_from(synced) {
                let bytes = image.disk.contents(Path::new("/d/b")).unwrap();
                assert_eq!(bytes[12..], [4; 4], "a later write and sync are what they were");
                assert!(bytes[..4] == [1; 4] || bytes[..4] == [3; 4]);
                kept += usize::from(bytes[0] == 3);
            }
        }
        assert!((1..7).contains(&kept), "{kept}");
    }

    #[test]
    fn a_folder_may_be_lost_until_the_one_above_is_synced() {
        let make = |disk: &RecordingDisk| {
            let file = disk.create(Path::new("/d/e/a"), Caching::Cached).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/d/e")).unwrap();
            let files = |image: CrashImage| image.disk.paths().len();
            disk.images().all_from(disk.position()).map(files).collect::<Vec<_>>()
        };
        let disk = RecordingDisk::new();
        disk.create_dir(Path::new("/d/e")).unwrap();
        // Killed between making the folder and syncing the one above.
        let killed = disk.killed_at(disk.position() - 1);
        assert_eq!(make(&killed), [0, 1]);
        // The next process that asks for the folder makes it durable.
        let killed = disk.killed_at(disk.position() - 1);
        killed.create_dir(Path::new("/d/e")).unwrap();
        assert_eq!((make(&killed), make(&disk)), (vec![1], vec![1]));
    }

    #[test]
    fn few_images_are_not_all_whole() {
        let disk = run();
        let images = disk.images();
        let lost = |image: &CrashImage| image.what.contains("Lost");
        assert!((0..40).any(|seed| images.sample(seed, 2).any(|image| lost(&image))));
        assert!((0..40).any(|seed| images.sample(seed, 2).any(|image| !lost(&image))));
    }

    #[test]
    fn a_seed_gives_the_same_images() {
        let images = run().images();
        let whats = |seed| images.sample(seed, 100).map(|image| image.what).collect::<Vec<_>>();
        assert_eq!(whats(7), whats(7));
        assert_ne!(whats(7), whats(8));
    }
}
