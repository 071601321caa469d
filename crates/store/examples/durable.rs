//! A store in a folder, which is there again after a restart: `cargo run -p ziptier --example durable`.

use std::error::Error;
use std::path::Path;

use ziptier::{Durability, DurableOptions, Options, Store};

fn open(folder: &Path) -> Result<Store, ziptier::Error> {
    let mut durable = DurableOptions::new(folder);
    // A write that was acknowledged survives a power cut. The default, `Everysec`, may lose a second to one.
    durable.durability = Durability::Always;
    Store::open(Options { durable: Some(durable), ..Options::default() })
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = open(folder.path())?;
    store.put(b"user:1", b"Ada")?;
    // A checkpoint bounds the log that the next start reads. The store makes checkpoints by itself, too.
    store.checkpoint()?;
    store.put(b"user:2", b"Grace")?;
    // A store that is dropped ends in the same way, and tells nobody of an error.
    store.close()?;

    let store = open(folder.path())?;
    let recovered = store.recovered().expect("a store with a folder recovers");
    println!("recovered {} images of leaves and {} records of the log", recovered.images, recovered.records);
    assert_eq!(store.get(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
    assert_eq!(store.get(b"user:2")?.as_deref(), Some(&b"Grace"[..]));
    Ok(store.close()?)
}
