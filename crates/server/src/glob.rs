//! Glob patterns of `SCAN MATCH` and `CONFIG GET`: `*`, `?`, `[a-c]`, `[^a]`, `\` before a literal.
//!
//! Only the last `*` is ever retried, so a hostile pattern costs pattern times text, never an exponential.

/// Whether the whole of `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on after the last `*`, should it have to swallow one more byte.
    let mut retry: Option<(usize, usize)> = None;
    while from < text.len() || at < pattern.len() {
        if pattern.get(at) == Some(&b'*') {
            retry = Some((at + 1, from));
            at += 1;
            continue;
        }
        if let Some(&byte) = text.get(from)
            && let Some(next) = one(pattern, at, byte)
        {
            at = next;
            from += 1;
            continue;
        }
        match retry {
            Some((star, swallowed)) if swallowed < text.len() => {
                retry = Some((star, swallowed + 1));
                at = star;
                from = swallowed + 1;
            }
            _ => return false,
        }
    }
    true
}

/// Matches the pattern element at `at`, which is no `*`, against `byte`; returns where the next element starts.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => {
            let (matched, next) = class(pattern, at + 1, byte);
            matched.then_some(next)
        }
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// Whether `byte` is in the class that opens before `at`, and where the class ends. One that stays open ends with
/// the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut matched = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                matched |= *literal == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                matched |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                matched |= *literal == byte;
                at += 1;
            }
        }
    }
    (matched != negated, at)
}

/// The literal bytes that every match starts with.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = memchr::memchr3(b'*', b'?', b'[', pattern).unwrap_or(pattern.len());
    let end = memchr::memchr(b'\\', &pattern[..end]).unwrap_or(end);
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[ab", "a", true),
            ("[]", "a", false),
            ("\\", "\\", true),
            ("user:*:name", "user:12:name", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_stay_quick() {
        let pattern = b"*a".repeat(500);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &vec![b'a'; 20_000]));
    }

    #[test]
    fn prefix_ends_before_the_first_wildcard() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"us\\er*"), b"us");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(b"*"), b"");
    }
}
