//! Requests that leave the buffer they came in, for another thread or a reply that is made later.

use super::{Args, Span};

/// A request that outlives the buffer it came in.
#[derive(Debug)]
pub(crate) struct OwnedArgs {
    text: Vec<u8>,
    /// The start of the request in `text`.
    start: usize,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// A copy, for requests that are short.
    pub(crate) fn copy(args: &Args<'_>) -> Self {
        Self { text: args.text[..args.text_len()].to_vec(), start: 0, spans: args.spans.to_vec() }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args { text: &self.text[self.start..], spans: &self.spans }
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

/// A whole request that was taken out of a parser, without its text if that lies in the caller's buffer.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) spans: Vec<Span>,
    pub(super) inline: Option<Vec<u8>>,
}

impl Taken {
    /// The same request, of a text with so many bytes more in front of what the parser saw.
    pub(crate) fn behind(&mut self, bytes: usize) {
        self.start += bytes;
        self.end += bytes;
    }

    /// The request, of which `input` has the text as the parser saw it.
    pub(crate) fn copy_from(self, input: &[u8]) -> OwnedArgs {
        let text = self.inline.unwrap_or_else(|| input[self.start..self.end].to_vec());
        OwnedArgs { text, start: 0, spans: self.spans }
    }

    /// The same, but `input` becomes the text if the request is most of it. Also returns the part of `input` behind the
    /// request.
    pub(crate) fn move_from(self, input: Vec<u8>) -> (OwnedArgs, Vec<u8>) {
        let rest = input[self.end..].to_vec();
        if self.inline.is_some() || self.end - self.start < input.len() / 2 {
            return (self.copy_from(&input), rest);
        }
        (OwnedArgs { text: input, start: self.start, spans: self.spans }, rest)
    }
}
