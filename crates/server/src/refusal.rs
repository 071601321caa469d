//! The error words of commands: Redis's own, letter for letter, because clients match on them.

use std::borrow::Cow;

use crate::backend::BackendError;

/// The text of an error reply, without its leading `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Cow<'static, str>);

impl Refusal {
    pub(crate) const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    pub(crate) const INCREMENT_OVERFLOW: Self = Self::fixed("ERR increment or decrement would overflow");
    pub(crate) const STRING_TOO_LONG: Self =
        Self::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const DB_INDEX: Self = Self::fixed("ERR DB index is out of range");
    pub(crate) const OUT_OF_MEMORY: Self =
        Self::fixed("OOM command not allowed when used memory > 'maxmemory'.");
    pub(crate) const INVALID_CURSOR: Self = Self::fixed("ERR invalid cursor");

    pub(crate) const fn fixed(words: &'static str) -> Self {
        Self(Cow::Borrowed(words))
    }

    pub(crate) fn wrong_arity(command: &str) -> Self {
        Self(format!("ERR wrong number of arguments for '{command}' command").into())
    }

    pub(crate) fn expire_time(command: &str) -> Self {
        Self(format!("ERR invalid expire time in '{command}' command").into())
    }

    /// `command` is the parent in upper case.
    pub(crate) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Self {
        let subcommand = c_text(subcommand, 128);
        Self(format!("ERR unknown subcommand '{subcommand}'. Try {command} HELP.").into())
    }

    /// Redis shows up to 128 bytes of the name and of the quoted arguments.
    pub(crate) fn unknown_command<'a>(name: &[u8], args: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut shown = String::new();
        for arg in args {
            if shown.len() >= 128 {
                break;
            }
            let text = c_text(arg, 128 - shown.len());
            shown.push_str(&format!("'{text}' "));
        }
        let name = c_text(name, 128);
        Self(format!("ERR unknown command '{name}', with args beginning with: {shown}").into())
    }
}

/// What C's `%.*s` would print of `bytes`.
fn c_text(bytes: &[u8], bytes_max: usize) -> Cow<'_, str> {
    let end = bytes.len().min(bytes_max);
    let end = memchr::memchr(0, &bytes[..end]).unwrap_or(end);
    String::from_utf8_lossy(&bytes[..end])
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::MemoryLimit => Self::OUT_OF_MEMORY,
            BackendError::Refused(words) => Self(format!("ERR {words}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_show_a_bounded_beginning() {
        let refusal = Refusal::unknown_command(b"foo", [&b"bar"[..], b"a\0b"].into_iter());
        assert_eq!(refusal.0, "ERR unknown command 'foo', with args beginning with: 'bar' 'a' ");
        let long = vec![b'x'; 1000];
        let args = [&long[..]; 50];
        let refusal = Refusal::unknown_command(&long, args.into_iter());
        assert!(refusal.0.len() < 400);
    }
}
