//! The index: inner nodes of the B+tree, from a key to the leaf that owns it.
//!
//! Not for splitting leaves: `packing` makes the new leaves and links them, and then tells the index.
//!
//! 1. A published node never changes, except for its child pointers, each replaced by one atomic store. A structural
//!    change copies the nodes that it touches.
//! 2. A reader therefore descends without a lock, a version or a retry. It may reach a leaf that a later split has cut,
//!    and then follows the leaf's right sibling.
//! 3. Structural changes are made under one lock, which only they take: one insertion in about fifty.
//! 4. A node keeps the first eight bytes behind its separators' common prefix as integers. A search compares integers,
//!    and whole separators only where those eight bytes are equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crossbeam_epoch::Guard;

use crate::leaf::{LEAF_AND_STATE_BYTES, Leaf};
use crate::memory::{Gauges, allocated_bytes, prefetch};
use crate::numbers::array;
use crate::reclaim::Unreachable;
use crate::sync::{Mutex, interleave};

/// So many children that a node fills an allocator class of half a page.
const FANOUT: usize = 60;
const PREFIX_BYTES_MAX: usize = 32;
/// Keys that are looked up together: about as many misses as a core keeps under way.
pub const GROUP_KEYS: usize = 16;

/// A separator: the lowest key of the child it stands before.
type Separator = Arc<[u8]>;

#[repr(C)]
struct Node {
    /// 0 when the children are leaves.
    level: u8,
    count: u8,
    prefix_len: u8,
    prefix: [u8; PREFIX_BYTES_MAX],
    /// `heads[i]` begins separator `i`; unused ones, and the first, which is never compared, are the maximum.
    heads: [u64; FANOUT],
    children: [AtomicPtr<()>; FANOUT],
    separators: [Option<Separator>; FANOUT],
}

/// The part of a node that a search reads before it knows which child it wants.
const SEARCHED_BYTES: usize = std::mem::offset_of!(Node, children);

/// A child and the lowest key it owns.
#[derive(Clone)]
struct Slot {
    separator: Separator,
    child: *mut (),
}

/// Maps keys to leaves. See the module.
pub struct Index {
    root: AtomicPtr<Node>,
    structure: Mutex<()>,
    gauges: Arc<Gauges>,
}

// SAFETY: nodes are immutable but for atomic child pointers, changes are serialised by `structure`, and nodes and
// leaves are freed by way of the epoch.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

/// The outcome of rewriting a node.
enum Rewritten {
    /// Its copy was stored in its parent's place.
    InPlace,
    /// These take its place in the parent: none, or several.
    Slots(Vec<Slot>),
}

impl Index {
    /// An index of one leaf, which owns every key.
    pub fn new(first: Arc<Leaf>, gauges: Arc<Gauges>) -> Self {
        let slot = Slot { separator: first.low(), child: into_child(first) };
        let root = Node::new(0, &[slot]);
        gauges.index.add(size_of::<Node>());
        Self { root: AtomicPtr::new(Box::into_raw(root)), structure: Mutex::new(()), gauges }
    }

