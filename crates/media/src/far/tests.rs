//! Blocks under crashes, damage, threads and a full medium. The medium here is heap memory, so that each of its states
//! can be copied, changed and opened, also under Miri. `tests/suite/far_places.rs` tests the real places.

use std::collections::HashMap;

use super::*;

const ID: u64 = 0x5eed;

fn empty_image(chunks: usize) -> Vec<u8> {
    vec![0; chunks * CHUNK_BYTES]
}

/// A medium over a copy of `image`, as if a file had these contents.
fn open_image(image: &[u8]) -> (Far, Reopened) {
    let head = Head { id: ID, capacity_bytes: image.len() as u64, sealed: false };
    let persistence = Persistence::of_page_cache(tempfile::tempfile().unwrap());
    Far::over(Mapping::of_heap(image), persistence, FarKind::File, head)
}

fn image_of(far: &Far) -> Vec<u8> {
    // SAFETY: the test has one thread here, which writes nothing while the slice lives.
    unsafe { far.mapping.slice(0, far.mapping.bytes()) }.to_vec()
}

fn random_bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// Bytes of all blocks by offset.
fn contents(far: &Far, blocks: &[Block]) -> HashMap<u64, Vec<u8>> {
    blocks.iter().map(|block| (block.offset(), far.get(block).to_vec())).collect()
}

#[test]
fn what_was_put_is_found_again_and_what_was_freed_is_not() {
    let mut random = fastrand::Rng::with_seed(1);
    let (far, _) = open_image(&empty_image(if cfg!(miri) { 2 } else { 48 }));
    // Under Miri, sizes of few slots to a chunk.
    let lens: &[usize] = if cfg!(miri) { &[9000; 3] } else { &[0, 1, 15, 16, 17, 100, 1000, 4096, 70_000] };
    let mut blocks: Vec<Block> =
        lens.iter().map(|&len| far.put(&random_bytes(&mut random, len)).unwrap()).collect();
    far.free(blocks.remove(lens.len() / 2 + 1));
    far.free(blocks.remove(0));
    let image = image_of(&far);
    let (again, reopened) = open_image(&image);
    assert_eq!(contents(&again, &reopened.blocks), contents(&far, &blocks));
    assert_eq!(again.usage(), far.usage());
    assert!(reopened.unreadable.is_empty());
    assert_eq!(image_of(&again), image, "opening changes nothing");
    for block in reopened.blocks {
        again.verify(&block).unwrap();
        again.free(block);
    }
    assert_eq!(again.usage().used_bytes, 0);
}

/// A signal for the thread that waits for the lock of the folder, as a profiler or a timer of the application sends it.
#[test]
#[cfg(not(miri))]
fn a_signal_does_not_keep_a_file_from_being_opened() {
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::AtomicBool;
    static HAS_COME: AtomicBool = AtomicBool::new(false);
    extern "C" fn notes(_: libc::c_int) {
        HAS_COME.store(true, Ordering::Relaxed);
    }
    // SAFETY: a record of integers and pointers, for which zeros are valid; the handler sets an atomic mark, and no
    // other test has one for this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = notes as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    let folder = tempfile::tempdir().unwrap();
    let lock = std::fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    let place = FarPlace::File(folder.path().join("far"));
    let options = FarOptions { place, capacity_bytes: MIN_BYTES, require_dax: false };
    let opening = std::thread::spawn(move || Far::open(&options).map(drop));
    let own = format!(" {} ", std::process::id());
    ziptier_testing::until("the thread waits for the lock", || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|lock| lock.contains("-> FLOCK") && lock.contains(&own))
    });
    // SAFETY: the thread is joined below.
    assert_eq!(unsafe { libc::pthread_kill(opening.as_pthread_t(), libc::SIGUSR2) }, 0);
    ziptier_testing::until("the signal has come", || HAS_COME.load(Ordering::Relaxed));
    drop(lock);
    opening.join().unwrap().unwrap();
}

