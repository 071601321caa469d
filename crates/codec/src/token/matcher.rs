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
use std::sync::Arc;

/// Slots that the children of one node lie in: a base and any byte agree above these bits.
const BLOCK: usize = 256;

/// The base of the first block, in which every label differs from the byte that leads to it: no walk goes on from
/// there.
const DEAD: u32 = 0;

/// The base of the root, in the second block.
const ROOT: u32 = BLOCK as u32;

/// The most slots of a trie: a unit has so many bits for a base.
const SLOTS_MAX: usize = 1 << 20;

/// A token: its number, and its length above that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Token(u32);

impl Token {
    #[inline]
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

    /// One of two tokens, without a branch.
    #[inline]
    pub(super) fn select(is_one: bool, one: Token, other: Token) -> Token {
        Token(select_unpredictable(is_one, one.0, other.0))
    }
}

/// A node of the trie as it is stored: in the upper 20 bits its base, in the 4 bits below the length of the longest
/// token on the way to it, less 1, and in the lowest 8 bits the byte that leads to it.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    const BASE: u32 = 12;
    const LENGTH: u32 = 8;

    fn new(base: u32, length: usize, label: u8) -> Unit {
        Unit(base << Unit::BASE | (length as u32 - 1) << Unit::LENGTH | u32::from(label))
    }

    #[inline]
    fn label(self) -> u8 {
        self.0 as u8
    }

    /// The slot of the child by a byte.
    #[inline]
    fn slot(self, byte: u8) -> u32 {
        self.0 >> Unit::BASE ^ u32::from(byte)
    }

    /// The node, with no way on.
    #[inline]
    fn ended(self) -> Unit {
        // The base is that of the dead block.
        Unit(self.0 & ((1 << Unit::BASE) - 1))
    }
}

/// Where a walk down the trie has come to.
#[derive(Clone, Copy)]
pub(super) struct Node {
    unit: Unit,
    slot: u32,
}

impl Node {
    /// Whether no walk goes on from here.
    #[inline]
    pub(super) fn is_end(self) -> bool {
        self.unit.0 >> Unit::BASE == DEAD
    }

    /// The length of the longest token on the way.
    #[inline]
    pub(super) fn length(self) -> usize {
        (self.unit.0 >> Unit::LENGTH) as usize % TOKEN_BYTES_MAX + 1
    }

    /// One of two nodes, without a branch.
    #[inline]
    pub(super) fn select(is_one: bool, one: Node, other: Node) -> Node {
        Node {
            unit: Unit(select_unpredictable(is_one, one.unit.0, other.unit.0)),
            slot: select_unpredictable(is_one, one.slot, other.slot),
        }
    }
}

/// A double-array trie of all tokens.
pub(super) struct Matcher {
    units: Box<[Unit]>,
    /// The number of the longest token on the way to the node at a slot.
    numbers: Box<[u16]>,
    /// For every token the longest shorter token that it begins with; for a single byte, the byte itself.
    shorter: Box<[u16]>,
    /// The lengths of all tokens, which the table of decoding has, too.
    lengths: Arc<[u8]>,
}

impl Matcher {
    /// Indexes the tokens of `table`: all 256 single bytes, and no token twice.
    pub(super) fn new(table: &Table) -> Result<Matcher, DictionaryError> {
        let trie = Trie::of(table)?;
        let bases = place(&trie);
        let blocks = bases.iter().map(|&base| base as usize / BLOCK + 1).max().unwrap_or(0);
        let slots = blocks * BLOCK;
        if slots > SLOTS_MAX {
            return Err(DictionaryError::TooLarge { slots, slots_max: SLOTS_MAX });
        }
        let mut matcher = Matcher {
            // Zero is no safe label of a free slot. `fill_free` writes the labels of free slots below.
            units: vec![Unit(0); slots].into_boxed_slice(),
            numbers: vec![0; slots].into_boxed_slice(),
            shorter: trie.shorter.into_boxed_slice(),
            lengths: table.lengths(),
        };
        let mut filled = vec![false; slots];
        for (node, &base) in trie.nodes.iter().zip(&bases) {
            for &(byte, child) in &trie.children[node.children.clone()] {
                let slot = (base ^ u32::from(byte)) as usize;
                let number = trie.nodes[child as usize].number;
                matcher.units[slot] = Unit::new(bases[child as usize], table.length(number), byte);
                matcher.numbers[slot] = number;
                filled[slot] = true;
            }
        }
        fill_free(&mut matcher.units, &filled, &bases);
        Ok(matcher)
    }