    /// The leaf that owned `key` at some moment during the call, or one to its left.
    #[inline]
    pub fn find<'g>(&self, key: &[u8], _guard: &'g Guard) -> &'g Leaf {
        // SAFETY: nodes and leaves that are reachable under a guard are freed only after it is gone.
        unsafe {
            let mut node = &*self.root.load(Ordering::Acquire);
            loop {
                let child = node.children[node.position(key)].load(Ordering::Acquire);
                if node.level == 0 {
                    return &*child.cast::<Leaf>();
                }
                node = &*child.cast::<Node>();
                // All of it at once, since which child it is comes out only when the heads are there.
                prefetch(std::ptr::from_ref(node).addr(), SEARCHED_BYTES + size_of_val(&node.children));
            }
        }
    }

    /// Whether `leaf` was joined with its left neighbour and is not in the index any more: nobody may own it again.
    pub fn has_let_go_of(&self, leaf: &Leaf, guard: &Guard) -> bool {
        leaf.state(guard).closed && !std::ptr::eq(self.find(&leaf.low(), guard), leaf)
    }

    /// As [`Index::find`] for the first [`GROUP_KEYS`] of `keys`, level by level, so that the waits for memory overlap.
    /// The leaves themselves are on their way into the cache.
    pub(crate) fn find_group<'g, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        _guard: &'g Guard,
    ) -> [Option<&'g Leaf>; GROUP_KEYS] {
        let keys = &keys[..keys.len().min(GROUP_KEYS)];
        if keys.is_empty() {
            return [None; GROUP_KEYS];
        }
        let mut nodes = [self.root.load(Ordering::Acquire).cast::<()>(); GROUP_KEYS];
        let mut positions = [0; GROUP_KEYS];
        loop {
            // SAFETY: as in `find`; all children of the nodes of one level are of the level below.
            let node = |index: usize| unsafe { &*nodes[index].cast::<Node>() };
            let children_are_leaves = node(0).level == 0;
            for (index, (position, key)) in positions.iter_mut().zip(keys).enumerate() {
                *position = node(index).position(key.as_ref());
                prefetch(std::ptr::from_ref(&node(index).children[*position]).addr(), 1);
            }
            let child = |index: usize| node(index).children[positions[index]].load(Ordering::Acquire);
            let children: [*mut (); GROUP_KEYS] =
                std::array::from_fn(
                    |index| if index < keys.len() { child(index) } else { std::ptr::null_mut() },
                );
            let wanted_bytes = if children_are_leaves { 1 } else { SEARCHED_BYTES };
            children.iter().for_each(|child| prefetch(child.addr(), wanted_bytes));
            nodes = children;
            if children_are_leaves {
                // SAFETY: as in `find`; null for what lies behind the keys.
                return nodes.map(|leaf| unsafe { leaf.cast::<Leaf>().as_ref() });
            }
        }
    }

    /// A leaf chosen by `random`, which gives any number; each child of a node is as likely as another.
    pub(crate) fn random_leaf<'g>(&self, mut random: impl FnMut() -> u64, _guard: &'g Guard) -> &'g Leaf {
        // SAFETY: as in `find`.
        unsafe {
            let mut node = &*self.root.load(Ordering::Acquire);
            loop {
                let position = random() as usize % usize::from(node.count);
                let child = node.children[position].load(Ordering::Acquire);
                if node.level == 0 {
                    return &*child.cast::<Leaf>();
                }
                node = &*child.cast::<Node>();
            }
        }
    }

    /// The last leaf, or one to its left.
    pub fn last<'g>(&self, _guard: &'g Guard) -> &'g Leaf {
        // SAFETY: as in `find`.
        unsafe {
            let mut node = &*self.root.load(Ordering::Acquire);
            loop {
                let child = node.children[usize::from(node.count) - 1].load(Ordering::Acquire);
                if node.level == 0 {
                    return &*child.cast::<Leaf>();
                }
                node = &*child.cast::<Node>();
            }
        }
    }

    /// The last leaf whose lowest key is below `key`; `None` when there is none.
    pub fn find_below<'g>(&self, key: &[u8], guard: &'g Guard) -> Option<&'g Leaf> {
        let leaf = self.find(key, guard);
        if &*leaf.low() < key {
            return Some(leaf);
        }
        // `key` is a leaf's lowest: the neighbour to the left lies one child before, on some level.
        // SAFETY: as in `find`.
        unsafe {
            let mut node = &*self.root.load(Ordering::Acquire);
            let mut left: Option<*mut ()> = None;
            let mut left_level = 0;
            loop {
                let position = node.position(key);
                if position > 0 {
                    left = Some(node.children[position - 1].load(Ordering::Acquire));
                    left_level = node.level;
                }
                if node.level == 0 {
                    break;
                }
                node = &*node.children[position].load(Ordering::Acquire).cast::<Node>();
            }
            let mut child = left?;
            for _ in 0..left_level {
                let node = &*child.cast::<Node>();
                child = node.children[usize::from(node.count) - 1].load(Ordering::Acquire);
            }
            Some(&*child.cast::<Leaf>())
        }
    }

    /// Takes the leaf whose lowest key is `removed` out, and puts `added` in, in one step for other changes;
    /// readers may see the steps between. The removed leaf is freed when its last reader is gone.
    pub fn change(&self, removed: Option<&Leaf>, added: Vec<Arc<Leaf>>, guard: &Guard) {
        interleave();
        let structure = self.structure.lock();
        if let Some(leaf) = removed {
            self.apply(&leaf.low(), &Change::Remove, guard);
        }
        for leaf in added {
            let slot = Slot { separator: leaf.low(), child: into_child(leaf) };
            let key = slot.separator.clone();
            self.apply(&key, &Change::Insert(slot), guard);
        }
        drop(structure);
    }

    /// Holds every change up.
    #[cfg(all(any(test, feature = "testing"), not(shuttle), not(miri)))]
    pub fn hold(&self) -> crate::sync::MutexGuard<'_, ()> {
        self.structure.lock()
    }

    fn apply(&self, key: &[u8], change: &Change, guard: &Guard) {
        interleave();
        let root = self.root.load(Ordering::Acquire);
        // SAFETY: the structure lock is held, so the root and everything below it stay reachable.
        let level = unsafe { (*root).level };
        let mut unlinked = Unlinked::default();
        if let Rewritten::Slots(slots) = self.rewrite(root, key, change, &mut unlinked) {
            let new_root = match slots.as_slice() {
                [only] => only.child.cast::<Node>(),
                _ => self.publishable(Node::new(level + 1, &slots)),
            };
            self.root.store(new_root, Ordering::Release);
            unlinked.nodes.push(root);
        }
        self.lower_root(&mut unlinked);
        // Only now is nothing of this reachable for readers that come later.
        unlinked.nodes.into_iter().for_each(|node| self.retire_node(node, guard));
        if let Some(leaf) = unlinked.leaf {
            retire_leaf(leaf, guard);
        }
    }

    /// Applies `change` below `node`. When this returns slots, they take the place of `node` in its parent.
    fn rewrite(&self, node: *mut Node, key: &[u8], change: &Change, unlinked: &mut Unlinked) -> Rewritten {
        // SAFETY: the structure lock is held, so `node` is not retired by anybody else.
        let this = unsafe { &*node };
        let position = this.position(key);
        let mut slots = this.slots();
        if this.level == 0 {
            match change {
                Change::Insert(slot) => slots.insert(position + 1, slot.clone()),
                Change::Remove => {
                    let removed = slots.remove(position);
                    assert_eq!(&*removed.separator, key, "a leaf that is removed is in the index");
                    unlinked.leaf = Some(removed.child);
                }
            }
        } else {
            let child = slots[position].child.cast::<Node>();
            match self.rewrite(child, key, change, unlinked) {
                Rewritten::InPlace => return Rewritten::InPlace,
                Rewritten::Slots(new) => {
                    unlinked.nodes.push(child);
                    if let [only] = new.as_slice()
                        && only.separator == slots[position].separator
                    {
                        this.children[position].store(only.child, Ordering::Release);
                        return Rewritten::InPlace;
                    }
                    slots.splice(position..=position, new);
                }
            }
        }
        let pieces = match slots.len() {
            0 => return Rewritten::Slots(Vec::new()),
            1..=FANOUT => vec![slots.as_slice()],
            count => {
                // Ascending insertion leaves the left node full.
                let appended = position + 2 >= FANOUT;
                let (left, right) = slots.split_at(if appended { count - 2 } else { count / 2 });
                vec![left, right]
            }
        };
        Rewritten::Slots(
            pieces
                .into_iter()
                .map(|piece| Slot {
                    separator: piece[0].separator.clone(),
                    child: self.publishable(Node::new(this.level, piece)).cast(),
                })
                .collect(),
        )
    }

    /// While the root has one child that is a node, that child is the root.
    fn lower_root(&self, unlinked: &mut Unlinked) {
        loop {
            let root = self.root.load(Ordering::Acquire);
            // SAFETY: the structure lock is held.
            let node = unsafe { &*root };
            if node.level == 0 || node.count != 1 {
                return;
            }
            self.root.store(node.children[0].load(Ordering::Acquire).cast(), Ordering::Release);
            unlinked.nodes.push(root);
        }
    }

    fn publishable(&self, node: Box<Node>) -> *mut Node {
        self.gauges.index.add(size_of::<Node>());
        Box::into_raw(node)
    }

    fn retire_node(&self, node: *mut Node, guard: &Guard) {
        let gauges = self.gauges.clone();
        gauges.index.take(size_of::<Node>());
        gauges.retired.add(size_of::<Node>());
        let node = Unreachable::new(node);
        // SAFETY: the node is no longer reachable from the root, so only readers pinned now can hold it.
        unsafe {
            guard.defer_unchecked(move || {
                drop(Box::from_raw(node.into_raw()));
                gauges.retired.take(size_of::<Node>());
            });
        }
    }
}

