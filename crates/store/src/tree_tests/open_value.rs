//! Bytes that readers of a value hold for themselves.

use crate::{CodecChoice, OpenValue, Options, Store};

#[test]
fn readers_of_a_value_that_no_key_has_share_its_bytes() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let store = Store::open(options).unwrap();
    let settle = || {
        store.settle().unwrap();
        store.core.tree.reclaim();
    };
    for (value, is_large) in [(&b"inline"[..], false), (&[7; 300_000], true)] {
        store.put(b"key", value).unwrap();
        store.copy(b"key", b"name", true).unwrap();
        let readers = [b"key".as_slice(), b"name"].map(|key| store.open_value(key).unwrap().unwrap());
        let own = |readers: &[OpenValue]| readers.iter().map(OpenValue::own_bytes).collect::<Vec<_>>();
        assert_eq!(store.open_values(), 2 * u64::from(is_large));
        assert_eq!(own(&readers), [0, 0]);
        store.put(b"key", b"new").unwrap();
        settle();
        assert_eq!(own(&readers), [0, 0], "it has another name");
        store.delete(b"name").unwrap();
        settle();
        let [one, other] = readers;
        let (half, all) = (one.own_bytes(), store.memory().large_bytes as usize);
        assert_eq!((half > 150_000, half), (is_large, other.own_bytes()));
        drop(other);
        assert!(one.own_bytes().abs_diff(2 * half) < 2 && one.own_bytes() >= all);
        drop(one);
        assert_eq!((store.open_values(), store.memory().large_bytes), (0, 0));
    }
}
