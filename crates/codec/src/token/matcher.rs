//! Finds the tokens that begin at a position: the encoder's index of a dictionary.
//!
//! The tokens form a trie, laid out as a *double array* (J. Aoe, "An efficient digital search algorithm by using a
//! double-array structure", 1989). The child of a node by a byte stands at the slot `base ^ byte`, and a label there
//! says whether the slot holds that child. No two nodes share a base, so eight bits of label are enough. One step down
//! is a shift, an exclusive-or, one load and a comparison.
//!
//! A walk down takes a fixed number of steps and has no branch on the data. From a missing child it continues in a
//! block where nothing matches. Walks from different positions are independent, so the processor overlaps them.

use super::TOKEN_BYTES_MAX;
use super::decode::Table;
use super::error::DictionaryError;
use std::cmp::Reverse;
use std::hint::select_unpredictable;

/// Slots that the children of one node lie in: a base and any byte agree above these bits.
const BLOCK: usize = 256;

/// The block in which every label differs from the byte that leads to it, so that no walk goes on from there.
const DEAD: u32 = BLOCK as u32;

/// Steps of a walk that are always done; longer tokens take a branch.
const STEPS_MAX: usize = 7;

/// A double-array trie of all tokens.
pub(super) struct Matcher {
    /// The base of the node at a slot in the upper 24 bits, the byte that leads to it in the lowest 8.
    units: Box<[u32]>,
    /// The longest token on the way to the node at a slot.
    numbers: Box<[u16]>,
    /// For every token the longest shorter token that it begins with; for a single byte, the byte itself.
    shorter: Box<[u16]>,
    /// Steps that every walk takes: enough for the longest token, but at most [`STEPS_MAX`].
    steps: usize,
}

/// Bytes that a lookup at `positions` places in a row may read.
pub(super) const fn window_bytes(positions: usize) -> usize {
    positions - 1 + TOKEN_BYTES_MAX
}

impl Matcher {
    /// Indexes the tokens of `table`: all 256 single bytes, and no token twice.
    pub(super) fn new(table: &Table) -> Result<Matcher, DictionaryError> {
        let trie = Trie::of(table)?;
        let bases = place(&trie);
        let blocks =
            bases.iter().map(|&base| base as usize / BLOCK).max().unwrap_or(0).max(DEAD as usize / BLOCK) + 1;
        let mut matcher = Matcher {
            // Zero is no safe label of a free slot. `fill_free` writes the labels of free slots below.
            units: vec![0; blocks * BLOCK].into_boxed_slice(),
            numbers: vec![0; blocks * BLOCK].into_boxed_slice(),
            shorter: trie.shorter.into_boxed_slice(),
            steps: table.length_max().saturating_sub(1).min(STEPS_MAX),
        };
        let mut filled = vec![false; blocks * BLOCK];
        for (node, &base) in trie.nodes.iter().zip(&bases) {
            for &(byte, child) in &trie.children[node.children.clone()] {
                let slot = (base ^ u32::from(byte)) as usize;
                matcher.units[slot] = bases[child as usize] << 8 | u32::from(byte);
                matcher.numbers[slot] = trie.nodes[child as usize].number;
                filled[slot] = true;
            }
        }
        fill_free(&mut matcher.units, &filled, &bases);
        Ok(matcher)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.units) + size_of_val(&*self.numbers) + size_of_val(&*self.shorter)
    }

    /// The most bytes that the index of `nodes` nodes takes. Noise has wide nodes and leaves a seventh of the slots
    /// free.
    pub(super) fn memory_bytes_of(nodes: usize, tokens: usize) -> usize {
        let slots = (nodes + nodes / 6).next_multiple_of(BLOCK) + 4 * BLOCK;
        slots * (size_of::<u32>() + size_of::<u16>()) + tokens * size_of::<u16>()
    }

    /// The longest token at each of the first `N` positions of `bytes`; see [`window_bytes`].
    #[inline]
    pub(super) fn longest<const N: usize>(&self, bytes: &[u8]) -> [u16; N] {
        self.longest_at(bytes, std::array::from_fn(|lane| lane))
    }

    /// The longest token at each of `positions`, behind which `bytes` goes on for at least [`TOKEN_BYTES_MAX`] bytes.
    ///
    /// The walks go down side by side, so that one loads while another waits. The number of steps is a field, because
    /// with a constant the compiler would unroll the loop and run the walks one after the other.
    #[inline]
    pub(super) fn longest_at<const N: usize>(&self, bytes: &[u8], positions: [usize; N]) -> [u16; N] {
        let windows: [&[u8; TOKEN_BYTES_MAX]; N] = positions.map(|at| {
            bytes[at..].first_chunk().expect("a walk may read as many bytes as the longest token has")
        });
        let units = self.units.as_ptr();
        let mut slots: [u32; N] = windows.map(|window| u32::from(window[0]));
        // SAFETY: see `step`; single bytes stand in the first block.
        let mut at: [u32; N] = slots.map(|slot| unsafe { *units.add(slot as usize) });
        for depth in 1..=self.steps {
            for lane in 0..N {
                // SAFETY: `steps` is below `TOKEN_BYTES_MAX`.
                let byte = unsafe { *windows[lane].get_unchecked(depth) };
                // SAFETY: `at` was read from `units`, or leads to the dead block.
                (at[lane], slots[lane]) = unsafe { step(units, at[lane], slots[lane], byte) };
            }
        }
        std::array::from_fn(|lane| {
            if at[lane] >> 8 != DEAD {
                slots[lane] = self.deeper(windows[lane], at[lane], slots[lane]);
            }
            // SAFETY: `numbers` is as long as `units`, and a slot of a walk lies within both.
            unsafe { *self.numbers.get_unchecked(slots[lane] as usize) }
        })
    }

    /// The last slot of a walk that has not ended after `steps`.
    #[inline(never)]
    fn deeper(&self, bytes: &[u8], mut unit: u32, mut slot: u32) -> u32 {
        for &byte in &bytes[self.steps + 1..TOKEN_BYTES_MAX] {
            // SAFETY: as in `longest`.
            (unit, slot) = unsafe { step(self.units.as_ptr(), unit, slot, byte) };
            if unit >> 8 == DEAD {
                break;
            }
        }
        slot
    }

    /// The longest token that this one begins with; a single byte for a single byte.
    #[inline]
    pub(super) fn shorter(&self, number: u16) -> u16 {
        self.shorter[usize::from(number)]
    }
}

