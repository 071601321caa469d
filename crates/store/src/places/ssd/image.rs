//! A body as an image on SSD. It is the image of a leaf that has nothing else (`durable::image`), so that one image
//! serves checkpoints, too.

use super::Below;
use crate::body::{Body, Referents};
use crate::coding::Coding;
use crate::durable::{LeafImage, with_raw_values};
use crate::form::Form;
use crate::record::{Found, key_hash};

/// An image that was read.
pub(crate) struct Image {
    pub(crate) body: Body,
    pub(crate) form: Form,
}

/// Replaces the contents of `out` by the bytes of an image. Its body owns its keys from `low` on and has
/// `logical_bytes` of keys and values.
pub(crate) fn encode(low: &[u8], body: &Body, form: &Form, logical_bytes: u64, out: &mut Vec<u8>) {
    let image = LeafImage {
        heated: false,
        loose: 0,
        generation: form.generation(),
        logical_bytes,
        low,
        larges: Vec::new(),
        body: body.bytes(),
        landing: &[],
        landing_records: 0,
    };
    image.write(out);
}

/// Image `index` of `below`, which lies in `bytes`. This function does not know the bounds of the leaf; a merge of its
/// images checks them.
///
/// # Errors
/// The fault of the image.
pub(crate) fn decode(bytes: &[u8], below: &Below, index: usize) -> Result<Image, String> {
    let image = LeafImage::read(bytes)?;
    let unknown = |generation| format!("the image is coded with generation {generation}, which is not known");
    let coding = image.generation.map(|number| below.coding(number).cloned().ok_or_else(|| unknown(number)));
    let (body, coding) = decode_plain(&image, coding.transpose()?)?;
    if !body.lies_within(&below.low(index).unwrap_or_default(), below.low(index + 1).as_deref()) {
        return Err("the image has keys of another one".to_owned());
    }
    let is_foreign = coding.as_ref().is_some_and(|coding| below.tier().is_foreign(coding));
    let form = Form::of(coding);
    Ok(match is_foreign {
        true => Image { body: with_raw_values(&body, &form), form: Form::Raw },
        false => Image { body, form },
    })
}

/// The body of an image that has nothing else, and its coding.
fn decode_plain(image: &LeafImage<'_>, coding: Option<Coding>) -> Result<(Body, Option<Coding>), String> {
    if image.landing_records > 0 || !image.landing.is_empty() || !image.larges.is_empty() {
        return Err("the image has more than a body".to_owned());
    }
    let referents = Referents {
        tokens: coding.as_ref().is_some_and(|coding| coding.tokens().is_some()),
        codes: coding.as_ref().is_some_and(Coding::has_codes),
        blocks: coding.as_ref().is_some_and(|coding| coding.blocks().is_some()),
        larges: 0,
        below: false,
    };
    let body = match image.body {
        [] => Body::empty(),
        bytes => Body::from_untrusted(bytes, referents)?,
    };
    Ok((body, coding))
}

impl Image {
    /// The record of `key` in it.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Found<'_>> {
        let index = self.body.find(key, key_hash(key))?;
        Some(self.body.found(index, &self.form))
    }
}
