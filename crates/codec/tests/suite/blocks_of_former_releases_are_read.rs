//! Tables keep blocks of tokens for years, beside the dictionary that each table has. Nobody converts them. The blocks
//! of a folder here are what the first release wrote, and are never written anew.

use std::path::PathBuf;
use std::sync::Arc;

use ziptier_codec::block::{Dictionary, Engine, Setting};
use ziptier_codec::format::Format;

/// The kinds of block, at the place of their first byte.
const KINDS: [&str; 3] = ["raw", "tokens", "zstd"];
/// Dictionaries, and the most bytes of each.
const DICTIONARIES: [(&str, usize); 2] = [("short", 4_000), ("long", 40_000)];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/token").join(name)
}

fn engine(dictionary: Dictionary) -> Arc<dyn Engine> {
    Setting::new(Format::Token).with_dictionary(Arc::new(dictionary)).engine().unwrap()
}

fn packed(engine: &dyn Engine, raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    engine.open().unwrap().compress(raw, &mut packed, raw.len() + 1).unwrap().expect("it fits");
    packed
}

/// A block of each kind and dictionary: noise, rows, and numbers that come four times.
fn write() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut rows = Vec::new();
    while rows.len() < 1 << 20 {
        let (order, city) = (random.u32(..), random.u16(..600));
        rows.extend(format!("order {order} of customer{city} in city{}, {city}.00 paid; ", city / 7).bytes());
    }
    let noise = (0..999).map(|_| random.u8(..)).collect();
    let numbers =
        (0..256).flat_map(|number: u32| (number * 7919).to_le_bytes()).collect::<Vec<u8>>().repeat(4);
    let raw = [noise, rows[..4_096].to_vec(), numbers];
    std::fs::create_dir_all(file("")).unwrap();
    for (kind, raw) in KINDS.iter().zip(&raw) {
        std::fs::write(file(kind), raw).unwrap();
    }
    let samples: Vec<&[u8]> = rows[4_096..].chunks(4_096).collect();
    for (name, bytes_max) in DICTIONARIES {
        let dictionary = Dictionary::train(Format::Token, &samples, bytes_max, 0).unwrap();
        std::fs::write(file(&format!("{name}.dictionary")), dictionary.to_bytes()).unwrap();
        let engine = engine(dictionary);
        for (kind, raw) in KINDS.iter().zip(&raw) {
            std::fs::write(file(&format!("{name}.{kind}")), packed(&*engine, raw)).unwrap();
        }
    }
}

#[test]
fn blocks_of_tokens_are_read_by_their_dictionary() {
    if std::env::var_os("ZIPTIER_WRITE_FIXTURES").is_some() && !file("raw").exists() {
        write();
    }
    let read = |name: &str| std::fs::read(file(name)).unwrap();
    for (name, _) in DICTIONARIES {
        let dictionary = Dictionary::from_bytes(&read(&format!("{name}.dictionary"))).unwrap();
        let engine = engine(dictionary);
        for (first_byte, kind) in KINDS.iter().enumerate() {
            let (raw, block) = (read(kind), read(&format!("{name}.{kind}")));
            assert_eq!(usize::from(block[0]), first_byte);
            // Tables go on with the dictionary that they have.
            for block in [block, packed(&*engine, &raw)] {
                let mut back = Vec::new();
                engine.open().unwrap().decompress(&block, &mut back, raw.len()).unwrap();
                assert!(back == raw, "{name}, {kind}");
            }
        }
    }
}
