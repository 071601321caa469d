//! A device that packs the blocks of a body side by side gives them back in any order. A store that mixed them up would
//! answer with the value of another key: every answer is compared here, while leaves are written, settled and packed
//! densely.

use ziptier::{
    BlockOptions, CodecChoice, DeviceSource, Error, Huffman, ModelOptions, Options, Path, Store, Values,
};

fn options(huffman: Huffman, device: DeviceSource) -> Options {
    let block = BlockOptions { path: Path::Hardware, device, huffman, ..BlockOptions::default() };
    Options { codec: CodecChoice::Deflate, block, background_threads: 0, ..Options::default() }
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number:08}").into_bytes()
}

fn value(number: u32, version: u32) -> Vec<u8> {
    let text = format!("the value of {number} in version {version}; ");
    text.repeat(1 + (number * 7 % 5) as usize).into_bytes()
}

#[test]
fn every_value_comes_back_from_bodies_that_a_device_packed() {
    for huffman in Huffman::ALL {
        let model = DeviceSource::Modelled(ModelOptions::default());
        let store = Store::open(options(*huffman, model)).unwrap();
        assert_eq!(store.block_worker(), Some("modelled"));
        let check = |version: &dyn Fn(u32) -> u32| {
            let records = (0..6000).map(|number| (key(number), value(number, version(number))));
            assert!(store.range(..).map(|record| record.unwrap()).eq(records), "{huffman}");
            // Each is a job of the device.
            for number in (0..6000).step_by(2) {
                assert_eq!(
                    store.get(&key(number)).unwrap(),
                    Some(value(number, version(number))),
                    "{huffman}"
                );
            }
        };
        (0..6000).for_each(|number| store.put(&key(number), &value(number, 0)).unwrap());
        check(&|_| 0);
        store.settle().unwrap();
        check(&|_| 0);
        (0..6000).step_by(3).for_each(|number| store.put(&key(number), &value(number, 1)).unwrap());
        check(&|number| u32::from(number % 3 == 0));
        store.settle().unwrap();
        check(&|number| u32::from(number % 3 == 0));
        check_together(&store, &|number| u32::from(number % 3 == 0));
        let stats = store.stats();
        assert!(stats.iaa_compress_calls > 500 && stats.iaa_decompress_calls > 500, "{stats:?}");
        assert!(stats.blocks_packed_fast > 0 && stats.blocks_packed_dense > 0, "{stats:?}");
        assert_eq!((stats.engine_fallbacks, stats.engine_faults, stats.damaged), (0, 0, 0), "{stats:?}");
    }
}

/// Reads many keys at once, and ranges that begin and end within blocks.
fn check_together(store: &Store, version: &dyn Fn(u32) -> u32) {
    let numbers: Vec<u32> = (0..6000).map(|number| number * 4001 % 7000).collect();
    let mut values = Values::default();
    for numbers in numbers.chunks(150) {
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
        store.multi_get(&keys, &mut values).unwrap();
        for (index, number) in numbers.iter().enumerate() {
            let wanted = (*number < 6000).then(|| value(*number, version(*number)));
            assert_eq!(values.get(index), wanted.as_deref());
            let len = wanted.as_ref().map(|wanted| wanted.len() as u64);
            assert_eq!(values.meta(index).map(|meta| meta.len), len);
        }
    }
    for (from, to) in [(0, 6000), (17, 18), (403, 1777), (5990, 9000), (70, 70)] {
        let (low, high) = (key(from), key(to));
        let mut range = store.range(&low[..]..&high[..]);
        for number in from..to.min(6000) {
            let wanted = (key(number), value(number, version(number)));
            assert_eq!(range.next().unwrap().unwrap(), wanted);
        }
        assert!(range.next().is_none());
    }
    let backwards: Vec<_> = store.prefix(b"").rev().map(|record| record.unwrap().0).collect();
    assert_eq!(backwards, (0..6000).rev().map(key).collect::<Vec<_>>());
}

#[test]
fn keys_that_are_asked_for_together_are_unpacked_together_once_for_a_block() {
    let store =
        Store::open(options(Huffman::Dynamic, DeviceSource::Modelled(ModelOptions::default()))).unwrap();
    (0..600).for_each(|number| store.put(&key(number), &value(number, 0)).unwrap());
    store.settle().unwrap();
    let calls = || store.stats().iaa_decompress_calls;
    let keys: Vec<Vec<u8>> = (100..116).map(key).collect();
    let before = calls();
    keys.iter().for_each(|key| assert!(store.get(key).unwrap().is_some()));
    let one_by_one = calls() - before;
    let mut values = Values::default();
    store.multi_get(&keys, &mut values).unwrap();
    let together = calls() - before - one_by_one;
    assert!(one_by_one == 16 && (1..16).contains(&together), "{one_by_one} {together}");
}

#[test]
fn without_a_device_the_path_of_the_hardware_does_not_open() {
    match Store::open(options(Huffman::Fixed, DeviceSource::Discovered)) {
        Err(Error::EngineUnavailable { reason }) => {
            assert!(reason.contains("path hardware needs a device"), "{reason}")
        }
        Err(error) => panic!("{error}"),
        Ok(_) => ziptier_testing::not_run(
            "machine-without-accelerator",
            "this one has a device, or the environment asks for a model",
        ),
    }
}
