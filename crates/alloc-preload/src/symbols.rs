//! The exported names. A program that is started with the library finds these before those of its C library, of
//! jemalloc and of libstdc++.
//!
//! - [`c`]: the `malloc` family of C23, POSIX and glibc, and the names by which glibc calls it
//! - [`cpp`]: `operator new` and `operator delete`
//! - [`jemalloc`]: what jemalloc adds, so that a program that asks jemalloc for statistics asks this one
//!
//! The library's own tests have these functions by their Rust names alone: the program of the tests keeps the `malloc`
//! that it has, which is the sanitizer's under a sanitizer.

pub(crate) mod c;
#[cfg_attr(test, allow(non_snake_case, reason = "the names are those of the Itanium ABI"))]
pub(crate) mod cpp;
pub(crate) mod jemalloc;
