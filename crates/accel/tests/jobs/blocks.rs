//! Blocks that are packed by one of {model, software} and unpacked by both.

use crate::jobs::{self, WHOLE_BLOCK};
use ziptier_accel::aecs::{CompressState, DecompressState};
use ziptier_accel::{Device, ErrorCode, Status};
use ziptier_deflate::{BlockCodes, Decoder, Dictionary, Encoder, Huffman, Level};

/// The parts that both sides share.
pub(crate) struct Engines {
    pub(crate) dictionary: Dictionary,
    pub(crate) plain: Dictionary,
}

impl Engines {
    pub(crate) fn new() -> Engines {
        let mut random = jobs::Random(7);
        let blocks: Vec<Vec<u8>> = (0..400).map(|_| random.block()).collect();
        let dictionary = Dictionary::train(&blocks.iter().map(|block| &block[..]).collect::<Vec<_>>(), 2000);
        Engines { dictionary, plain: Dictionary::new(b"") }
    }

    fn canned_state(&self, history: bool) -> DecompressState {
        let codes = self.dictionary.codes().unwrap();
        let mut state = DecompressState::canned(codes.literals(), codes.distances()).unwrap();
        if history {
            state.set_history(self.dictionary.history());
        }
        state
    }

    /// Packs and unpacks a block in every way, and calls `each` with the streams that any inflate can read.
    pub(crate) fn check(&self, device: &dyn Device, raw: &[u8], mut each: impl FnMut(&[u8])) {
        self.check_model_packs(device, raw, &mut each);
        self.check_software_packs(device, raw);
    }

    fn check_model_packs(&self, device: &dyn Device, raw: &[u8], each: &mut impl FnMut(&[u8])) {
        let bytes_max = 2 * raw.len() + 400;
        let unpacks = |huffman, dictionary, packed: &[u8]| {
            let mut out = Vec::new();
            let result = Decoder::new(dictionary).decompress(huffman, packed, &mut out, raw.len());
            assert!(result == Ok(raw.len()) && out == raw, "{result:?}");
        };
        let packed =
            jobs::compress(device, &CompressState::fixed(true), raw, WHOLE_BLOCK, bytes_max).unwrap();
        unpacks(Huffman::Fixed, &self.plain, &packed);
        assert!(jobs::decompress(device, None, &packed, raw.len()).as_deref() == Ok(raw));
        each(&packed);

        let counts = jobs::histogram(device, raw);
        let codes = BlockCodes::new(&counts.literals(), &counts.distances(), true);
        let state =
            CompressState::dynamic(&codes.literals, &codes.distances, &codes.header, codes.header_bits)
                .unwrap();
        let packed = jobs::compress(device, &state, raw, WHOLE_BLOCK, bytes_max).unwrap();
        unpacks(Huffman::Dynamic, &self.plain, &packed);
        assert!(jobs::decompress(device, None, &packed, raw.len()).as_deref() == Ok(raw));
        each(&packed);
        // A byte too few is an overflow.
        let overflow = jobs::compress(device, &state, raw, WHOLE_BLOCK, packed.len() - 1).unwrap_err();
        assert_eq!(overflow.status(), Some(Status::Analytics));
        assert_eq!(overflow.error_code(), Some(ErrorCode::UnrecoverableOverflow));

        let codes = self.dictionary.codes().unwrap();
        let state = CompressState::canned(codes.literals(), codes.distances()).unwrap();
        let packed = jobs::compress(device, &state, raw, WHOLE_BLOCK, bytes_max).unwrap();
        unpacks(Huffman::Canned, &self.dictionary, &packed);
        let state = self.canned_state(false);
        assert!(jobs::decompress(device, Some(&state), &packed, raw.len()).as_deref() == Ok(raw));
    }

    fn check_software_packs(&self, device: &dyn Device, raw: &[u8]) {
        let mut history = DecompressState::new();
        history.set_history(self.dictionary.history());
        let canned = self.canned_state(true);
        let mut encoder = Encoder::new(&self.dictionary, Level::Lazy);
        for (huffman, state) in
            [(Huffman::Fixed, &history), (Huffman::Dynamic, &history), (Huffman::Canned, &canned)]
        {
            let mut packed = Vec::new();
            encoder.compress(huffman, raw, &mut packed, 2 * raw.len() + 400).unwrap();
            let unpacked = jobs::decompress(device, Some(state), &packed, raw.len());
            assert!(unpacked.as_deref() == Ok(raw), "{huffman:?}: {:?}", unpacked.err());
        }
    }
}
