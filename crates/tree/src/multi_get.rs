//! The values of several keys in one call, whose waits for memory, for a device and for the SSD overlap.

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::below::Below;
use crate::blocks::{PackedValue, take_values};
use crate::index::GROUP_KEYS;
use crate::large::Large;
use crate::read::{Copied, Looked, Reads, copy_found};
use crate::record::{Meta, Payload};
use crate::tree::Tree;

/// Rounds in which a multi-get tries to see one moment while batches are committed, before it holds commits up.
pub(crate) const MULTI_GET_ROUNDS: usize = 8;

/// Values that a look-up in memory found elsewhere, by the index of their key.
struct Elsewhere {
    large: Vec<(usize, Arc<Large>)>,
    below: Vec<(usize, Arc<Below>)>,
}

/// Values that `Store::multi_get` found for several keys; reuse it from call to call.
#[derive(Debug, Default)]
pub struct Values {
    bytes: Vec<u8>,
    spans: Vec<Option<Span>>,
}

/// The range of a value among the bytes, and its properties. A value that is longer than was asked for has no range.
#[derive(Debug)]
struct Span {
    range: Option<Range<usize>>,
    meta: Meta,
}

impl Values {
    /// The value of the key at `index` in the call. `None` if there was none, if it is longer than
    /// the call asked for, or if there is no such index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let range = self.spans.get(index)?.as_ref()?.range.clone()?;
        Some(&self.bytes[range])
    }

    /// The properties of the value of the key at `index`, however long it is; `None` if there was none.
    pub fn meta(&self, index: usize) -> Option<Meta> {
        Some(self.spans.get(index)?.as_ref()?.meta)
    }

    /// Bytes of memory held for values.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Option<Span>>()
    }

    /// Keys asked for.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no key was asked for.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Forgets all values, and keeps the memory for the next call.
    #[doc(hidden)]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

impl Tree {
    /// Looks all keys up in memory, and says which values lie elsewhere.
    fn look_up_all<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        len_max: u64,
        values: &mut Values,
    ) -> Result<Elsewhere, Error> {
        values.clear();
        let mut large = Vec::new();
        let mut below = Vec::new();
        // Of blocks that a device unpacks, those of a group together.
        let mut packed = Vec::new();
        let guard = self.pin();
        let approached = keys.chunks(GROUP_KEYS).flat_map(|group| self.approach(group, &guard));
        for (key, (leaf, hash)) in keys.iter().zip(approached) {
            let key = key.as_ref();
            let start = values.bytes.len();
            let index = values.spans.len();
            let looked =
                self.look_up_from(leaf, key, hash, &guard, &self.commits, |found| match found.payload {
                    Payload::Packed(value) if value.coding.unpacks_in_batches() => {
                        packed.push((index, value));
                        Copied::Inline(found.meta())
                    }
                    _ => copy_found(found, &mut values.bytes),
                });
            let copied = match looked {
                Looked::Found(copied) => Some(copied),
                Looked::Absent => None,
                Looked::Below(list) => {
                    below.push((index, list));
                    None
                }
            };
            values.spans.push(match copied {
                None => None,
                Some(Copied::Inline(meta)) => {
                    let range = start..values.bytes.len();
                    Some(Span { meta: Meta { len: range.len() as u64, ..meta }, range: Some(range) })
                }
                Some(Copied::Large(share, meta)) => {
                    if meta.len <= len_max {
                        large.push((index, share));
                    }
                    Some(Span { range: None, meta })
                }
                Some(Copied::Damaged(reason)) => {
                    values.clear();
                    return Err(self.damaged(key, reason));
                }
            });
            if packed.len() == GROUP_KEYS {
                self.unpack_all(keys, &mut packed, values)?;
            }
        }
        self.unpack_all(keys, &mut packed, values)?;
        Ok(Elsewhere { large, below })
    }

    /// Fills in the values that lie in these blocks, and empties `packed`.
    fn unpack_all<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        packed: &mut Vec<(usize, PackedValue<'_>)>,
        values: &mut Values,
    ) -> Result<(), Error> {
        let Values { bytes, spans } = values;
        let taken = take_values(packed, |index, value| {
            let value = value.map_err(|reason| self.damaged(keys[index].as_ref(), reason))?;
            let range = bytes.len()..bytes.len() + value.len();
            bytes.extend_from_slice(value);
            if let Some(span) = &mut spans[index] {
                span.meta.len = value.len() as u64;
                span.range = Some(range);
            }
            Ok(())
        });
        taken.inspect_err(|_| values.clear())
    }
}

impl Reads<'_> {
    /// Reads the values of `keys`, as they are at one moment. Of large values longer than `len_max` bytes it reads only
    /// the [`Meta`]. The keys were checked. The caller holds no guard and no lock.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        len_max: u64,
        values: &mut Values,
    ) -> Result<(), Error> {
        for round in 0.. {
            // Held for look-ups in memory alone, which take no lock of a leaf.
            let held = (round >= MULTI_GET_ROUNDS).then(|| self.tree.commits.hold());
            let before = self.tree.commits.version();
            let elsewhere = self.tree.look_up_all(keys, len_max, values)?;
            let is_one_moment = before.is_some() && self.tree.commits.version() == before;
            drop(held);
            // Values on SSD do not change, but a record that lay there may have moved and changed since.
            if is_one_moment
                && (self.read_elsewhere(keys, elsewhere, len_max, values)?
                    || self.tree.commits.version() == before)
            {
                break;
            }
        }
        Ok(())
    }

    /// Reads the values that were not in memory; `false` if a record had to be looked up once more. The caller holds no
    /// guard and no lock.
    fn read_elsewhere<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        Elsewhere { large, below }: Elsewhere,
        len_max: u64,
        values: &mut Values,
    ) -> Result<bool, Error> {
        let lay_there = below.is_empty()
            || self.read_all_below(keys, below, len_max, values).inspect_err(|_| values.clear())?;
        self.read_all_large(keys, &large, values).inspect_err(|_| values.clear())?;
        Ok(lay_there)
    }

    /// Reads large values, given by the index of their key; those on SSD at the same time.
    fn read_all_large<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        large: &[(usize, Arc<Large>)],
        values: &mut Values,
    ) -> Result<(), Error> {
        self.host.note_large_reads(&mut large.iter().map(|(index, share)| (keys[*index].as_ref(), &**share)));
        let Values { bytes, spans } = values;
        let mut start = bytes.len();
        let read = Large::read_several(large.iter().map(|(_, share)| &**share), bytes, |at, end| {
            if let Some(span) = &mut spans[large[at].0] {
                span.range = Some(start..end);
            }
            start = end;
        });
        read.map_err(|(at, reason)| {
            let (index, share) = &large[at];
            self.tree.unread_large(keys[*index].as_ref(), share, reason)
        })
    }

    /// Reads the values that memory says nothing of. See [`Reads::find_all_below`].
    fn read_all_below<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        below: Vec<(usize, Arc<Below>)>,
        len_max: u64,
        values: &mut Values,
    ) -> Result<bool, Error> {
        let Values { bytes, spans } = values;
        self.find_all_below(keys, below, len_max, |index, copied| {
            spans[index] = copied.map(|(value, meta)| {
                let range = value.map(|value| {
                    let start = bytes.len();
                    bytes.extend_from_slice(value);
                    start..bytes.len()
                });
                Span { meta, range }
            });
        })
    }
}
