//! A backup whose reader went to sleep keeps the log and all segments from being removed, until the disk is full. INFO
//! tells.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use ziptier::{DurableOptions, Options, dump};
use ziptier_server::StoreBackend;

use crate::support::TestServer;

/// Takes nothing until it is told to go on.
struct Asleep {
    asleep: Sender<()>,
    wake: Receiver<()>,
}

impl Write for Asleep {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.asleep.send(());
        // An end of the channel is a word, too.
        let _ = self.wake.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn checkpoints_that_removed_nothing_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut durable = DurableOptions::new(folder.path());
    durable.log.segment_bytes = 1 << 20;
    let options = Options { durable: Some(durable.clone()), ..Options::default() };
    let server = TestServer::start_with(Arc::new(StoreBackend::open(options).unwrap()), |_| {});
    let mut client = server.connect();
    let mut saved = |n: u32| {
        assert_eq!(client.text(&format!("SET key {n}")), "+OK\r\n");
        assert_eq!(client.text("SAVE"), "+OK\r\n");
        server.info(&mut client).field("checkpoints_kept_for_dump")
    };
    assert_eq!(saved(0), 0);
    let ((is_asleep, asleep), (wake, woken)) = (channel(), channel());
    std::thread::scope(|scope| {
        let dump = scope.spawn(|| dump(&durable, &mut Asleep { asleep: is_asleep, wake: woken }));
        asleep.recv().unwrap();
        assert_eq!([saved(1), saved(2)], [1, 2]);
        drop(wake);
        dump.join().unwrap().unwrap();
    });
    assert_eq!(saved(3), 0);
}
