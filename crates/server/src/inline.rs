//! Inline commands: a line of words, for `nc` and for people. Quotes and escapes as redis-cli has them.

use crate::request::Span;

/// Splits `line` into words. Clears `text` and `spans`, and fills them with the words' text and ranges. `None` if a
/// quote stays open, or if no blank follows a closed quote.
pub(crate) fn split(line: &[u8], text: &mut Vec<u8>, spans: &mut Vec<Span>) -> Option<()> {
    text.clear();
    spans.clear();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // Vertical tab is a blank in C, and not in Rust.
        while let [0x0b, tail @ ..] = rest {
            rest = tail.trim_ascii_start();
        }
        if rest.is_empty() {
            return Some(());
        }
        let start = text.len();
        rest = word(rest, text)?;
        spans.push(Span::new(start, text.len()));
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Appends one word and returns what follows it.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return Some(rest),
            [byte, ..] if is_blank(*byte) => return Some(rest),
            [b'"', tail @ ..] => return double_quoted(tail, text),
            [b'\'', tail @ ..] => return single_quoted(tail, text),
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return closed(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', tail @ ..] => return closed(tail),
            [b'\\', b'\'', tail @ ..] => {
                text.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

/// A closing quote ends the word.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|byte| is_blank(*byte)).then_some(rest)
}

/// `digit` is a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut text, &mut spans)?;
        let word =
            |span: &Span| String::from_utf8_lossy(&text[span.start as usize..span.end as usize]).into();
        Some(spans.iter().map(word).collect())
    }

    #[test]
    fn quotes_and_escapes() {
        assert_eq!(words("  set\tk  v ").unwrap(), ["set", "k", "v"]);
        assert_eq!(words("\x0b \x0bping").unwrap(), ["ping"]);
        assert_eq!(words(r#"a "b c" 'd \' e'"#).unwrap(), ["a", "b c", "d ' e"]);
        assert_eq!(words(r#"a "\x41\n\q\"" '\n'"#).unwrap(), ["a", "A\nq\"", "\\n"]);
        assert_eq!(words(r#"x "" y"#).unwrap(), ["x", "", "y"]);
        assert_eq!(words(r#"x ab"c d""#).unwrap(), ["x", "abc d"]);
        assert_eq!(words("").unwrap(), [""; 0]);
        for open in [r#"""#, r#""a"#, "'a", r#""a\"#, r#""a"b"#, "'a'b"] {
            assert_eq!(words(open), None, "{open}");
        }
    }
}
