//! Scalars: plain, quoted, and block scalars. Pure.

use super::{Cursor, Kind, Mark, Scanner, SyntaxError, Token};

const BLOCK_SCALAR: &str = "while scanning a block scalar";
const QUOTED_SCALAR: &str = "while scanning a quoted scalar";

/// The white space between two parts of a scalar, which folding turns into a space or into line breaks.
#[derive(Default)]
struct Gap {
    /// There was a line break: blanks no longer count.
    broken: bool,
    blanks: String,
    first_break: String,
    more_breaks: String,
}

impl Gap {
    fn read(&mut self, cursor: &mut Cursor<'_>) {
        if cursor.at_blank() {
            if self.broken {
                cursor.skip();
            } else {
                cursor.read(&mut self.blanks);
            }
        } else if self.broken {
            cursor.read_break(&mut self.more_breaks);
        } else {
            self.blanks.clear();
            cursor.read_break(&mut self.first_break);
            self.broken = true;
        }
    }

    /// Appends what the gap stands for, and empties it.
    fn fold(&mut self, text: &mut String) {
        if !self.broken && self.blanks.is_empty() {
            return;
        }
        if !self.broken {
            text.push_str(&self.blanks);
        } else if self.first_break.starts_with('\n') {
            text.push_str(if self.more_breaks.is_empty() { " " } else { &self.more_breaks });
        } else {
            text.push_str(&self.first_break);
            text.push_str(&self.more_breaks);
        }
        *self = Self::default();
    }
}

/// What becomes of the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Clip,
    Strip,
    Keep,
}

