//! A password: compared in constant time, and never printed.

use std::fmt;

use subtle::ConstantTimeEq;

/// Longest password. Redis keeps as many bytes of the passwords that it sends to others.
pub const PASSWORD_BYTES_MAX: usize = 512;

/// The password that clients must send with `AUTH` before the server does anything for them.
///
/// `Debug` shows none of it, so that no message or log can.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<[u8]>);

/// The reason why bytes are no password. The error does not hold the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordError {
    /// There are no bytes.
    Empty,
    /// There are more than [`PASSWORD_BYTES_MAX`].
    TooLong {
        /// How many there are.
        bytes: usize,
    },
}

impl Password {
    /// Takes 1 to [`PASSWORD_BYTES_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer or more.
    pub fn new(bytes: &[u8]) -> Result<Self, PasswordError> {
        match bytes.len() {
            0 => Err(PasswordError::Empty),
            1..=PASSWORD_BYTES_MAX => Ok(Self(bytes.into())),
            bytes => Err(PasswordError::TooLong { bytes }),
        }
    }

    /// The password itself, for `CONFIG GET requirepass`.
    pub(crate) fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// Whether `given` is the password. The time that this takes tells neither its bytes nor its length.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        let same_bytes = padded(&self.0)[..].ct_eq(&padded(given)[..]);
        let same_length = (self.0.len() as u64).ct_eq(&(given.len() as u64));
        (same_bytes & same_length).into()
    }
}

/// As many of `bytes` as a password may have, with zeros behind them.
fn padded(bytes: &[u8]) -> [u8; PASSWORD_BYTES_MAX] {
    let mut padded = [0; PASSWORD_BYTES_MAX];
    let kept = bytes.len().min(PASSWORD_BYTES_MAX);
    padded[..kept].copy_from_slice(&bytes[..kept]);
    padded
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the password is empty; give at least one byte"),
            Self::TooLong { bytes } => {
                write!(f, "the password has {bytes} bytes; give at most {PASSWORD_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for PasswordError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_match() {
        let password = Password::new(b"open\0sesame").unwrap();
        assert!(password.matches(b"open\0sesame"));
        for other in [&b""[..], b"open", b"open\0sesame\0", b"open\0sesamE", b"Open\0sesame", b"\0"] {
            assert!(!password.matches(other), "{other:?}");
        }
        let longest = vec![b'x'; PASSWORD_BYTES_MAX];
        let password = Password::new(&longest).unwrap();
        assert!(password.matches(&longest));
        assert!(!password.matches(&[&longest[..], b"x"].concat()));
        assert!(!password.matches(&longest[1..]));
    }

    #[test]
    fn nothing_prints_a_password() {
        let secret = "xyzzy".repeat(200);
        let error = Password::new(secret.as_bytes()).unwrap_err();
        assert_eq!(error, PasswordError::TooLong { bytes: 1000 });
        let password = Password::new(b"xyzzy").unwrap();
        let config = crate::Config { password: Some(password.clone()), ..crate::Config::default() };
        for shown in [format!("{password:?}"), format!("{config:?}"), format!("{error:?} {error}")] {
            assert!(!shown.contains("xyzzy"), "{shown}");
        }
        assert_eq!(Password::new(b""), Err(PasswordError::Empty));
    }
}
