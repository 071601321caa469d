//! The exported names. A program that is started with the library finds these before those of its C library, of
//! jemalloc and of libstdc++.
//!
//! - [`c`]: the `malloc` family of C23, POSIX and glibc, and the names by which glibc calls it
//! - [`cpp`]: `operator new` and `operator delete`
//! - [`jemalloc`]: what jemalloc adds, so that a program that asks jemalloc for statistics asks this one

mod c;
mod cpp;
mod jemalloc;
