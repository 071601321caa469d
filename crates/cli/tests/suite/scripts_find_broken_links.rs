//! A link to a heading that was renamed leads to the top of a page, and one to a file that was moved leads nowhere.
//! Readers find that out, and nobody who writes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What the script says of a repository whose tracked pages are these.
fn checked(pages: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in pages {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for arguments in [&["init", "--quiet"][..], &["add", "."]] {
        let done = Command::new("git").args(arguments).current_dir(folder.path()).status();
        assert!(done.unwrap().success(), "{arguments:?}");
    }
    fs::write(folder.path().join("untracked.md"), "").unwrap();
    let script = Path::new(REPOSITORY).join("scripts/lint-links");
    Command::new(script).current_dir(folder.path()).output().unwrap()
}

const PAGE: &str = "# The `make test` of [all](../README.md), and *why*
## Twice
## Twice
### Größe & _kind_ of `a_b`: 1.5?
```
# No heading
```
<a id=\"set\"></a>
";

#[test]
fn headings_have_the_anchors_of_github() {
    let links = "[1](docs/page.md#the-make-test-of-all-and-why) [2](docs/page.md#twice) [3](docs/page.md#twice-1)
[a link
over lines](docs/page.md#größe--kind-of-a_b-15) [5](docs/page.md#set) [6](docs) [7](./docs/page.md) [8](#own)
[9](https://example.com/none#none) `[10](none.md)` [`11`](</docs/page.md#set>) ![12](docs/picture.svg \"a title\")

# Own
";
    let output = checked(&[("README.md", links), ("docs/page.md", PAGE), ("docs/picture.svg", "")]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn each_broken_link_is_named_with_its_line() {
    let links = "[1](page.md#twice-2)
```
[2](none.md)
```
[3](page.md#no-heading) `a` [4](../docs/page.md)
[5](docs/page.md) [6](#twice) [7](../untracked.md)
[8]: none.md
";
    let output = checked(&[("docs/README.md", links), ("docs/page.md", PAGE), ("README.md", "")]);
    let expected = "docs/README.md:1: the link page.md#twice-2 names no heading of docs/page.md
docs/README.md:5: the link page.md#no-heading names no heading of docs/page.md
docs/README.md:6: the link docs/page.md names no tracked file
docs/README.md:6: the link #twice names no heading of docs/README.md
docs/README.md:6: the link ../untracked.md names no tracked file
docs/README.md:7: the link none.md names no tracked file
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(1));
}
