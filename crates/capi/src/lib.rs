//! The C interface of ziptier: block codecs, dictionaries, tokens, and the store.
//!
//! C and C++ programs include `include/ziptier.h`, which cbindgen makes of this crate, and link `libziptier`, which
//! `make capi` installs. `docs/c.md` is the page for them. A Rust program uses `ziptier` and `ziptier-codec` instead.
//!
//! Three rules hold for every function:
//!
//! 1. Memory that a caller hands in is only used during the call. A caller frees what it was given, by the function
//!    that the comment names.
//! 2. [`status`] catches panics and turns them into a status, so that none unwinds into C.
//! 3. `arguments` is the only place that trusts pointers. It refuses null pointers and impossible lengths.
//!
//! | module | claim |
//! |---|---|
//! | [`status`] | the status of a call, the sentence of an error, the border for panics |
//! | [`version`] | the version of the header and of the library |
//! | [`buffer`] | slices, options and buffers, as C sees them |
//! | [`codec`] | compress and decompress blocks, on any thread |
//! | [`dictionary`] | what blocks share |
//! | [`tokens`] | single values by tokens |
//! | [`analytics`] | packed integers: scan, extract, select, expand |
//! | [`store`] | open, read, write, close |
//! | [`batch`] | several writes at once |
//! | [`iterator`] | records in key order |
//! | `arguments` | from pointers and lengths to slices |
//! | `store_options` | the options of a store by their names |
//! | `figures` | statistics as text |
//! | `pool` | scratch that any thread takes |

#![deny(missing_docs)]
#![allow(non_camel_case_types, reason = "C's names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the comments are the header's; its first lines state the promises"
)]

mod arguments;
mod figures;
mod pool;
mod store_options;

// The header lists functions in this order, which rustfmt keeps between empty lines.

pub mod status;

pub mod version;

pub mod buffer;

pub mod codec;

pub mod dictionary;

pub mod tokens;

pub mod analytics;

pub mod store;

pub mod batch;

pub mod iterator;

/// What the header says of threads.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<codec::ziptier_codec>();
    is_shared::<dictionary::ziptier_dictionary>();
    is_shared::<tokens::ziptier_tokens>();
    is_shared::<analytics::ziptier_analytics>();
    is_shared::<store::ziptier_store>();
    const fn may_move<T: Send>() {}
    may_move::<batch::ziptier_batch>();
    may_move::<iterator::ziptier_iterator>();
};