/// When the machine stops, any subset of the changed eight-byte words may have reached the medium. Cache lines and
/// fences allow fewer states. Every acknowledged block must be there; the block under way must be there whole or not at
/// all.
#[test]
#[cfg(not(miri))]
fn a_crash_loses_no_acknowledged_block_and_invents_none() {
    /// Of each change.
    const IMAGES: u32 = 6;
    let mut random = fastrand::Rng::with_seed(2);
    let (far, _) = open_image(&empty_image(6));
    let mut blocks: Vec<Block> = Vec::new();
    for round in 0..ziptier_testing::count("ZIPTIER_IMAGES", 480) / IMAGES {
        let before = image_of(&far);
        let freed = (!blocks.is_empty() && random.u8(..) < 90)
            .then(|| blocks.swap_remove(random.usize(..blocks.len())));
        let (mut maybe, acknowledged) = (HashMap::new(), contents(&far, &blocks));
        match freed {
            Some(block) => {
                maybe.insert(block.offset(), far.get(&block).to_vec());
                far.free(block);
            }
            None => {
                let len = if random.u8(..) < 20 { CHUNK_BYTES / 2 * 3 } else { 1 << random.u32(..15) };
                let bytes = random_bytes(&mut random, len);
                let Ok(block) = far.put(&bytes) else { continue };
                maybe.insert(block.offset(), bytes);
                blocks.push(block);
            }
        }
        let after = image_of(&far);
        for image in 0..IMAGES {
            let (torn, reopened) = open_image(&torn_image(&mut random, &before, &after));
            let found = contents(&torn, &reopened.blocks);
            for (offset, bytes) in &acknowledged {
                assert_eq!(found.get(offset), Some(bytes), "round {round}, image {image}: block at {offset}");
            }
            for (offset, bytes) in found {
                let known = acknowledged.get(&offset).or_else(|| maybe.get(&offset));
                assert_eq!(known, Some(&bytes), "round {round}, image {image}: block at {offset}");
            }
            keeps_its_blocks_when_used_on(&torn, reopened.blocks, &mut random);
        }
    }
}

/// `before` with some of the words in which `after` differs.
#[cfg(not(miri))]
fn torn_image(random: &mut fastrand::Rng, before: &[u8], after: &[u8]) -> Vec<u8> {
    let share = random.u8(..);
    let mut image = before.to_vec();
    for (word, new) in image.chunks_exact_mut(8).zip(after.chunks_exact(8)) {
        if word != new && random.u8(..) <= share {
            word.copy_from_slice(new);
        }
    }
    image
}

/// After recovery, new blocks of other sizes and a second recovery leave the old blocks as they are.
#[cfg(not(miri))]
fn keeps_its_blocks_when_used_on(far: &Far, mut blocks: Vec<Block>, random: &mut fastrand::Rng) {
    for len in [40, 3000, CHUNK_BYTES / 8 * 9] {
        if let Ok(block) = far.put(&random_bytes(random, len)) {
            blocks.push(block);
        }
    }
    let (again, reopened) = open_image(&image_of(far));
    assert_eq!(contents(&again, &reopened.blocks), contents(far, &blocks));
}

#[test]
#[cfg(not(miri))]
fn a_flipped_bit_is_found_and_costs_one_block_at_most() {
    let mut random = fastrand::Rng::with_seed(3);
    let (far, _) = open_image(&empty_image(4));
    let blocks: Vec<Block> = (0..30).map(|n| far.put(&random_bytes(&mut random, 100 + n)).unwrap()).collect();
    let (clean, whole) = (image_of(&far), contents(&far, &blocks));
    for block in &blocks {
        let first = (block.offset - BLOCK_HEAD_BYTES) * 8;
        for bit in [first, first + 5, first + 70, first + 128, first + 128 + random.usize(..800)] {
            let mut image = clean.clone();
            image[bit / 8] ^= 1 << (bit % 8);
            let (damaged, reopened) = open_image(&image);
            assert_eq!(reopened.unreadable, [block.offset() - BLOCK_HEAD_BYTES as u64], "bit {bit}");
            let found = contents(&damaged, &reopened.blocks);
            assert_eq!(found.len(), whole.len() - 1);
            assert!(found.iter().all(|(offset, bytes)| whole.get(offset) == Some(bytes)));
        }
        // SAFETY: the test's only thread; no slice lives. Damage under a running medium.
        unsafe { *far.mapping.at(block.offset + 3) ^= 4 };
        let sentence = far.verify(block).unwrap_err().to_string();
        assert!(
            sentence.contains(&format!("offset {}, {} bytes", block.offset(), block.len())),
            "{sentence}"
        );
    }
}

