//! A body as bytes on SSD: the generation that it is coded with, 0 for none, and the body as it is.

use super::Below;
use crate::body::{Body, Referents};
use crate::coding::Coding;
use crate::record::{Found, array, key_hash};

const HEADER_BYTES: usize = 8;
const VERSION: u32 = 1;
/// Marks an image whose body needs nothing to be decoded with: generations of blocks begin with 0.
const NO_CODING: u32 = u32::MAX;

/// An image that was read.
pub(crate) struct Image {
    pub(crate) body: Body,
    pub(crate) coding: Option<Coding>,
}

/// The bytes of an image.
pub(crate) fn encode(body: &Body, coding: Option<&Coding>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&coding.map_or(NO_CODING, Coding::generation).to_le_bytes());
    out.extend_from_slice(body.bytes());
}

/// The image in `bytes`, which belongs to `below`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(bytes: &[u8], below: &Below) -> Result<Image, String> {
    let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(format!("an image of {} bytes is none", bytes.len()));
    };
    let version = u32::from_le_bytes(array(header));
    if version != VERSION {
        return Err(format!("the image has version {version}, this program reads version {VERSION}"));
    }
    let generation = u32::from_le_bytes(array(&header[4..]));
    let coding = match below.coding(generation) {
        _ if generation == NO_CODING => None,
        None => return Err(format!("the image is coded with generation {generation}, which is not known")),
        coding => coding.cloned(),
    };
    let referents = Referents {
        tokens: coding.as_ref().is_some_and(|coding| coding.tokens().is_some()),
        blocks: coding.as_ref().is_some_and(|coding| coding.blocks().is_some()),
        larges: 0,
    };
    Ok(Image { body: Body::from_untrusted(body, referents)?, coding })
}

impl Image {
    /// What it holds of `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Found<'_>> {
        let index = self.body.find(key, key_hash(key))?;
        Some(self.body.found(index, self.coding.as_ref()))
    }
}
