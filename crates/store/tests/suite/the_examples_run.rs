//! An example that stops with an error would be the first thing that a new user sees.

#[path = "../../examples/basic.rs"]
mod basic;
#[path = "../../examples/durable.rs"]
mod durable;
#[path = "../../examples/tiers.rs"]
mod tiers;

#[test]
fn basic() {
    basic::main().unwrap();
}

#[test]
fn durable() {
    durable::main().unwrap();
}

#[test]
fn tiers() {
    tiers::main().unwrap();
}
