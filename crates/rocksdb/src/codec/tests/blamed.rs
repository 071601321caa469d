//! A device may be wrong about a block. People throw files away for a block that is called damaged.

use super::*;
use ziptier_codec::block::{BlockCodec, Counters, Done, Job};

/// A device that calls every block damaged.
struct Blaming(Counters);

impl Engine for Blaming {
    fn name(&self) -> &'static str {
        "blaming"
    }
    fn format(&self) -> Format {
        Format::Deflate
    }
    fn counters(&self) -> &Counters {
        &self.0
    }
    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        Ok(Box::new(Blamer))
    }
}

struct Blamer;

impl BlockCodec for Blamer {
    fn compress(&mut self, _: &[u8], _: &mut Vec<u8>, _: usize) -> Result<Option<usize>, BlockError> {
        Ok(None)
    }
    fn decompress(&mut self, packed: &[u8], _: &mut Vec<u8>, _: usize) -> Result<(), BlockError> {
        let (format, position) = (Format::Deflate, packed.len());
        Err(BlockError::Damaged { format, position, what: "no valid stream" })
    }
    fn submit(&mut self, job: Job) -> Result<(), Job> {
        Err(job)
    }
    fn reap(&mut self, _: &mut Vec<Done>, _: bool) {}
}

#[test]
fn the_cpu_reads_a_canned_block_that_a_device_calls_damaged() {
    let blocks = blocks(400);
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let generation = canned().train(&samples).unwrap();
    let (made, packed) = pack(&canned(), CANNED, Some(&generation), &blocks[3], blocks[3].len()).unwrap();
    assert_eq!(made, CANNED);
    // No other test has these settings. All tests may share the generation.
    let settings = Settings::parse("deflate", "hardware", "canned", 7, "timing=off").unwrap();
    let blaming = Arc::new(Blaming(Default::default()));
    generation.canned().unwrap().put(settings.canned(), blaming);
    let codec = open(settings);
    let mut back = Vec::new();
    let take = |raw: &[u8]| back.extend_from_slice(raw);
    codec.unpack(CANNED, Some(&generation), payload(&packed), blocks[3].len(), take).unwrap();
    assert!(back == blocks[3]);
    let cut = &payload(&packed)[..payload(&packed).len() / 2];
    let damaged = codec.unpack(CANNED, Some(&generation), cut, blocks[3].len(), |_| panic!("it is damaged"));
    assert!(matches!(damaged, Err(UnpackError::Damaged(_))), "{damaged:?}");
}
