//! A caller in C hands in a pointer and a capacity. A codec that writes one byte behind it destroys memory of somebody
//! else, and one that calls damage data loses it. Each output here has bytes behind it that must stay.

use std::ptr;

use ziptier_capi::buffer::{ziptier_buffer, ziptier_buffer_free};
use ziptier_capi::dictionary::{ziptier_dictionary_free, ziptier_dictionary_load, ziptier_dictionary_save};
use ziptier_capi::status::ziptier_status::*;

use crate::support::{CODECS, Codec, Dictionary, codec_of, last_error, noise, records};

/// Blocks of several lengths: records, and bytes that do not shrink.
fn blocks() -> Vec<Vec<u8>> {
    let text = records(600).concat();
    let noise = noise(20_000);
    [0, 1, 12, 100, 4096, 4097, 20_000]
        .iter()
        .flat_map(|&length| [text[..length].to_vec(), noise[..length].to_vec()])
        .collect()
}

#[test]
fn every_block_comes_back_whatever_the_capacity() {
    for row in CODECS {
        let codec = codec_of(row);
        for raw in blocks() {
            let at = format!("{row:?}, {} bytes", raw.len());
            let packed = codec.packed(&raw);
            assert_eq!(
                codec.decompress_exact(&packed, raw.len()),
                (ZIPTIER_OK, raw.clone()),
                "{at}: {}",
                last_error()
            );
            for capacity in [raw.len(), raw.len() + 1, raw.len() + 1000] {
                let unpacked = codec.decompress(&packed, capacity);
                assert_eq!(unpacked, (ZIPTIER_OK, raw.len(), raw.clone()), "{at} into {capacity}");
            }
            for capacity in [0, raw.len() / 2, raw.len().saturating_sub(1)] {
                let (status, needed, _) = codec.decompress(&packed, capacity);
                let is_framed = row.0.contains(&("frame", "yes"));
                let expected = match capacity < raw.len() {
                    true => (ZIPTIER_TOO_SMALL, if is_framed { raw.len() } else { 0 }),
                    false => (ZIPTIER_OK, raw.len()),
                };
                assert_eq!((status, needed), expected, "{at} into {capacity}");
            }
            for capacity in [0, packed.len() / 2, packed.len().saturating_sub(17)] {
                let (status, length, _) = codec.compress(&raw, capacity);
                assert!(
                    status == ZIPTIER_TOO_SMALL && length == 0 || capacity >= packed.len(),
                    "{at} into {capacity}: {status:?}"
                );
            }
        }
    }
}

#[test]
fn a_frame_reveals_every_cut_and_every_flipped_bit() {
    let raw = records(40).concat();
    for row in CODECS.iter().filter(|row| row.0.contains(&("frame", "yes"))) {
        let codec = codec_of(*row);
        let mut packed = codec.packed(&raw);
        for cut in 0..packed.len() {
            assert_eq!(
                codec.decompress(&packed[..cut], raw.len()).0,
                ZIPTIER_DAMAGED,
                "{row:?} cut at {cut}"
            );
        }
        for bit in 0..packed.len() * 8 {
            packed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(codec.decompress(&packed, raw.len()).0, ZIPTIER_DAMAGED, "{row:?}, bit {bit}");
            assert_eq!(codec.decompress_exact(&packed, raw.len()).0, ZIPTIER_DAMAGED, "{row:?}, bit {bit}");
            packed[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Without a frame, damage may give other bytes, but it stays in its memory and is never an error of another kind.
#[test]
fn a_plain_block_that_is_damaged_harms_nobody() {
    let raw = records(40).concat();
    let mut noticed = 0;
    for row in CODECS.iter().filter(|row| !row.0.contains(&("frame", "yes"))) {
        let codec = codec_of(*row);
        let mut packed = codec.packed(&raw);
        for cut in 0..packed.len() {
            assert_eq!(
                codec.decompress_exact(&packed[..cut], raw.len()).0,
                ZIPTIER_DAMAGED,
                "{row:?} cut at {cut}"
            );
            let (status, _, unpacked) = codec.decompress(&packed[..cut], raw.len());
            assert!(status != ZIPTIER_OK || unpacked != raw, "{row:?} cut at {cut}");
        }
        for bit in 0..packed.len() * 8 {
            packed[bit / 8] ^= 1 << (bit % 8);
            let (exact, _) = codec.decompress_exact(&packed, raw.len());
            assert!([ZIPTIER_OK, ZIPTIER_DAMAGED].contains(&exact), "{row:?}, bit {bit}: {exact:?}");
            let (status, ..) = codec.decompress(&packed, raw.len());
            assert!(
                [ZIPTIER_OK, ZIPTIER_DAMAGED, ZIPTIER_TOO_SMALL].contains(&status),
                "{row:?}, bit {bit}: {status:?}"
            );
            noticed += u32::from(exact == ZIPTIER_DAMAGED);
            packed[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(noticed > 1000, "{noticed} flips were noticed");
}

#[test]
fn a_saved_dictionary_reads_what_the_trained_one_wrote() {
    let raw = records(30).concat();
    for format in ["lz4", "zstd", "deflate"] {
        let dictionary = Dictionary::train(format, &records(2000));
        let framed = [("format", format), ("frame", "yes")];
        let packed = Codec::open(&framed, dictionary.0).unwrap().packed(&raw);
        let mut saved = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
        let mut loaded = ptr::null_mut();
        // SAFETY: the dictionary is there; the buffer is filled before it is read, and freed once.
        unsafe {
            assert_eq!(ziptier_dictionary_save(dictionary.0, &mut saved), ZIPTIER_OK);
            assert_eq!(ziptier_dictionary_load(saved.data.cast(), saved.len, &mut loaded), ZIPTIER_OK);
            let mut damaged = ptr::null_mut();
            assert_eq!(
                ziptier_dictionary_load(saved.data.cast(), saved.len - 1, &mut damaged),
                ZIPTIER_DAMAGED
            );
            assert!(damaged.is_null() && last_error().contains("checksum"), "{}", last_error());
            ziptier_buffer_free(&mut saved);
        }
        let codec = Codec::open(&framed, loaded).unwrap();
        // SAFETY: the codec keeps a share of its own.
        unsafe { ziptier_dictionary_free(loaded) };
        assert_eq!(codec.decompress(&packed, raw.len()).2, raw, "{format}");
        let without = Codec::open(&framed, ptr::null()).unwrap();
        assert_eq!(without.decompress(&packed, raw.len()).0, ZIPTIER_DAMAGED, "{format}");
        assert!(last_error().contains("checksum"));
    }
}
