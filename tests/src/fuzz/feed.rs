//! Choices out of bytes: makes structured input for the targets that need it.
//!
//! When the bytes are used up every choice is the first; so each input has one meaning, and cutting its
//! end makes a simpler one.

/// Reads choices from bytes.
pub struct Feed<'d> {
    data: &'d [u8],
}

/// Numbers near which things break.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    255,
    4096,
    65_535,
    65_536,
    1 << 31,
    u32::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

impl<'d> Feed<'d> {
    /// Over `data`.
    pub fn new(data: &'d [u8]) -> Self {
        Self { data }
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        match self.data.split_first() {
            Some((first, rest)) => {
                self.data = rest;
                *first
            }
            None => 0,
        }
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `bound`, or zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = usize::from(self.byte()) << 8 | usize::from(self.byte());
        wide % bound.max(1)
    }

    /// One of `choices`.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let at = usize::from(self.byte()) % choices.len();
        choices[at].clone()
    }

    /// A number, often one near which things break.
    pub fn number(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => u64::from(self.byte() % 8),
            1 => self.pick(&EDGES),
            2 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            _ => u64::from_be_bytes(self.array()),
        }
    }

    /// So many bytes, zeros behind the end.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// Up to `most` bytes; their number is read first.
    pub fn bytes(&mut self, most: usize) -> &'d [u8] {
        let len = self.below(most + 1).min(self.data.len());
        let (taken, rest) = self.data.split_at(len);
        self.data = rest;
        taken
    }

    /// Text of up to `most` bytes, what is no UTF-8 replaced.
    pub fn text(&mut self, most: usize) -> String {
        String::from_utf8_lossy(self.bytes(most)).into_owned()
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'d [u8] {
        std::mem::take(&mut self.data)
    }
}