impl Scanner<'_> {
    pub(super) fn plain_scalar(&mut self) -> Result<(), SyntaxError> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.cursor.mark();
        let mut text = String::new();
        let mut gap = Gap::default();
        while !self.cursor.at_document_indicator() && self.cursor.peek(0) != b'#' {
            while !self.cursor.at_blank_break_or_end() && !self.plain_scalar_ends() {
                gap.fold(&mut text);
                self.cursor.read(&mut text);
            }
            if !self.cursor.at_blank() && !self.cursor.at_break() {
                break;
            }
            while self.cursor.at_blank() || self.cursor.at_break() {
                let tab = self.cursor.peek(0) == b'\t';
                if gap.broken && tab && self.cursor.column() < self.indent {
                    let problem = "found a tab character that violates indentation";
                    let at = self.cursor.mark();
                    return Err(SyntaxError::new("while scanning a plain scalar", problem, at).began(start));
                }
                gap.read(&mut self.cursor);
            }
            if self.flow_level == 0 && self.cursor.column() < self.indent {
                break;
            }
        }
        if gap.broken {
            self.simple_key_allowed = true;
        }
        self.push(Token::with_text(Kind::PlainScalar, start, text));
        Ok(())
    }

    /// Whether an indicator that ends a plain scalar is here. In flow collections upstream lets `?` end it too, which can
    /// only be an error there; the URL in `[http://host/?query]` is a scalar here, as in newer versions of libyaml.
    fn plain_scalar_ends(&self) -> bool {
        match self.cursor.peek(0) {
            b':' => self.cursor.ends_word(1),
            b',' | b'[' | b']' | b'{' | b'}' => self.flow_level > 0,
            _ => false,
        }
    }

    pub(super) fn quoted_scalar(&mut self, single: bool) -> Result<(), SyntaxError> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.cursor.mark();
        let quote = if single { b'\'' } else { b'"' };
        self.cursor.skip();
        let mut text = String::new();
        let mut gap = Gap::default();
        loop {
            if self.cursor.at_document_indicator() {
                return Err(SyntaxError::new(QUOTED_SCALAR, "found unexpected document indicator", start));
            }
            if self.cursor.at_end() {
                return Err(SyntaxError::new(QUOTED_SCALAR, "found unexpected end of stream", start));
            }
            self.quoted_word(single, start, &mut text, &mut gap)?;
            if self.cursor.peek(0) == quote {
                break;
            }
            while self.cursor.at_blank() || self.cursor.at_break() {
                gap.read(&mut self.cursor);
            }
            gap.fold(&mut text);
        }
        self.cursor.skip();
        self.push(Token::with_text(Kind::StyledScalar, start, text));
        Ok(())
    }

    /// Reads up to a blank, a line break or the closing quote. An escaped line break begins the gap that follows.
    fn quoted_word(&mut self, single: bool, start: Mark, text: &mut String, gap: &mut Gap) -> Result<(), SyntaxError> {
        while !self.cursor.at_blank_break_or_end() {
            match (self.cursor.peek(0), self.cursor.peek(1)) {
                (b'\'', b'\'') if single => {
                    self.cursor.skip();
                    self.cursor.read(text);
                }
                (b'\'', _) if single => break,
                (b'"', _) if !single => break,
                (b'\\', _) if !single && self.cursor.is_break(1) => {
                    self.cursor.skip();
                    self.cursor.skip_break();
                    gap.broken = true;
                    break;
                }
                (b'\\', _) if !single => text.push(self.escaped_character(start)?),
                _ => self.cursor.read(text),
            }
        }
        Ok(())
    }

    fn escaped_character(&mut self, start: Mark) -> Result<char, SyntaxError> {
        let at = self.cursor.mark();
        let (character, digits) = match self.cursor.peek(1) {
            b'0' => ('\0', 0),
            b'a' => ('\u{7}', 0),
            b'b' => ('\u{8}', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\u{b}', 0),
            b'f' => ('\u{c}', 0),
            b'r' => ('\r', 0),
            b'e' => ('\u{1b}', 0),
            b' ' => (' ', 0),
            b'"' => ('"', 0),
            b'\'' => ('\'', 0),
            b'\\' => ('\\', 0),
            // As in JSON and in newer versions of libyaml; an error upstream.
            b'/' => ('/', 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => return Err(SyntaxError::new(QUOTED_SCALAR, "found unknown escape character", at).began(start)),
        };
        self.cursor.skip();
        self.cursor.skip();
        if digits == 0 {
            return Ok(character);
        }
        let mut code = 0_u32;
        for _ in 0..digits {
            let Some(digit) = char::from(self.cursor.peek(0)).to_digit(16) else {
                return Err(SyntaxError::new(QUOTED_SCALAR, "did not find expected hexadecimal digit", at).began(start));
            };
            // Eight digits fill the 32 bits.
            code = (code << 4) | digit;
            self.cursor.skip();
        }
        char::from_u32(code).ok_or_else(|| {
            SyntaxError::new(QUOTED_SCALAR, "found invalid Unicode character escape code", at).began(start)
        })
    }

    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<(), SyntaxError> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.cursor.mark();
        self.cursor.skip();
        let (chomping, increment) = self.block_scalar_header(start)?;
        // 0 means that the first line which is not empty decides.
        let mut indent = increment.map_or(0, |increment| self.indent.saturating_sub(1) + increment);
        let mut text = String::new();
        let mut breaks = String::new();
        self.block_scalar_breaks(&mut indent, &mut breaks, start)?;
        let mut last_break = String::new();
        let mut after_blank = false;
        while self.cursor.column() == indent && !self.cursor.at_end() {
            let at_blank = self.cursor.at_blank();
            if !literal && !after_blank && !at_blank && last_break.starts_with('\n') {
                text.push_str(if breaks.is_empty() { " " } else { "" });
            } else {
                text.push_str(&last_break);
            }
            text.push_str(&breaks);
            last_break.clear();
            breaks.clear();
            after_blank = at_blank;
            while !self.cursor.at_break_or_end() {
                self.cursor.read(&mut text);
            }
            self.cursor.read_break(&mut last_break);
            self.block_scalar_breaks(&mut indent, &mut breaks, start)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(&last_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&breaks);
        }
        self.push(Token::with_text(Kind::StyledScalar, start, text));
        Ok(())
    }

    /// Reads `+`, `-` and the indentation in either order, up to the end of the line.
    fn block_scalar_header(&mut self, start: Mark) -> Result<(Chomping, Option<usize>), SyntaxError> {
        let mut chomping = self.chomping();
        let increment = match self.cursor.peek(0) {
            b'0' => {
                let problem = "found an indentation indicator equal to 0";
                return Err(SyntaxError::new(BLOCK_SCALAR, problem, start));
            }
            digit @ b'1'..=b'9' => {
                self.cursor.skip();
                Some(usize::from(digit - b'0'))
            }
            _ => None,
        };
        if increment.is_some() && chomping.is_none() {
            chomping = self.chomping();
        }
        self.end_of_line(BLOCK_SCALAR, start)?;
        Ok((chomping.unwrap_or(Chomping::Clip), increment))
    }

    fn chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.cursor.peek(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.cursor.skip();
        Some(chomping)
    }

    /// Skips blanks and a comment up to the end of the line, and its line break.
    pub(super) fn end_of_line(&mut self, context: &'static str, start: Mark) -> Result<(), SyntaxError> {
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.at_break_or_end() {
            let problem = "did not find expected comment or line break";
            return Err(SyntaxError::new(context, problem, self.cursor.mark()).began(start));
        }
        self.cursor.skip_break();
        Ok(())
    }

    /// Reads indentation and empty lines of a block scalar, and decides its indentation if `indent` is 0.
    fn block_scalar_breaks(&mut self, indent: &mut usize, breaks: &mut String, start: Mark) -> Result<(), SyntaxError> {
        let mut deepest = 0;
        loop {
            while (*indent == 0 || self.cursor.column() < *indent) && self.cursor.peek(0) == b' ' {
                self.cursor.skip();
            }
            deepest = deepest.max(self.cursor.column());
            if (*indent == 0 || self.cursor.column() < *indent) && self.cursor.peek(0) == b'\t' {
                let problem = "found a tab character where an indentation space is expected";
                return Err(SyntaxError::new(BLOCK_SCALAR, problem, self.cursor.mark()).began(start));
            }
            if !self.cursor.at_break() {
                break;
            }
            self.cursor.read_break(breaks);
        }
        if *indent == 0 {
            *indent = deepest.max(self.indent).max(1);
        }
        Ok(())
    }
}
