//! Servers in other processes: how to start, find and ask them.

pub(crate) mod adopted;
pub(crate) mod client;
pub(crate) mod function;
pub(crate) mod listening;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod quiet;
pub mod replies;
pub(crate) mod resp;

/// The reply that these bytes are, if no part of them is taken for one.
#[cfg(test)]
fn whole<R: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<Option<(R, usize)>, String>,
) -> R {
    for part in 0..bytes.len() {
        assert_eq!(parse(&bytes[..part]), Ok(None), "{part} bytes of {}", bytes.escape_ascii());
    }
    let (reply, length) = parse(bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    reply
}
