//! Little-endian fields of structures that are plain bytes, by their offsets.

/// A getter and a setter for each field: its names, its offset in bytes, its type.
macro_rules! fields {
    ($($(#[$doc:meta])* $get:ident $set:ident $at:literal $type:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $get(&self) -> $type {
                let mut bytes = [0; size_of::<$type>()];
                bytes.copy_from_slice(&self.0[$at..$at + size_of::<$type>()]);
                <$type>::from_le_bytes(bytes)
            }

            $(#[$doc])*
            pub fn $set(&mut self, value: $type) -> &mut Self {
                self.0[$at..$at + size_of::<$type>()].copy_from_slice(&value.to_le_bytes());
                self
            }
        )*
    };
}