/// One step down: the unit and the slot of the child, or the dead block and the slot that it was.
///
/// # Safety
///
/// `units` holds whole blocks, and the base in `unit` lies within them. The base with any lowest 8 bits then lies
/// within them, too.
#[inline(always)]
unsafe fn step(units: *const u32, unit: u32, slot: u32, byte: u8) -> (u32, u32) {
    let next = unit >> 8 ^ u32::from(byte);
    // SAFETY: the caller's promise.
    let child = unsafe { *units.add(next as usize) };
    let hit = child as u8 == byte;
    (select_unpredictable(hit, child, DEAD << 8), select_unpredictable(hit, next, slot))
}

/// A trie of tokens in the order of their bytes, children after their parents.
struct Trie {
    nodes: Vec<Node>,
    /// The children of all nodes: byte and node.
    children: Vec<(u8, u32)>,
    shorter: Vec<u16>,
}

struct Node {
    number: u16,
    children: std::ops::Range<usize>,
}

impl Trie {
    /// Node 0 is the root.
    fn of(table: &Table) -> Result<Trie, DictionaryError> {
        let mut order: Vec<u32> = (0..table.tokens() as u32).collect();
        order.sort_unstable_by_key(|&number| table.token(number as usize));
        let same = order.windows(2).find(|two| table.token(two[0] as usize) == table.token(two[1] as usize));
        if let Some(two) = same {
            return Err(DictionaryError::Duplicate { token: two[0].max(two[1]) as usize });
        }
        let mut trie = Trie {
            nodes: vec![Node { number: 0, children: 0..0 }],
            children: Vec::new(),
            shorter: vec![0; table.tokens()],
        };
        // Nodes whose children are not yet made: the place in `nodes`, the tokens in `order`, the depth.
        let mut open = std::collections::VecDeque::from([(0usize, 0..order.len(), 0usize)]);
        while let Some((node, mut tokens, depth)) = open.pop_front() {
            let mut number = trie.nodes[node].number;
            if depth > 0 && table.token(order[tokens.start] as usize).len() == depth {
                let own = order[tokens.start] as u16;
                trie.shorter[usize::from(own)] = if depth == 1 { own } else { number };
                number = own;
                trie.nodes[node].number = number;
                tokens.start += 1;
            } else if depth == 1 {
                let byte = table.token(order[tokens.start] as usize)[0];
                return Err(DictionaryError::MissingByte { byte });
            }
            let first = trie.children.len();
            while tokens.start < tokens.end {
                let byte = table.token(order[tokens.start] as usize)[depth];
                let run = &order[tokens.clone()];
                let same = run.partition_point(|&number| table.token(number as usize)[depth] <= byte);
                let child = trie.nodes.len();
                trie.nodes.push(Node { number, children: 0..0 });
                trie.children.push((byte, child as u32));
                open.push_back((child, tokens.start..tokens.start + same, depth + 1));
                tokens.start += same;
            }
            trie.nodes[node].children = first..trie.children.len();
            if depth == 0 && trie.children.len() < 256 {
                let byte = (0..=u8::MAX)
                    .find(|&byte| trie.children.get(usize::from(byte)).is_none_or(|c| c.0 != byte));
                return Err(DictionaryError::MissingByte { byte: byte.unwrap_or(u8::MAX) });
            }
        }
        Ok(trie)
    }
}