/// The nodes that a change took out of the index, to be retired once readers can no longer reach them.
#[derive(Default)]
struct Unlinked {
    nodes: Vec<*mut Node>,
    leaf: Option<*mut ()>,
}

enum Change {
    Insert(Slot),
    Remove,
}

fn into_child(leaf: Arc<Leaf>) -> *mut () {
    Arc::into_raw(leaf).cast_mut().cast()
}

fn retire_leaf(child: *mut (), guard: &Guard) {
    let leaf = Unreachable::new(child.cast::<Leaf>());
    // SAFETY: `child` came from `into_child` and left the index, so this is the index's share, released when no
    // reader can hold a reference that is not counted.
    unsafe {
        guard.defer_unchecked(move || {
            drop(Arc::from_raw(leaf.into_raw().cast_const()));
        });
    }
}

impl Node {
    fn new(level: u8, slots: &[Slot]) -> Box<Self> {
        assert!(!slots.is_empty() && slots.len() <= FANOUT, "a node has 1 to 60 children");
        let compared = &slots[1..];
        let mut prefix = [0; PREFIX_BYTES_MAX];
        let mut prefix_len = 0;
        if let (Some(first), Some(last)) = (compared.first(), compared.last()) {
            let shared = first.separator.iter().zip(&*last.separator).take_while(|(a, b)| a == b).count();
            prefix_len = shared.min(PREFIX_BYTES_MAX);
            prefix[..prefix_len].copy_from_slice(&first.separator[..prefix_len]);
        }
        let mut node = Box::new(Self {
            level,
            count: slots.len() as u8,
            prefix_len: prefix_len as u8,
            prefix,
            heads: [u64::MAX; FANOUT],
            children: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            separators: std::array::from_fn(|_| None),
        });
        for (index, slot) in slots.iter().enumerate() {
            node.children[index] = AtomicPtr::new(slot.child);
            node.separators[index] = Some(slot.separator.clone());
            if index > 0 {
                node.heads[index] = head(&slot.separator[prefix_len..]);
            }
        }
        node
    }

