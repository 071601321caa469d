//! Plain simulators of replacement policies, for records of one size.

use std::collections::{HashMap, VecDeque};

/// A cache that is asked for one key after another.
pub(crate) trait Cache {
    /// Asks for `key`, and puts it if it is not there; whether it was.
    fn request(&mut self, key: u64) -> bool;
}

/// No node.
const NONE: usize = usize::MAX;

/// Queues of keys, any of which can be taken out in constant time.
struct Queues<const N: usize> {
    nodes: Vec<Node>,
    places: HashMap<u64, usize>,
    free: Vec<usize>,
    ends: [Ends; N],
}

struct Node {
    key: u64,
    queue: usize,
    newer: usize,
    older: usize,
    reads: u8,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: usize,
    oldest: usize,
    len: usize,
}

impl<const N: usize> Queues<N> {
    fn new() -> Self {
        let ends = [Ends { newest: NONE, oldest: NONE, len: 0 }; N];
        Self { nodes: Vec::new(), places: HashMap::new(), free: Vec::new(), ends }
    }

    fn len(&self, queue: usize) -> usize {
        self.ends[queue].len
    }

    /// The oldest of a queue, which is not empty.
    fn oldest(&self, queue: usize) -> usize {
        self.ends[queue].oldest
    }

    fn push(&mut self, key: u64, queue: usize) {
        let node = Node { key, queue, newer: NONE, older: NONE, reads: 0 };
        let at = self.free.pop().unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        self.places.insert(key, at);
        self.link(at, queue);
    }

    /// Makes a node the newest of a queue.
    fn renew(&mut self, at: usize, queue: usize) {
        self.unlink(at);
        self.link(at, queue);
    }

    /// Takes a node out and returns its key.
    fn remove(&mut self, at: usize) -> u64 {
        self.unlink(at);
        let key = self.nodes[at].key;
        self.places.remove(&key);
        self.free.push(at);
        key
    }

    fn link(&mut self, at: usize, queue: usize) {
        let ends = &mut self.ends[queue];
        let node = &mut self.nodes[at];
        (node.queue, node.older, node.newer) = (queue, ends.newest, NONE);
        let before = std::mem::replace(&mut ends.newest, at);
        ends.len += 1;
        match before {
            NONE => ends.oldest = at,
            before => self.nodes[before].newer = at,
        }
    }

    fn unlink(&mut self, at: usize) {
        let Node { queue, newer, older, .. } = self.nodes[at];
        match newer {
            NONE => self.ends[queue].newest = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NONE => self.ends[queue].oldest = newer,
            older => self.nodes[older].newer = newer,
        }
        self.ends[queue].len -= 1;
    }
}

/// The least recently used goes.
pub(crate) struct Lru {
    capacity: usize,
    queue: Queues<1>,
}

impl Lru {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), queue: Queues::new() }
    }
}

impl Cache for Lru {
    fn request(&mut self, key: u64) -> bool {
        if let Some(at) = self.queue.places.get(&key) {
            self.queue.renew(*at, 0);
            return true;
        }
        if self.queue.len(0) >= self.capacity {
            self.queue.remove(self.queue.oldest(0));
        }
        self.queue.push(key, 0);
        false
    }
}

const SMALL: usize = 0;
const MAIN: usize = 1;

/// S3-FIFO (J. Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1).
pub(crate) struct S3Fifo {
    capacity: usize,
    small: usize,
    /// Reads that lead from the small queue to the main one.
    reads_wanted: u8,
    queues: Queues<2>,
    ghosts: Ghosts,
}

/// Keys that went from the small queue, as many as the main one holds.
#[derive(Default)]
struct Ghosts {
    capacity: usize,
    added: u64,
    queue: VecDeque<(u64, u64)>,
    numbers: HashMap<u64, u64>,
}

