//! The first look at a head or trailer section: where it ends, and whether its lines are lines.
//!
//! Runs before any field is parsed, keeps its place between reads (so a peer that sends one byte at
//! a time costs linear work), and refuses at the first wrong byte instead of waiting for the end.
//! It accepts only CRLF line ends and no NUL, bare CR, bare LF, folded line or leading empty line:
//! the places where two parsers most often disagree about the same bytes.

use super::head::{HeadError, HeadLimits};

/// Room for method, version and blanks in a request line beside the target.
const LINE_SLACK: usize = 64;

/// Which section is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Request,
    Response,
    Trailers,
}

/// Scanner of one head (or trailer section); offsets are relative to its first byte.
#[derive(Clone, Debug)]
pub struct HeadScan {
    section: Section,
    /// Bytes looked at so far.
    seen: usize,
    /// Where the current line began.
    line_start: usize,
    /// Lines complete so far, the first line included.
    lines: usize,
    /// The last byte seen was CR.
    after_cr: bool,
}

impl HeadScan {
    /// Scanner for a request head.
    #[must_use]
    pub const fn request() -> Self {
        Self::new(Section::Request)
    }

    /// Scanner for a response head.
    #[must_use]
    pub const fn response() -> Self {
        Self::new(Section::Response)
    }

    /// Scanner for the trailer section after a last chunk.
    #[must_use]
    pub(super) const fn trailers() -> Self {
        Self::new(Section::Trailers)
    }

    const fn new(section: Section) -> Self {
        Self {
            section,
            seen: 0,
            line_start: 0,
            lines: 0,
            after_cr: false,
        }
    }

    /// Continue over `buf`, which starts at the head's first byte and has only grown since the last
    /// call. Gives the head's length, the empty line included, once it is complete.
    ///
    /// # Errors
    /// The first byte or size that no valid head could have.
    pub fn scan(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        debug_assert!(buf.len() >= self.seen, "the buffer must only grow");
        while let Some(&byte) = buf.get(self.seen) {
            let at = self.seen;
            if at >= limits.max_bytes {
                return Err(HeadError::TooLarge);
            }
            self.seen += 1;
            if self.after_cr {
                if byte != b'\n' {
                    return Err(HeadError::BareCr);
                }
                self.after_cr = false;
                if self.end_line(at, limits)? {
                    return Ok(Some(self.seen));
                }
                continue;
            }
            match byte {
                b'\r' => self.after_cr = true,
                b'\n' => return Err(HeadError::BareLf),
                0 => return Err(HeadError::Nul),
                b' ' | b'\t' if at == self.line_start && !self.in_first_line() => {
                    return Err(HeadError::Folding);
                }
                _ => self.check_line_length(at, limits)?,
            }
        }
        Ok(None)
    }

    fn in_first_line(&self) -> bool {
        self.lines == 0 && self.section != Section::Trailers
    }

    /// A line ended with the LF at `at`; true if it was the empty line that ends the section.
    fn end_line(&mut self, at: usize, limits: &HeadLimits) -> Result<bool, HeadError> {
        if self.line_start + 1 == at {
            return match self.in_first_line() {
                true => Err(HeadError::EmptyFirstLine),
                false => Ok(true),
            };
        }
        self.lines += 1;
        self.line_start = at + 1;
        let fields = match self.section {
            Section::Trailers => self.lines,
            Section::Request | Section::Response => self.lines - 1,
        };
        if fields > limits.max_fields {
            return Err(HeadError::TooManyFields);
        }
        Ok(false)
    }

    fn check_line_length(&self, at: usize, limits: &HeadLimits) -> Result<(), HeadError> {
        let too_long = self.section == Section::Request
            && self.in_first_line()
            && at > limits.max_target + LINE_SLACK;
        match too_long {
            true => Err(HeadError::UriTooLong),
            false => Ok(()),
        }
    }
}