    /// Bytes of heap, without the lengths, which belong to the table.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.units) + size_of_val(&*self.numbers) + size_of_val(&*self.shorter)
    }

    /// The most bytes that the index of `nodes` nodes takes. Noise has wide nodes and leaves a seventh of the slots
    /// free.
    pub(super) fn memory_bytes_of(nodes: usize, tokens: usize) -> usize {
        let slots = (nodes + nodes / 6).next_multiple_of(BLOCK) + 4 * BLOCK;
        slots * (size_of::<Unit>() + size_of::<u16>()) + tokens * size_of::<u16>()
    }

    /// The longest token at the start of `bytes`.
    pub(super) fn longest(&self, bytes: &[u8; TOKEN_BYTES_MAX]) -> Token {
        let mut node = self.first(bytes[0]);
        for &byte in &bytes[1..] {
            node = self.child(node, byte);
            if node.is_end() {
                break;
            }
        }
        self.token(node)
    }

    /// The node of a single byte.
    #[inline]
    pub(super) fn first(&self, byte: u8) -> Node {
        let slot = ROOT ^ u32::from(byte);
        // SAFETY: single bytes stand in the root's block.
        Node { unit: unsafe { *self.units.get_unchecked(slot as usize) }, slot }
    }

    /// The node one byte further down, or the same one with no way on.
    ///
    /// A caller that takes one step of several walks after another lets one load while another waits.
    #[inline]
    pub(super) fn child(&self, node: Node, byte: u8) -> Node {
        let slot = node.unit.slot(byte);
        // SAFETY: `units` holds whole blocks, and the base of each of them lies within. The base with any lowest 8 bits
        // lies within, too. No other code makes a unit.
        let unit = unsafe { *self.units.get_unchecked(slot as usize) };
        let ended = Node { unit: node.unit.ended(), slot: node.slot };
        Node::select(unit.label() == byte, Node { unit, slot }, ended)
    }

    /// The longest token on the way to a node.
    #[inline]
    pub(super) fn token(&self, node: Node) -> Token {
        // SAFETY: `numbers` is as long as `units`, and the slot of a node lies within both.
        Token::new(unsafe { *self.numbers.get_unchecked(node.slot as usize) }, node.length())
    }

    /// The longest token that this one begins with; a single byte for a single byte.
    #[inline]
    pub(super) fn shorter(&self, token: Token) -> Token {
        // SAFETY: both lists have an entry for each token, and no other code makes a token.
        unsafe {
            let number = *self.shorter.get_unchecked(usize::from(token.number()));
            Token::new(number, usize::from(*self.lengths.get_unchecked(usize::from(number))))
        }
    }
}

/// A trie of tokens in the order of their bytes, children after their parents.
struct Trie {
    nodes: Vec<TrieNode>,
    /// The children of all nodes: byte and node.
    children: Vec<(u8, u32)>,
    shorter: Vec<u16>,
}

struct TrieNode {
    number: u16,
    children: std::ops::Range<usize>,
}