impl Ghosts {
    fn put(&mut self, key: u64) {
        self.added += 1;
        self.numbers.insert(key, self.added);
        self.queue.push_back((key, self.added));
        if self.queue.len() > self.capacity
            && let Some((key, number)) = self.queue.pop_front()
            && self.numbers.get(&key) == Some(&number)
        {
            self.numbers.remove(&key);
        }
    }
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize, reads_wanted: u8) -> Self {
        let capacity = capacity.max(2);
        let small = (capacity / 10).max(1);
        let ghosts = Ghosts { capacity: capacity - small, ..Ghosts::default() };
        Self { capacity, small, reads_wanted, queues: Queues::new(), ghosts }
    }

    fn evict(&mut self) {
        if self.queues.len(SMALL) < self.small {
            return self.evict_main();
        }
        while self.queues.len(SMALL) > 0 {
            let at = self.queues.oldest(SMALL);
            if self.queues.nodes[at].reads < self.reads_wanted {
                let key = self.queues.remove(at);
                return self.ghosts.put(key);
            }
            self.queues.nodes[at].reads = 0;
            self.queues.renew(at, MAIN);
            if self.queues.len(MAIN) > self.capacity - self.small {
                return self.evict_main();
            }
        }
    }

    fn evict_main(&mut self) {
        while self.queues.len(MAIN) > 0 {
            let at = self.queues.oldest(MAIN);
            if self.queues.nodes[at].reads == 0 {
                self.queues.remove(at);
                return;
            }
            self.queues.nodes[at].reads -= 1;
            self.queues.renew(at, MAIN);
        }
    }
}

impl Cache for S3Fifo {
    fn request(&mut self, key: u64) -> bool {
        if let Some(at) = self.queues.places.get(&key) {
            let reads = &mut self.queues.nodes[*at].reads;
            *reads = (*reads + 1).min(3);
            return true;
        }
        while self.queues.len(SMALL) + self.queues.len(MAIN) >= self.capacity {
            self.evict();
        }
        let queue = if self.ghosts.numbers.remove(&key).is_some() { MAIN } else { SMALL };
        self.queues.push(key, queue);
        false
    }
}

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// W-TinyLFU (G. Einziger, R. Friedman and B. Manes, ACM Transactions on Storage 2017): a window of 1 %, of whose
/// oldest records the more frequent stay, in a segmented LRU with four fifths protected.
pub(crate) struct WTinyLfu {
    window: usize,
    main: usize,
    queues: Queues<3>,
    sketch: Sketch,
}

/// Counts of requests: a count-min sketch with conservative update, of four rows that are halved now and then.
struct Sketch {
    counts: Vec<u8>,
    width: usize,
    added: usize,
    period: usize,
}

impl Sketch {
    fn new(capacity: usize) -> Self {
        let width = (2 * capacity).next_power_of_two();
        Self { counts: vec![0; 4 * width], width, added: 0, period: 10 * capacity }
    }

    fn places(&self, key: u64) -> [usize; 4] {
        std::array::from_fn(|row| {
            let mut hash = (key + row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * row as u64);
            hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            row * self.width + (hash ^ hash >> 32) as usize % self.width
        })
    }

    fn estimate(&self, key: u64) -> u8 {
        self.places(key).into_iter().map(|place| self.counts[place]).min().unwrap_or(0)
    }

    fn add(&mut self, key: u64) {
        let least = self.estimate(key);
        if least < 15 {
            for place in self.places(key) {
                self.counts[place] = self.counts[place].max(least + 1);
            }
        }
        self.added += 1;
        if self.added == self.period {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.added /= 2;
        }
    }
}

impl WTinyLfu {
    pub(crate) fn new(capacity: usize) -> Self {
        let window = (capacity / 100).max(1);
        let main = capacity.saturating_sub(window).max(2);
        Self { window, main, queues: Queues::new(), sketch: Sketch::new(capacity.max(1)) }
    }

    fn evict_from_window(&mut self) {
        let candidate = self.queues.oldest(WINDOW);
        if self.queues.len(PROBATION) + self.queues.len(PROTECTED) >= self.main {
            let segment = if self.queues.len(PROBATION) > 0 { PROBATION } else { PROTECTED };
            let victim = self.queues.oldest(segment);
            let [new, old] = [candidate, victim].map(|at| self.sketch.estimate(self.queues.nodes[at].key));
            if new <= old {
                self.queues.remove(candidate);
                return;
            }
            self.queues.remove(victim);
        }
        self.queues.renew(candidate, PROBATION);
    }
}

impl Cache for WTinyLfu {
    fn request(&mut self, key: u64) -> bool {
        self.sketch.add(key);
        if let Some(at) = self.queues.places.get(&key).copied() {
            if self.queues.nodes[at].queue == WINDOW {
                self.queues.renew(at, WINDOW);
            } else {
                self.queues.renew(at, PROTECTED);
                if self.queues.len(PROTECTED) > self.main * 4 / 5 {
                    self.queues.renew(self.queues.oldest(PROTECTED), PROBATION);
                }
            }
            return true;
        }
        self.queues.push(key, WINDOW);
        if self.queues.len(WINDOW) > self.window {
            self.evict_from_window();
        }
        false
    }
}
