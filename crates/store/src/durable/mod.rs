//! A store that survives its process.

mod generation;
mod image;
mod manifest;
mod reader;

pub(crate) use reader::Reader;
