//! A body as an image on SSD. It is the image of a leaf that has nothing else (`leaf_image`), so that one image
//! serves checkpoints, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use ziptier_tree::below::{Below, Image, Images};
use ziptier_tree::body::{Body, Referents};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::form::Form;
use ziptier_tree::index::COLD_LEAF_BYTES;

use super::Tier;
use crate::image_files::place_of;
use crate::leaf_image::{LeafImage, with_raw_values};

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

impl Images for Tier {
    fn read(&self, below: &Below, index: usize) -> Result<Image, String> {
        let bytes =
            self.files.segments.read(place_of(below.place(index))).map_err(|error| error.to_string())?;
        self.decode(&bytes, below, index)
    }

    fn read_several(&self, wanted: &[(Arc<Below>, usize)]) -> Vec<Result<Image, String>> {
        if let [(below, index)] = wanted {
            return vec![self.read(below, *index)];
        }
        let (sender, receiver) = mpsc::channel();
        for (at, (below, index)) in wanted.iter().enumerate() {
            let sender = sender.clone();
            self.files.segments.read_later(place_of(below.place(*index)), move |read| {
                // Nobody waits any more only if the caller panicked.
                let _ = sender.send((at, read));
            });
        }
        drop(sender);
        let unanswered = || Err("the read was not answered".to_owned());
        let mut images: Vec<_> = wanted.iter().map(|_| unanswered()).collect();
        for (at, read) in receiver {
            images[at] = match read {
                Ok(bytes) => self.decode(&bytes, &wanted[at].0, wanted[at].1),
                Err(error) => Err(error.to_string()),
            };
        }
        images
    }

    fn release(&self, place: Extent) {
        self.files.segments.release(place_of(place));
    }

    fn count(&self, asked: &[usize], held_bytes: u64, came: bool) {
        let index = &self.gauges.index;
        asked.iter().for_each(|bytes| if came { index.add(*bytes) } else { index.take(*bytes) });
        let change = |counter: &AtomicU64, by| match came {
            true => counter.fetch_add(by, Relaxed),
            false => counter.fetch_sub(by, Relaxed),
        };
        change(&self.counters.index_bytes, held_bytes + COLD_LEAF_BYTES as u64);
        change(&self.counters.leaves, 1);
    }
}

impl Tier {
    /// Image `index` of `below`, which lies in `bytes`. This function does not know the bounds of the leaf; a merge of
    /// its images checks them.
    ///
    /// # Errors
    /// The fault of the image.
    fn decode(&self, bytes: &[u8], below: &Below, index: usize) -> Result<Image, String> {
        let image = LeafImage::read(bytes)?;
        let unknown =
            |generation| format!("the image is coded with generation {generation}, which is not known");
        let coding =
            image.generation.map(|number| below.coding(number).cloned().ok_or_else(|| unknown(number)));
        let (body, coding) = decode_plain(&image, coding.transpose()?)?;
        if !body.lies_within(&below.low(index).unwrap_or_default(), below.low(index + 1).as_deref()) {
            return Err("the image has keys of another one".to_owned());
        }
        let is_foreign = coding.as_ref().is_some_and(|coding| self.is_foreign(coding));
        let form = Form::of(coding);
        Ok(match is_foreign {
            true => Image { body: with_raw_values(&body, &form), form: Form::Raw },
            false => Image { body, form },
        })
    }
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
