//! Which bytes keys and values are, where they come from, and what a read may answer.

pub(crate) mod corpus;
pub(crate) mod fnv;
pub(crate) mod generator;
pub(crate) mod keys;
pub(crate) mod oracle;
pub(crate) mod values;
