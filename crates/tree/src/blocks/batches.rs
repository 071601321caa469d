//! Blocks side by side, where a device packs and unpacks them.

use ziptier_codec::block::{Begun, BlockError};

use super::{BlockCoding, Effort, NO_MEMORY};

/// A block that is on its way to its frame.
pub enum BegunBlock {
    /// A device has it.
    UnderWay(Begun),
    /// Its contents wait: without a context that the thread keeps, a device gets all blocks of a body at the end.
    LaidOut(Vec<u8>),
}

impl BlockCoding {
    /// Whether blocks packed with this effort are better packed side by side, by a device. Only where every frame is of
    /// one engine.
    pub(crate) fn packs_in_batches(&self, effort: Effort) -> bool {
        self.front.engine.is_asynchronous() && (effort == Effort::Fast || !self.has_background_codec())
    }

    /// Begins to pack a block; the calling thread goes on, and must be the one that finishes it.
    pub fn begin_pack(&self, effort: Effort, contents: &[u8]) -> BegunBlock {
        if !self.options.context_cache {
            return BegunBlock::LaidOut(contents.to_vec());
        }
        let begun = self.with_contexts(|contexts| {
            let context = self.packing(contexts, effort)?;
            Ok(context.begin_pack(self.front.setting.format, contents.to_vec()))
        });
        BegunBlock::UnderWay(begun.expect(NO_MEMORY))
    }

    /// Looks after the blocks that are under way, without waiting: those that take a device several steps go on.
    /// `false` if nothing will happen to blocks that were begun before they are finished.
    pub(crate) fn goes_on(&self, effort: Effort) -> bool {
        let looked = self.with_contexts(|contexts| {
            self.packing(contexts, effort)?.reap();
            Ok(())
        });
        looked.expect(NO_MEMORY);
        self.options.context_cache
    }

    /// The frames of blocks that were begun, in their order.
    pub fn finish_pack(&self, effort: Effort, blocks: Vec<BegunBlock>) -> Vec<Vec<u8>> {
        let finished = self.with_contexts(|contexts| {
            let context = self.packing(contexts, effort)?;
            let mut begin = |block| match block {
                BegunBlock::UnderWay(begun) => begun,
                BegunBlock::LaidOut(contents) => context.begin_pack(self.front.setting.format, contents),
            };
            let begun: Vec<Begun> = blocks.into_iter().map(&mut begin).collect();
            Ok(begun.into_iter().map(|begun| context.finish_pack(begun)).collect())
        });
        finished.expect(NO_MEMORY)
    }

    /// Whether several blocks are better unpacked side by side, by a device. Not where those of two engines lie in a
    /// body.
    pub(crate) fn unpacks_in_batches(&self) -> bool {
        self.front.engine.is_asynchronous() && !self.has_background_codec()
    }

    /// The contents of several blocks, in their order, or what is wrong with each.
    pub(crate) fn unpack_batch(&self, frames: &[&[u8]]) -> Vec<Result<Vec<u8>, String>> {
        let unpacked = self.with_contexts(|contexts| {
            let context = self.front(contexts)?;
            Ok(context.unpack_batch(self.front.setting.format, frames))
        });
        let unpacked = unpacked.unwrap_or_else(|error| vec![Err(error); frames.len()]);
        let rescued = |(block, frame): (_, &&[u8])| match block {
            Err(BlockError::Engine { .. }) => {
                let mut raw = Vec::new();
                self.rescue(frame, &mut raw).map(|()| raw).map_err(|error| error.to_string())
            }
            block => block.map_err(|error| error.to_string()),
        };
        unpacked.into_iter().zip(frames).map(rescued).collect()
    }
}
