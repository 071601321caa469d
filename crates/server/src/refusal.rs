//! The error words of commands: Redis's own, letter for letter, because clients match on them.

use std::borrow::Cow;

use crate::backend::BackendError;

/// The text of an error reply, without its leading `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Cow<'static, [u8]>);

impl Refusal {
    pub(crate) const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::fixed("ERR value is not an integer or out of range");
    pub(crate) const NOT_INT: Self =
        Self::fixed("ERR value is out of range, value must between -2147483648 and 2147483647");
    pub(crate) const NOT_FLOAT: Self = Self::fixed("ERR value is not a valid float");
    pub(crate) const NOT_FINITE: Self = Self::fixed("ERR increment would produce NaN or Infinity");
    pub(crate) const NO_SUCH_KEY: Self = Self::fixed("ERR no such key");
    pub(crate) const INCREMENT_OVERFLOW: Self = Self::fixed("ERR increment or decrement would overflow");
    pub(crate) const STRING_TOO_LONG: Self =
        Self::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const DB_INDEX: Self = Self::fixed("ERR DB index is out of range");
    pub(crate) const OUT_OF_MEMORY: Self =
        Self::fixed("OOM command not allowed when used memory > 'maxmemory'.");
    pub(crate) const NO_AUTH: Self = Self::fixed("NOAUTH Authentication required.");
    pub(crate) const WRONG_PASSWORD: Self =
        Self::fixed("WRONGPASS invalid username-password pair or user is disabled.");
    pub(crate) const LOADING: Self = Self::fixed("LOADING Redis is loading the dataset in memory");
    pub(crate) const STOPPING: Self = Self::fixed(
        "ERR the server stops and has not run this request; send it again once the server is back",
    );
    pub(crate) const STOPPED_WITHIN: Self = Self::fixed(
        "ERR the server stops and has run a part of this request; send it again once the server is back",
    );
    pub(crate) const INVALID_CURSOR: Self = Self::fixed("ERR invalid cursor");
    pub(crate) const NO_FREQUENCY: Self = Self::fixed(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between policies at runtime LRU and LFU data will take some time to adjust.",
    );

    pub(crate) const fn fixed(words: &'static str) -> Self {
        Self(Cow::Borrowed(words.as_bytes()))
    }

    pub(crate) fn said(words: String) -> Self {
        Self(words.into_bytes().into())
    }

    /// Words around the beginning of a client's own, which need not be text.
    pub(crate) fn quoting(before: &str, text: &[u8], after: &str) -> Self {
        Self([before.as_bytes(), c_text(text, QUOTED_BYTES_MAX), after.as_bytes()].concat().into())
    }

    /// The error for writers when the store does not know whether their writes are durable.
    pub(crate) fn not_known(error: &BackendError) -> Self {
        Self::said(format!("ERR whether the last writes are kept is not known: {error}"))
    }

    pub(crate) fn wrong_arity(command: &str) -> Self {
        Self::said(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub(crate) fn expire_time(command: &str) -> Self {
        Self::said(format!("ERR invalid expire time in '{command}' command"))
    }

    /// Whether a command may have looked at a key before it refused in these words.
    pub(crate) fn may_tell_of_a_key(&self) -> bool {
        let words = [
            Self::NOT_INTEGER,
            Self::NOT_FLOAT,
            Self::NOT_FINITE,
            Self::NO_SUCH_KEY,
            Self::NO_FREQUENCY,
            Self::INCREMENT_OVERFLOW,
            Self::STRING_TOO_LONG,
        ];
        // GETEX answers a missing key before it checks the time.
        words.contains(self) || *self == Self::expire_time("getex")
    }

    /// `command` is the parent in upper case.
    pub(crate) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Self {
        let after = format!("'. Try {command} HELP.");
        Self::quoting("ERR unknown subcommand '", c_text(subcommand, 128), &after)
    }

    /// Redis shows up to 128 bytes of the name and of the quoted arguments.
    pub(crate) fn unknown_command<'a>(name: &[u8], args: impl Iterator<Item = &'a [u8]>) -> Self {
        let name = c_text(name, 128);
        let mut shown = [b"ERR unknown command '", name, b"', with args beginning with: "].concat();
        let before = shown.len();
        for arg in args {
            let room = 128usize.saturating_sub(shown.len() - before);
            if room == 0 {
                break;
            }
            shown.extend_from_slice(&[b"'", c_text(arg, room), b"' "].concat());
        }
        Self(shown.into())
    }
}

/// Bytes of a client's own words in an error: Redis shows as many of an unknown command.
const QUOTED_BYTES_MAX: usize = 128;

/// The part of `bytes` that C's `%.*s` would print.
fn c_text(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let end = bytes.len().min(bytes_max);
    let end = memchr::memchr(0, &bytes[..end]).unwrap_or(end);
    &bytes[..end]
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::MemoryLimit => Self::OUT_OF_MEMORY,
            error => Self::said(format!("ERR {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_show_a_bounded_beginning() {
        let refusal = Refusal::unknown_command(b"foo", [&b"bar"[..], b"a\0b"].into_iter());
        assert_eq!(*refusal.0, *b"ERR unknown command 'foo', with args beginning with: 'bar' 'a' ");
        let long = vec![b'x'; 1000];
        let args = [&long[..]; 50];
        let refusal = Refusal::unknown_command(&long, args.into_iter());
        assert!(refusal.0.len() < 400);
    }
}
