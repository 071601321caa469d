//! Serves a plain ordered map, to measure the cost of the server itself without a store.
//!
//! `cargo run --release -p ziptier-server --example serve_a_map -- 6380 1` listens on port 6380 with one worker.

use std::sync::Arc;

use ziptier_server::{Config, Server};

#[path = "../tests/suite/support/map_backend.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use more of it")]
mod map_backend;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut config = Config::default();
    if let Some(port) = args.next() {
        config.port = port.parse()?;
    }
    if let Some(threads) = args.next() {
        config.threads = threads.parse()?;
    }
    let server = Server::bind(config, Arc::new(map_backend::MapBackend::default()))?;
    println!("listening on {}", server.address());
    Ok(server.run()?)
}
