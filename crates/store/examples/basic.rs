//! Values, ranges, conditions, threads and compression: `cargo run -p ziptier --example basic`.

use std::error::Error;
use std::thread;

use ziptier::{Batch, Condition, Options, Store};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::open(Options::default())?;
    store.put(b"user:1", b"Ada")?;
    store.put(b"user:2", b"Grace")?;
    assert_eq!(store.get(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
    for record in store.prefix(b"user:") {
        let (key, name) = record?;
        println!("{} is {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&name));
    }

    // All of a batch, or nothing: the name moves only if it is still the one that was read.
    let batch = Batch::new()
        .require(b"user:1", Condition::ValueIs(b"Ada".to_vec()))
        .put(b"user:3", b"Ada")
        .delete(b"user:1");
    assert!(store.write(&batch)?);
    assert!(!store.write(&batch)?, "the condition no longer holds");

    // Threads share a store by reference.
    let shared = &store;
    thread::scope(|scope| {
        let writers = [0, 1, 2, 3].map(|writer| scope.spawn(move || fill(shared, writer)));
        writers.into_iter().try_for_each(|writer| writer.join().expect("no writer panics"))
    })?;

    // Background threads do the same in quiet times.
    store.settle()?;
    let memory = store.memory();
    let (raw, held) = (memory.logical_bytes, memory.total_bytes());
    println!("{} records of {raw} bytes take {held} bytes of memory", store.len());
    assert!(held < raw, "records that are alike are held in fewer bytes");
    Ok(())
}

fn fill(store: &Store, writer: u32) -> Result<(), ziptier::Error> {
    for visit in 0..20_000 {
        let page = visit % 97;
        let value =
            format!(r#"{{"page":"/products/{page}","status":200,"referrer":"https://example.com/"}}"#);
        store.put(format!("visit:{writer}:{visit:06}").as_bytes(), value.as_bytes())?;
    }
    Ok(())
}
