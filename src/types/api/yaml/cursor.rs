//! Reads a YAML text by characters; knows line breaks, line and column. Pure.

/// A position in the text; all numbers start at 0 and count characters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
    mark: Mark,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, mark: Mark::default() }
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    pub(super) fn column(&self) -> usize {
        self.mark.column
    }

    /// The byte `offset` bytes ahead; 0 at the end of the text, which contains no NUL.
    pub(super) fn peek(&self, offset: usize) -> u8 {
        self.rest.as_bytes().get(offset).copied().unwrap_or(0)
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn at_blank(&self) -> bool {
        self.is_blank(0)
    }

    pub(super) fn at_break(&self) -> bool {
        self.is_break(0)
    }

    pub(super) fn at_break_or_end(&self) -> bool {
        self.at_end() || self.is_break(0)
    }

    pub(super) fn at_blank_break_or_end(&self) -> bool {
        self.ends_word(0)
    }

    /// A letter, a digit, `_` or `-` of ASCII.
    pub(super) fn at_word(&self) -> bool {
        let byte = self.peek(0);
        byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
    }

    pub(super) fn is_blank(&self, offset: usize) -> bool {
        matches!(self.peek(offset), b' ' | b'\t')
    }

    /// Whether a blank, a line break or the end of the text is `offset` bytes ahead.
    pub(super) fn ends_word(&self, offset: usize) -> bool {
        self.peek(offset) == 0 || self.is_blank(offset) || self.is_break(offset)
    }

    /// The line breaks of YAML 1.1: CR, LF, NEL, LS, PS.
    pub(super) fn is_break(&self, offset: usize) -> bool {
        match self.peek(offset) {
            b'\r' | b'\n' => true,
            0xC2 => self.peek(offset + 1) == 0x85,
            0xE2 => self.peek(offset + 1) == 0x80 && matches!(self.peek(offset + 2), 0xA8 | 0xA9),
            _ => false,
        }
    }

    /// Whether a line begins here with `---` or `...`.
    pub(super) fn at_document_indicator(&self) -> bool {
        self.mark.column == 0 && (self.rest.starts_with("---") || self.rest.starts_with("...")) && self.ends_word(3)
    }

    pub(super) fn skip(&mut self) {
        self.next();
    }

    pub(super) fn read(&mut self, into: &mut String) {
        into.extend(self.next());
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        self.mark.index += 1;
        self.mark.column += 1;
        Some(next)
    }

    /// Reads a line break, if one is here. LS and PS are kept, all others become a line feed.
    pub(super) fn read_break(&mut self, into: &mut String) {
        if !self.at_break() {
            return;
        }
        let crlf = self.rest.starts_with("\r\n");
        match self.next() {
            Some(separator @ ('\u{2028}' | '\u{2029}')) => into.push(separator),
            _ => into.push('\n'),
        }
        if crlf {
            self.skip();
        }
        self.mark.line += 1;
        self.mark.column = 0;
    }

    pub(super) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.at_blank() {
            self.skip();
        }
    }

    pub(super) fn skip_comment(&mut self) {
        if self.peek(0) == b'#' {
            while !self.at_break_or_end() {
                self.skip();
            }
        }
    }

    /// Skips a byte order mark at the start of a line, as in files that were joined. It has no width.
    pub(super) fn skip_byte_order_mark(&mut self) {
        if self.mark.column == 0 {
            self.rest = self.rest.strip_prefix('\u{feff}').unwrap_or(self.rest);
        }
    }

    /// Moves to the start of the next line at the end of the text, so that everything open ends there.
    pub(super) fn end_line(&mut self) {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }
}