    fn slots(&self) -> Vec<Slot> {
        (0..usize::from(self.count))
            .map(|index| Slot {
                separator: self.separators[index].clone().expect("every child has a separator"),
                child: self.children[index].load(Ordering::Acquire),
            })
            .collect()
    }

    /// The child that `key` belongs to: the last whose separator is not above it, or the first.
    #[inline]
    fn position(&self, key: &[u8]) -> usize {
        let count = usize::from(self.count);
        let prefix = &self.prefix[..usize::from(self.prefix_len)];
        let shared = key.len().min(prefix.len());
        match key[..shared].cmp(&prefix[..shared]) {
            std::cmp::Ordering::Equal if key.len() >= prefix.len() => {}
            std::cmp::Ordering::Greater => return count - 1,
            _ => return 0,
        }
        let wanted = head(&key[prefix.len()..]);
        let mut position = self.heads.iter().map(|head| usize::from(*head < wanted)).sum::<usize>();
        while position + 1 < count && self.heads[position + 1] == wanted {
            if self.separators[position + 1].as_deref().is_none_or(|separator| separator > key) {
                break;
            }
            position += 1;
        }
        position
    }
}

/// The first eight bytes as a big-endian integer, zeros behind the end.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    if bytes.len() >= 8 {
        u64::from_be_bytes(array(bytes))
    } else {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        u64::from_be_bytes(padded)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        fn free(node: *mut Node) {
            // SAFETY: the index is going away, so nobody else holds its nodes; each is freed once.
            let node = unsafe { Box::from_raw(node) };
            for slot in node.slots() {
                if node.level == 0 {
                    // SAFETY: `into_child` made this share, and it is released once.
                    drop(unsafe { Arc::from_raw(slot.child.cast_const().cast::<Leaf>()) });
                } else {
                    free(slot.child.cast());
                }
            }
        }
        free(*self.root.get_mut());
    }
}