/// Finds a base for every node: a slot for each child that no other child has, and a base that no other node has.
///
/// Nodes with many children come first, and single children fill the gaps.
fn place(trie: &Trie) -> Vec<u32> {
    let mut bases = vec![DEAD; trie.nodes.len()];
    let mut order: Vec<usize> =
        (0..trie.nodes.len()).filter(|&node| !trie.nodes[node].children.is_empty()).collect();
    order.sort_by_key(|&node| Reverse(trie.nodes[node].children.len()));
    let mut space = Space::default();
    // Block 0 is the root's, whose children are all bytes; block 1 is dead.
    space.add_block();
    space.add_block();
    space.close(DEAD as usize / BLOCK);
    for node in order {
        bases[node] = space.place(&trie.children[trie.nodes[node].children.clone()]);
    }
    bases
}

/// Which slots and bases are taken.
#[derive(Default)]
struct Space {
    slot_taken: Vec<bool>,
    base_taken: Vec<bool>,
    free: Vec<u16>,
    /// Blocks for nodes with several children, and how often each was tried in vain.
    open: Vec<(u32, u8)>,
    /// The block where single children fill the gaps: none before it has one.
    filling: usize,
}

/// A block in which so many nodes found no place is left to nodes with a single child.
const PATIENCE: u8 = 16;

impl Space {
    fn add_block(&mut self) {
        self.open.push((self.free.len() as u32, 0));
        self.free.push(BLOCK as u16);
        self.slot_taken.resize(self.free.len() * BLOCK, false);
        self.base_taken.resize(self.free.len() * BLOCK, false);
    }

    fn close(&mut self, block: usize) {
        self.slot_taken[block * BLOCK..][..BLOCK].fill(true);
        self.base_taken[block * BLOCK..][..BLOCK].fill(true);
        self.free[block] = 0;
    }

    fn place(&mut self, children: &[(u8, u32)]) -> u32 {
        if children.len() == 1 {
            return self.place_single(children);
        }
        let mut at = 0;
        loop {
            let Some(&(block, _)) = self.open.get(at) else {
                self.add_block();
                continue;
            };
            if usize::from(self.free[block as usize]) >= children.len()
                && let Some(base) = self.fit(block as usize * BLOCK, children)
            {
                return base;
            }
            self.open[at].1 += 1;
            if self.open[at].1 >= PATIENCE {
                self.open.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn place_single(&mut self, children: &[(u8, u32)]) -> u32 {
        loop {
            if self.filling == self.free.len() {
                self.add_block();
            }
            if self.free[self.filling] > 0
                && let Some(base) = self.fit(self.filling * BLOCK, children)
            {
                return base;
            }
            self.filling += 1;
        }
    }

    fn fit(&mut self, block: usize, children: &[(u8, u32)]) -> Option<u32> {
        let base = (block..block + BLOCK).find(|&base| {
            !self.base_taken[base]
                && children.iter().all(|&(byte, _)| !self.slot_taken[base ^ usize::from(byte)])
        })?;
        self.base_taken[base] = true;
        for &(byte, _) in children {
            self.slot_taken[base ^ usize::from(byte)] = true;
        }
        self.free[block / BLOCK] -= children.len() as u16;
        Some(base as u32)
    }
}

/// Gives every free slot a label that no base in use leads to.
///
/// A byte leads to a slot only from the base `slot ^ byte`. So the label is a byte whose base no node has.
fn fill_free(units: &mut [u32], filled: &[bool], bases: &[u32]) {
    let mut in_use = vec![false; units.len()];
    bases.iter().for_each(|&base| in_use[base as usize] = true);
    for slot in (0..units.len()).filter(|&slot| !filled[slot]) {
        let block = slot / BLOCK * BLOCK;
        let unused = (block..block + BLOCK).find(|&base| !in_use[base]);
        // Were all 256 bases of a block in use, all its slots would be filled by children.
        let base = unused.unwrap_or(slot);
        units[slot] = DEAD << 8 | (slot ^ base) as u32 & 0xff;
    }
}
