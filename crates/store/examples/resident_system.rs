//! As `resident`, with Rust's default allocator: `cargo run -p ziptier --example resident_system`.

#[path = "resident/load.rs"]
mod load;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    load::measure()
}
