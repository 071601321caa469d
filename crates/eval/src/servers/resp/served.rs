//! A server of RESP in this process, for tests: a map behind any number of connections, with answers that a test may
//! hold up, alter or break off.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::value;

/// A request that came.
pub(crate) struct Asked {
    /// The number of its connection, from 0 on.
    pub(crate) connection: usize,
    /// The number of requests of its command that came over the connection before.
    pub(crate) before: usize,
    /// The command and its arguments.
    pub(crate) parts: Vec<Vec<u8>>,
}

impl Asked {
    pub(crate) fn is_get(&self) -> bool {
        self.parts[0] == b"GET"
    }
}

/// The bytes that a connection answers, and whether it stays open.
pub(crate) type Answered = (Vec<u8>, bool);

/// Starts a server whose every right answer goes through `answer`, and returns its address. It lasts as long as the
/// process.
pub(crate) fn serve(answer: impl Fn(&Asked, Vec<u8>) -> Answered + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new((Mutex::new(HashMap::new()), answer));
    thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
            thread::spawn(move || talk(connection, stream, &shared.0, &shared.1));
        }
    });
    address
}

fn talk(
    connection: usize,
    stream: TcpStream,
    held: &Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    answer: &impl Fn(&Asked, Vec<u8>) -> Answered,
) {
    stream.set_nodelay(true).unwrap();
    let (mut requests, mut replies) = (BufReader::new(stream.try_clone().unwrap()), stream);
    let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
    while let Some(parts) = request(&mut requests) {
        let count = counts.entry(parts[0].clone()).or_default();
        let asked = Asked { connection, before: *count, parts };
        *count += 1;
        let right = right_answer(&asked.parts, &mut held.lock().unwrap());
        let (bytes, stays_open) = answer(&asked, right);
        // The client may be gone.
        if replies.write_all(&bytes).is_err() || !stays_open {
            return;
        }
    }
}

/// The number of a line, behind its first byte; nothing once the client is gone.
fn number(requests: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok().filter(|read| *read > 0)?;
    line[1..].trim().parse().ok()
}

/// The next request; nothing once the client is gone.
fn request(requests: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let parts = number(requests)?;
    let part = |_| {
        let mut bytes = vec![0; number(requests)? + 2];
        requests.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        Some(bytes)
    };
    (0..parts).map(part).collect()
}

fn right_answer(parts: &[Vec<u8>], held: &mut HashMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let bulk = |bytes: &[u8]| {
        let mut reply = Vec::new();
        value(bytes, &mut reply);
        reply
    };
    match (parts[0].as_slice(), &parts[1..]) {
        (b"GET", [key]) => held.get(key).map_or_else(|| b"$-1\r\n".to_vec(), |value| bulk(value)),
        (b"SET", [key, value]) => {
            held.insert(key.clone(), value.clone());
            b"+OK\r\n".to_vec()
        }
        (b"DEL", [key]) => format!(":{}\r\n", u8::from(held.remove(key).is_some())).into_bytes(),
        _ => b"-ERR unknown command\r\n".to_vec(),
    }
}