#[test]
#[cfg(not(miri))]
fn no_bytes_make_the_walk_panic() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..30 {
        let mut image = empty_image(4);
        for chunk in 1..4 {
            let used = match random.u8(..4) {
                0 => ChunkUse::Slots(32 * random.u32(..2000)),
                1 => ChunkUse::Extent(random.u32(..6)),
                2 => ChunkUse::Extent(u32::MAX),
                _ => ChunkUse::Free,
            };
            let start = chunk * CHUNK_BYTES;
            for at in (start..start + 4096).step_by(8) {
                image[at..at + 8].copy_from_slice(&(random.u64(..) >> random.u32(..64)).to_le_bytes());
            }
            image[start..start + 16].copy_from_slice(&used.encode(ID, chunk));
        }
        let (far, reopened) = open_image(&image);
        assert!(reopened.blocks.is_empty());
        let block = far.put(b"still of use").unwrap();
        assert_eq!(far.get(&block), b"still of use");
    }
}

#[test]
#[cfg(not(miri))]
fn a_full_medium_says_so_and_goes_on_when_a_block_is_freed() {
    let (far, _) = open_image(&empty_image(4));
    let mut blocks = Vec::new();
    let full = loop {
        match far.put(&[7; 10_000]) {
            Ok(block) => blocks.push(block),
            Err(full) => break full,
        }
    };
    let sentence = "far memory is full: 10000 bytes are needed and no free stretch of 1048576 holds them";
    assert_eq!(full.to_string(), sentence);
    assert!(blocks.len() * 10_000 > 675_000, "only {} blocks fit", blocks.len());
    assert!(blocks.iter().all(|block| far.get(block) == [7; 10_000]));
    far.free(blocks.pop().unwrap());
    blocks.push(far.put(&[8; 10_000]).unwrap());
    blocks.into_iter().for_each(|block| far.free(block));
    assert!(far.put(&vec![1; 3 * CHUNK_BYTES]).is_err());
    let block = far.put(&vec![1; 3 * CHUNK_BYTES - CHUNK_HEAD_BYTES - BLOCK_HEAD_BYTES]).unwrap();
    far.free(block);
    let (_, reopened) = open_image(&image_of(&far));
    assert!(reopened.blocks.is_empty() && reopened.unreadable.is_empty(), "{reopened:?}");
}

#[test]
fn many_threads_share_a_medium() {
    let (threads, rounds, shortest) = if cfg!(miri) { (2, 8, 7000) } else { (8, 2000, 0) };
    let (far, _) = open_image(&empty_image(if cfg!(miri) { 3 } else { 32 }));
    let kept: Vec<Block> = std::thread::scope(|scope| {
        let churn = |seed| {
            let (far, mut random) = (&far, fastrand::Rng::with_seed(seed));
            move || {
                let mut mine: Vec<(Block, u8)> = Vec::new();
                for _ in 0..rounds {
                    let fill = random.u8(..);
                    if let Ok(block) = far.put(&vec![fill; shortest + random.usize(..2000)]) {
                        mine.push((block, fill));
                    }
                    if mine.len() > 30 {
                        let (block, fill) = mine.swap_remove(random.usize(..mine.len()));
                        assert!(far.get(&block).iter().all(|&byte| byte == fill));
                        far.free(block);
                    }
                }
                mine.into_iter().map(|(block, _)| block).collect::<Vec<_>>()
            }
        };
        let running: Vec<_> = (0..threads).map(|seed| scope.spawn(churn(seed))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (again, reopened) = open_image(&image_of(&far));
    assert_eq!(contents(&again, &reopened.blocks), contents(&far, &kept));
    assert!(reopened.unreadable.is_empty());
}

#[test]
#[should_panic(expected = "another medium")]
fn a_block_of_another_medium_is_refused() {
    let ((one, _), (other, _)) = (open_image(&empty_image(2)), open_image(&empty_image(2)));
    let block = one.put(&[7; 9000]).unwrap();
    let _ = other.get(&block);
}

#[test]
fn places_are_files_and_nodes() {
    let space = |text: &str| text.parse::<FarOptions>();
    let far = |capacity_bytes, place| Ok(FarOptions { place, capacity_bytes, require_dax: false });
    assert_eq!(space("1GiB:/mnt/far"), far(1 << 30, FarPlace::File("/mnt/far".into())));
    assert_eq!(space("64MiB:a:b"), far(64 << 20, FarPlace::File("a:b".into())));
    assert_eq!(space("2MB:node=1"), far(2_000_000, FarPlace::Node(1)));
    assert_eq!(space("2MB:./node=1"), far(2_000_000, FarPlace::File("./node=1".into())));
    for text in ["", "1GiB", "1GiB:", ":/mnt/far", "1XB:/mnt/far", "1GiB:node=one", "1GiB:node=-1"] {
        assert!(space(text).is_err(), "{text}");
    }
}