/// About what a leaf takes besides its keys, with its place in its parent: nodes are two thirds full.
pub const COLD_LEAF_BYTES: usize =
    LEAF_AND_STATE_BYTES + allocated_bytes(size_of::<Node>()) * 3 / (2 * FANOUT);

const _: () = assert!(allocated_bytes(size_of::<Node>()) <= 2048);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::body::Body;
    use crate::leaf::{LeafState, RightSibling};
    use crate::reclaim::Epochs;

    fn leaf(low: &[u8], gauges: &Arc<Gauges>) -> Arc<Leaf> {
        let state = LeafState::new(Body::empty(), None, RightSibling::none());
        Leaf::new(Arc::from(low), state, gauges.clone())
    }

    fn check(index: &Index, epochs: &Epochs, lows: &BTreeMap<Vec<u8>, ()>, key: &[u8]) {
        let guard = epochs.pin();
        let expected = lows.range(..=key.to_vec()).next_back().map(|(low, ())| low.as_slice());
        assert_eq!(Some(&*index.find(key, &guard).low()), expected, "{key:?}");
        let group = index.find_group(&[b"key:", key, b""], &guard).map(|leaf| leaf.map(Leaf::low));
        assert_eq!(group[1].as_deref(), expected, "{key:?}");
        let none: &[&[u8]] = &[];
        assert!(index.find_group(none, &guard).iter().all(Option::is_none));
        assert!(group[0].is_some() && group[2].is_some() && group[3..].iter().all(Option::is_none));
        let below = lows.range(..key.to_vec()).next_back().map(|(low, ())| low.as_slice());
        assert_eq!(index.find_below(key, &guard).map(|leaf| leaf.low()).as_deref(), below, "{key:?}");
    }

    #[test]
    fn the_index_agrees_with_a_btreemap_through_growth_and_shrinkage() {
        let gauges = Arc::new(Gauges::new(None));
        let index = Index::new(leaf(b"", &gauges), gauges.clone());
        let epochs = Epochs::default();
        let mut lows = BTreeMap::from([(Vec::new(), ())]);
        let mut random = fastrand::Rng::with_seed(1);
        let (leaves, probes) = if cfg!(miri) { (63, 0) } else { (6_000, 3) };
        let low = |n: u32| match n % 3 {
            0 => format!("key:{:012}", n / 3 * 100).into_bytes(),
            1 => n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(),
            _ => vec![0; (n as usize / 3) % 90 + 1],
        };
        for growing in [true, false] {
            for n in 0..leaves {
                let guard = epochs.pin();
                let low = low(n);
                if growing && lows.insert(low.clone(), ()).is_none() {
                    index.change(None, vec![leaf(&low, &gauges)], &guard);
                } else if !growing && lows.remove(&low).is_some() {
                    index.change(Some(index.find(&low, &guard)), Vec::new(), &guard);
                }
                // Under Miri a look takes as long as the change.
                if !cfg!(miri) || n.is_multiple_of(30) {
                    check(&index, &epochs, &lows, &low);
                }
                for _ in 0..probes {
                    check(&index, &epochs, &lows, &random.u32(..).to_be_bytes());
                    check(
                        &index,
                        &epochs,
                        &lows,
                        format!("key:{:012}", random.u32(..leaves * 40)).as_bytes(),
                    );
                }
            }
        }
        assert_eq!(lows.len(), 1);
        let guard = epochs.pin();
        assert_eq!(&*index.last(&guard).low(), b"");
    }
}
