//! Finds the tokens that begin at a position: the encoder's index of a dictionary.
//!
//! The tokens form a trie, laid out as a *double array* (J. Aoe, "An efficient digital search algorithm by using a
//! double-array structure", 1989). The child of a node by a byte stands at the slot `base ^ byte`, and a label there
//! says whether the slot holds that child. No two nodes share a base, so eight bits of label are enough. One step down
//! is a shift, an exclusive-or, one load and a comparison.
//!
//! A step has no branch on the data. From a missing child a walk continues in a block where nothing matches. Each node
//! names the longest token on the way to it, so a walk may end anywhere.

use super::TOKEN_BYTES_MAX;
use super::decode::Table;
use super::error::DictionaryError;
use std::cmp::Reverse;
use std::hint::select_unpredictable;

/// Slots that the children of one node lie in: a base and any byte agree above these bits.
const BLOCK: usize = 256;

/// The block in which every label differs from the byte that leads to it, so that no walk goes on from there.
const DEAD: u32 = BLOCK as u32;

/// A token: its number, and its length above that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Token(u32);

impl Token {
    fn new(number: u16, length: usize) -> Token {
        Token(u32::from(number) | (length as u32) << 16)
    }

    #[inline]
    pub(super) fn number(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(super) fn length(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// A node of the trie as it is stored: the longest token on the way to it in the upper half; its base in the 24 bits
/// below, and in the lowest 8 bits the byte that leads to it.
#[derive(Clone, Copy)]
pub(super) struct Unit(u64);

impl Unit {
    const BASE: u64 = 0xffff_ff00;

    fn new(token: Token, base: u32, label: u8) -> Unit {
        Unit(u64::from(token.0) << 32 | u64::from(base) << 8 | u64::from(label))
    }

    /// The longest token on the way to the node.
    #[inline]
    pub(super) fn token(self) -> Token {
        Token((self.0 >> 32) as u32)
    }

    /// Whether no walk goes on from here.
    #[inline]
    pub(super) fn is_end(self) -> bool {
        self.0 & Unit::BASE == u64::from(DEAD) << 8
    }

    /// The node, with no way on.
    #[inline]
    fn ended(self) -> Unit {
        Unit(self.0 & !Unit::BASE | u64::from(DEAD) << 8)
    }
}

/// A double-array trie of all tokens.
pub(super) struct Matcher {
    units: Box<[Unit]>,
    /// For every token the longest shorter token that it begins with; for a single byte, the byte itself.
    shorter: Box<[Token]>,
}

impl Matcher {
    /// Indexes the tokens of `table`: all 256 single bytes, and no token twice.
    pub(super) fn new(table: &Table) -> Result<Matcher, DictionaryError> {
        let trie = Trie::of(table)?;
        let bases = place(&trie);
        let blocks =
            bases.iter().map(|&base| base as usize / BLOCK).max().unwrap_or(0).max(DEAD as usize / BLOCK) + 1;
        let token = |number: u16| Token::new(number, table.length(number));
        let mut matcher = Matcher {
            // Zero is no safe label of a free slot. `fill_free` writes the labels of free slots below.
            units: vec![Unit(0); blocks * BLOCK].into_boxed_slice(),
            shorter: trie.shorter.iter().map(|&number| token(number)).collect(),
        };
        let mut filled = vec![false; blocks * BLOCK];
        for (node, &base) in trie.nodes.iter().zip(&bases) {
            for &(byte, child) in &trie.children[node.children.clone()] {
                let slot = (base ^ u32::from(byte)) as usize;
                matcher.units[slot] =
                    Unit::new(token(trie.nodes[child as usize].number), bases[child as usize], byte);
                filled[slot] = true;
            }
        }
        fill_free(&mut matcher.units, &filled, &bases);
        Ok(matcher)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.units) + size_of_val(&*self.shorter)
    }

    /// The most bytes that the index of `nodes` nodes takes. Noise has wide nodes and leaves a seventh of the slots
    /// free.
    pub(super) fn memory_bytes_of(nodes: usize, tokens: usize) -> usize {
        let slots = (nodes + nodes / 6).next_multiple_of(BLOCK) + 4 * BLOCK;
        slots * size_of::<Unit>() + tokens * size_of::<Token>()
    }

    /// The longest token at the start of `bytes`.
    pub(super) fn longest(&self, bytes: &[u8; TOKEN_BYTES_MAX]) -> Token {
        let mut unit = self.first(bytes[0]);
        for &byte in &bytes[1..] {
            unit = self.child(unit, byte);
        }
        unit.token()
    }

    /// The node of a single byte.
    #[inline]
    pub(super) fn first(&self, byte: u8) -> Unit {
        // SAFETY: single bytes stand in the first block.
        unsafe { *self.units.get_unchecked(usize::from(byte)) }
    }

    /// The node one byte further down, or the same one with no way on.
    ///
    /// A caller that takes one step of several walks after another lets one load while another waits.
    #[inline]
    pub(super) fn child(&self, unit: Unit, byte: u8) -> Unit {
        let slot = (unit.0 as u32 >> 8 ^ u32::from(byte)) as usize;
        // SAFETY: `units` holds whole blocks, and the base of each of them lies within. The base with any lowest 8 bits
        // lies within, too. No other code makes a unit.
        let child = unsafe { *self.units.get_unchecked(slot) };
        select_unpredictable(child.0 as u8 == byte, child, unit.ended())
    }

    /// The longest token that this one begins with; a single byte for a single byte.
    #[inline]
    pub(super) fn shorter(&self, token: Token) -> Token {
        self.shorter[usize::from(token.number())]
    }
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
fn fill_free(units: &mut [Unit], filled: &[bool], bases: &[u32]) {
    let mut in_use = vec![false; units.len()];
    bases.iter().for_each(|&base| in_use[base as usize] = true);
    for slot in (0..units.len()).filter(|&slot| !filled[slot]) {
        let block = slot / BLOCK * BLOCK;
        let unused = (block..block + BLOCK).find(|&base| !in_use[base]);
        // Were all 256 bases of a block in use, all its slots would be filled by children.
        let base = unused.unwrap_or(slot);
        units[slot] = Unit::new(Token::default(), DEAD, (slot ^ base) as u8);
    }
}
