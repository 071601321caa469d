//! A list of one item in place, or of several items in a box: most large values have one chunk and lie in one piece.

use std::ops::Deref;

use crate::memory::allocated_bytes;

/// Things of which there is mostly one.
pub(crate) enum Few<T> {
    One([T; 1]),
    Many(Box<[T]>),
}

impl<T> Few<T> {
    /// Bytes held besides its own.
    pub(crate) fn boxed_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Many(things) => allocated_bytes(size_of_val(&**things)),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(thing) => thing,
            Self::Many(things) => things,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(things: Vec<T>) -> Self {
        <[T; 1]>::try_from(things).map_or_else(|things| Self::Many(things.into()), Self::One)
    }
}