impl Trie {
    /// Node 0 is the root.
    fn of(table: &Table) -> Result<Trie, DictionaryError> {
        let mut order: Vec<u32> = (0..table.tokens() as u32).collect();
        order.sort_unstable_by_key(|&number| table.sort_key(number as usize));
        let same = order.windows(2).find(|two| table.token(two[0] as usize) == table.token(two[1] as usize));
        if let Some(two) = same {
            return Err(DictionaryError::Duplicate { token: two[0].max(two[1]) as usize });
        }
        let mut trie = Trie {
            nodes: vec![TrieNode { number: 0, children: 0..0 }],
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
                trie.nodes.push(TrieNode { number, children: 0..0 });
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
    space.add_block();
    space.close(DEAD as usize / BLOCK);
    for node in order {
        bases[node] = space.place(&trie.children[trie.nodes[node].children.clone()]);
    }
    debug_assert_eq!(bases[0], ROOT, "its children are all bytes, so it comes first");
    bases
}

/// Which slots and bases are taken.
#[derive(Default)]
struct Space {
    blocks: Vec<Block>,
    /// Blocks for nodes with several children, and how often each was tried in vain.
    open: Vec<(u32, u8)>,
    /// The block where single children fill the gaps: none before it has one.
    filling: usize,
}

/// What is free in a block: a bit for each of its slots and bases.
#[derive(Clone, Copy)]
struct Block {
    slots: Bits,
    bases: Bits,
    slots_left: usize,
}

/// A bit for each byte.
type Bits = [u64; BLOCK / 64];

/// The bits in another order: the one of `byte ^ other` where that of `byte` was.
#[inline]
fn reordered(bits: Bits, other: u8) -> Bits {
    /// The lower halves of all groups of two, four and more bits.
    const LOWER: [u64; 6] = [
        0x5555_5555_5555_5555,
        0x3333_3333_3333_3333,
        0x0F0F_0F0F_0F0F_0F0F,
        0x00FF_00FF_00FF_00FF,
        0x0000_FFFF_0000_FFFF,
        0x0000_0000_FFFF_FFFF,
    ];
    std::array::from_fn(|word| {
        let mut bits = bits[word ^ usize::from(other >> 6)];
        for (bit, lower) in LOWER.into_iter().enumerate() {
            if other >> bit & 1 == 1 {
                bits = (bits & lower) << (1 << bit) | bits >> (1 << bit) & lower;
            }
        }
        bits
    })
}

/// A block in which so many nodes found no place is left to nodes with a single child.
const PATIENCE: u8 = 16;

impl Space {
    fn add_block(&mut self) {
        self.open.push((self.blocks.len() as u32, 0));
        self.blocks.push(Block { slots: [u64::MAX; 4], bases: [u64::MAX; 4], slots_left: BLOCK });
    }

    fn close(&mut self, block: usize) {
        self.blocks[block] = Block { slots: [0; 4], bases: [0; 4], slots_left: 0 };
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
            if let Some(base) = self.fit(block as usize, children) {
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
            if self.filling == self.blocks.len() {
                self.add_block();
            }
            if let Some(base) = self.fit(self.filling, children) {
                return base;
            }
            self.filling += 1;
        }
    }

    /// Takes the first base of a block that has a free slot for each child, if there is one.
    fn fit(&mut self, number: usize, children: &[(u8, u32)]) -> Option<u32> {
        let block = &mut self.blocks[number];
        if block.slots_left < children.len() {
            return None;
        }
        let mut fitting = block.bases;
        for &(byte, _) in children {
            let free = reordered(block.slots, byte);
            fitting.iter_mut().zip(free).for_each(|(fitting, free)| *fitting &= free);
        }
        let word = fitting.iter().position(|word| *word != 0)?;
        let base = word * 64 + fitting[word].trailing_zeros() as usize;
        block.bases[word] &= !(1 << (base % 64));
        for &(byte, _) in children {
            let slot = base ^ usize::from(byte);
            block.slots[slot / 64] &= !(1 << (slot % 64));
        }
        block.slots_left -= children.len();
        Some((number * BLOCK + base) as u32)
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
        units[slot] = Unit::new(DEAD, 1, (slot ^ base) as u8);
    }
}
