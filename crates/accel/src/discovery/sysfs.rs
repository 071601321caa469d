//! Reads small, untrusted text files of sysfs.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::Oddity;

/// No attribute of sysfs is longer than a page.
const FILE_BYTES_MAX: u64 = 4096;

/// No bus has more entries that matter.
const ENTRIES_MAX: usize = 8192;

/// A folder of attributes, with a list of their oddities.
pub(super) struct Folder<'a> {
    path: PathBuf,
    oddities: &'a mut Vec<Oddity>,
}

impl Folder<'_> {
    pub(super) fn new(path: PathBuf, oddities: &mut Vec<Oddity>) -> Folder<'_> {
        Folder { path, oddities }
    }

    /// The text of an attribute, without surrounding white space; `None` if the attribute is missing or odd.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let path = self.path.join(name);
        match read(&path) {
            Ok(text) => text,
            Err(what) => {
                self.oddities.push(Oddity { path, what });
                None
            }
        }
    }

    /// A number in decimal, or in hexadecimal behind `0x`.
    pub(super) fn number<N: TryFrom<i128>>(&mut self, name: &str) -> Option<N> {
        self.parse(name, "a number", |text| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok()?.into(),
                None => i128::from(text.parse::<i64>().ok()?),
            };
            N::try_from(number).ok()
        })
    }

    /// 0 or 1.
    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.parse(name, "0 or 1", |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
    }

    /// 256 bits: groups of 32 with commas, the highest first, or four words of 64 with spaces, the lowest first.
    pub(super) fn bits(&mut self, name: &str) -> Option<[u64; 4]> {
        self.parse(name, "256 bits in hexadecimal", |text| {
            if text.contains(',') { grouped_bits(text) } else { spaced_bits(text) }
        })
    }

    fn parse<T>(&mut self, name: &str, wanted: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name)?;
        let parsed = parse(&text);
        if parsed.is_none() {
            let what = format!("is not {wanted}: {:?}", text.chars().take(40).collect::<String>());
            self.oddities.push(Oddity { path: self.path.join(name), what });
        }
        parsed
    }
}

fn grouped_bits(text: &str) -> Option<[u64; 4]> {
    let mut words = [0u64; 4];
    for (at, group) in text.rsplit(',').enumerate() {
        let group = u32::from_str_radix(group, 16).ok()?;
        *words.get_mut(at / 2)? |= u64::from(group) << (32 * (at % 2));
    }
    Some(words)
}

fn spaced_bits(text: &str) -> Option<[u64; 4]> {
    let mut words = [0u64; 4];
    for (at, word) in text.split_whitespace().enumerate() {
        *words.get_mut(at)? = u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()?;
    }
    Some(words)
}

fn read(path: &Path) -> Result<Option<String>, String> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err("is not a file".into()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(length) if length as u64 > FILE_BYTES_MAX => Err(format!("is longer than {FILE_BYTES_MAX} bytes")),
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) if !text.trim().contains(|c: char| c.is_control() && c != '\n' && c != '\t') => {
                Ok(Some(text.trim().to_owned()))
            }
            _ => Err("is not text".into()),
        },
    }
}

/// Names in a folder, sorted; `None` if it is not there.
pub(super) fn names(path: &Path, oddities: &mut Vec<Oddity>) -> Option<Vec<String>> {
    let entries = match path.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            oddities.push(Oddity { path: path.to_owned(), what: format!("cannot be listed: {error}") });
            return None;
        }
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(ENTRIES_MAX).collect();
    names.sort_unstable();
    Some(names)
}

/// The number of `iax7` for the prefix `iax`.
pub(super) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// The numbers of `wq7.1` for the prefix `wq`.
pub(super) fn numbered_twice(name: &str, prefix: &str) -> Option<(u32, u32)> {
    let (device, number) = name.strip_prefix(prefix)?.split_once('.')?;
    Some((numbered(device, "")?, numbered(number, "")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_of_both_kinds_are_read() {
        let grouped = "00000000,00000000,00000000,00000000,00000000,007f331c,00000000,0000000d";
        assert_eq!(grouped_bits(grouped), Some([0xD, 0x007F_331C, 0, 0]));
        assert_eq!(spaced_bits("0xd 0x7f331c 0x0 0x0"), Some([0xD, 0x007F_331C, 0, 0]));
        assert_eq!(grouped_bits("0,0,0,0,0,0,0,0,0"), None);
        assert_eq!(spaced_bits("0x1 0x2 0x3 0x4 0x5"), None);
        assert_eq!(spaced_bits("all"), None);
    }

    #[test]
    fn names_that_are_no_devices_have_no_number() {
        assert_eq!(numbered("iax12", "iax"), Some(12));
        assert_eq!(numbered_twice("wq3.7", "wq"), Some((3, 7)));
        for name in ["iax", "iax-1", "iax+1", "iax99999999999", "dsa1", "iax1.0", "iax1 "] {
            assert_eq!(numbered(name, "iax"), None, "{name}");
        }
        for name in ["wq1", "wq1.", "wq.1", "wq1.2.3", "wq1.+2"] {
            assert_eq!(numbered_twice(name, "wq"), None, "{name}");
        }
    }
}
