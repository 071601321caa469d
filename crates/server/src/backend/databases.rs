//! Databases by name, for stores that have more than one.

use std::sync::Arc;

use super::{Backend, BackendError};

/// The name of a database, which is also that of a folder: letters, digits, `-` and `_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseName<'a>(&'a str);

impl<'a> DatabaseName<'a> {
    /// Bytes of the longest name.
    pub const BYTES_MAX: usize = 64;

    /// The name, if it is one. It begins with a letter or a digit, so that it can be no path and no option.
    pub fn new(text: &'a [u8]) -> Option<Self> {
        let is_sound = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let begins = text.first().is_some_and(u8::is_ascii_alphanumeric);
        let is_name = begins && text.len() <= Self::BYTES_MAX && text.iter().all(is_sound);
        std::str::from_utf8(text).ok().filter(|_| is_name).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }
}

/// A database in the list of [`Databases::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDatabase {
    /// Its name.
    pub name: String,
    /// Whether clients can use it now.
    pub is_open: bool,
}

/// A database that a client uses; nothing for the one that every client begins with.
pub type Chosen = Option<Arc<dyn Backend>>;

/// Databases by name, beside the one that every client begins with.
pub trait Databases: Send + Sync {
    /// Opens a database, or makes it. The names of options are those of the store.
    fn open(&self, name: DatabaseName<'_>, options: &[(&[u8], &[u8])]) -> Result<(), BackendError>;

    /// Closes a database that no client uses.
    fn close(&self, name: DatabaseName<'_>) -> Result<(), BackendError>;

    /// All databases, in the order of their names.
    fn list(&self) -> Result<Vec<ListedDatabase>, BackendError>;

    /// An open database. It stays open while somebody has it.
    fn find(&self, name: DatabaseName<'_>) -> Result<Chosen, BackendError>;
}

#[cfg(test)]
mod tests {
    use super::DatabaseName;

    #[test]
    fn names_are_no_paths() {
        let longest = [b'x'; DatabaseName::BYTES_MAX];
        for name in [&b"a"[..], b"9", b"users-2026_07", b"LOG", b"LOCK", &longest] {
            assert_eq!(DatabaseName::new(name).unwrap().as_str().as_bytes(), name);
        }
        let long = [b'x'; DatabaseName::BYTES_MAX + 1];
        let escaping = [
            &b""[..],
            b".",
            b"..",
            b"../x",
            b"a/b",
            b"/a",
            b"a\\b",
            b"-a",
            b"_a",
            b"a.b",
            b"a\0",
            b"a b",
            "\u{e4}".as_bytes(),
        ];
        for name in escaping.into_iter().chain([&long[..]]) {
            assert_eq!(DatabaseName::new(name), None, "{name:?}");
        }
    }
}
