//! What `libziptier_alloc.so` and the command `ziptier alloc` share.
//!
//! The library is an allocator that spreads the heap of an unmodified program over DRAM and far memory. The command
//! shows and changes it while the program runs. This crate exports no symbol of an allocator.
//!
//! The library's modules run inside `malloc`. They are code for `core` alone: they allocate nothing, take no lock and
//! call no function of libc, but for a system call that rustix does not have. The command's modules use the standard
//! library, and the library must not call them.
//!
//! | module | side | what it owns |
//! |---|---|---|
//! | [`configuration`] | both | the options, and the environment that sets them |
//! | [`placement`] | library | the policy: which sizes lie in far memory |
//! | [`page`] | both | the shared page: what the command wants, and what the library tells |
//! | [`classes`] | both | named classes: budgets that several processes share |
//! | [`size_class`] | both | the classes of sizes by which live bytes are counted |
//! | [`fixed_text`] | both | text without an allocation |
//! | [`programs`] | command | the running programs that have the library, and why others do not |

#![no_std]
#![deny(missing_docs)]
#![deny(unsafe_code)]

extern crate std;

pub mod classes;
pub mod configuration;
pub mod fixed_text;
pub mod page;
pub mod placement;
pub mod programs;
pub mod size_class;
