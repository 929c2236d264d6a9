//! Directives, anchors, aliases and tags. Pure.

use super::{Kind, Mark, Scanner, SyntaxError, Token};

const DIRECTIVE: &str = "while scanning a directive";
const YAML_DIRECTIVE: &str = "while scanning a %YAML directive";
const TAG_DIRECTIVE: &str = "while scanning a %TAG directive";
const TAG: &str = "while scanning a tag";

impl Scanner<'_> {
    pub(super) fn directive(&mut self) -> Result<(), SyntaxError> {
        self.end_blocks(0);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.cursor.mark();
        self.cursor.skip();
        let mut name = String::new();
        self.read_word(&mut name);
        let token = match name.as_str() {
            "YAML" => self.yaml_directive(start)?,
            "TAG" => self.tag_directive(start)?,
            _ => return Err(SyntaxError::new(DIRECTIVE, "found unknown directive name", start)),
        };
        self.end_of_line(DIRECTIVE, start)?;
        self.push(token);
        Ok(())
    }

    fn read_word(&mut self, word: &mut String) {
        while self.cursor.at_word() {
            self.cursor.read(word);
        }
    }

    /// Upstream knows version 1.1 only. 1.2 is accepted as libyaml does: the rules of 1.1 apply.
    fn yaml_directive(&mut self, start: Mark) -> Result<Token, SyntaxError> {
        self.cursor.skip_blanks();
        let mut version = String::new();
        while matches!(self.cursor.peek(0), b'0'..=b'9' | b'.') {
            self.cursor.read(&mut version);
        }
        match version.as_str() {
            "1.1" | "1.2" => Ok(Token::bare(Kind::YamlDirective, start)),
            _ => Err(SyntaxError::new(YAML_DIRECTIVE, "found incompatible YAML version, 1.1 is expected", start)),
        }
    }

    fn tag_directive(&mut self, start: Mark) -> Result<Token, SyntaxError> {
        self.cursor.skip_blanks();
        let handle = self.tag_handle(TAG_DIRECTIVE)?;
        if !handle.ends_with('!') {
            return Err(SyntaxError::new(TAG_DIRECTIVE, "did not find expected '!'", self.cursor.mark()));
        }
        if !self.cursor.at_blank() {
            return Err(SyntaxError::new(TAG_DIRECTIVE, "did not find expected whitespace", self.cursor.mark()));
        }
        self.cursor.skip_blanks();
        let prefix = self.tag_uri(String::new(), TAG_DIRECTIVE)?;
        if !self.cursor.at_blank_break_or_end() {
            let problem = "did not find expected whitespace or line break";
            return Err(SyntaxError::new(TAG_DIRECTIVE, problem, self.cursor.mark()));
        }
        Ok(Token { suffix: prefix, ..Token::with_text(Kind::TagDirective, start, handle) })
    }

    pub(super) fn anchor(&mut self, kind: Kind) -> Result<(), SyntaxError> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.cursor.mark();
        self.cursor.skip();
        let mut name = String::new();
        self.read_word(&mut name);
        let ends = self.cursor.at_blank_break_or_end()
            || matches!(self.cursor.peek(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            let context = if kind == Kind::Alias { "while scanning an alias" } else { "while scanning an anchor" };
            let problem = "did not find expected alphabetic or numeric character";
            return Err(SyntaxError::new(context, problem, self.cursor.mark()));
        }
        self.push(Token::with_text(kind, start, name));
        Ok(())
    }

    pub(super) fn tag(&mut self) -> Result<(), SyntaxError> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.cursor.mark();
        let (handle, suffix) =
            if self.cursor.peek(1) == b'<' { (String::new(), self.verbatim_tag()?) } else { self.shorthand_tag()? };
        if !self.cursor.at_blank_break_or_end() {
            let problem = "did not find expected whitespace or line break";
            return Err(SyntaxError::new(TAG, problem, self.cursor.mark()));
        }
        self.push(Token { suffix, ..Token::with_text(Kind::Tag, start, handle) });
        Ok(())
    }

    /// `!<tag:yaml.org,2002:str>`.
    fn verbatim_tag(&mut self) -> Result<String, SyntaxError> {
        self.cursor.skip();
        self.cursor.skip();
        let tag = self.tag_uri(String::new(), TAG)?;
        if self.cursor.peek(0) != b'>' {
            return Err(SyntaxError::new(TAG, "did not find the expected '>'", self.cursor.mark()));
        }
        self.cursor.skip();
        Ok(tag)
    }

    /// Handle and suffix of `!!str`, `!handle!suffix`, `!suffix` and `!`. The last has no handle.
    fn shorthand_tag(&mut self) -> Result<(String, String), SyntaxError> {
        let handle = self.tag_handle(TAG)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.tag_uri(String::new(), TAG)?;
            return Ok((handle, suffix));
        }
        let suffix = self.tag_uri(handle, TAG)?;
        match suffix.strip_prefix('!') {
            Some("") => Ok((String::new(), suffix)),
            Some(suffix) => Ok(("!".to_owned(), suffix.to_owned())),
            None => Ok(("!".to_owned(), suffix)),
        }
    }

    /// `!`, `!!`, `!word!`, or `!word`, which is no handle but the start of a tag.
    fn tag_handle(&mut self, context: &'static str) -> Result<String, SyntaxError> {
        if self.cursor.peek(0) != b'!' {
            return Err(SyntaxError::new(context, "did not find expected '!'", self.cursor.mark()));
        }
        let mut handle = String::new();
        self.cursor.read(&mut handle);
        self.read_word(&mut handle);
        if self.cursor.peek(0) == b'!' {
            self.cursor.read(&mut handle);
        }
        Ok(handle)
    }

    /// Appends the characters of a URI to `uri`.
    fn tag_uri(&mut self, uri: String, context: &'static str) -> Result<String, SyntaxError> {
        let start = self.cursor.mark();
        let mut uri = uri.into_bytes();
        loop {
            let byte = self.cursor.peek(0);
            if byte == b'%' {
                uri.push(self.escaped_octet(context)?);
            } else if self.cursor.at_word() || b";/?:@&=+$,.!~*'()[]".contains(&byte) {
                uri.push(byte);
            } else {
                break;
            }
            self.cursor.skip();
        }
        if uri.is_empty() {
            return Err(SyntaxError::new(context, "did not find expected tag URI", start));
        }
        String::from_utf8(uri).map_err(|_| SyntaxError::new(context, "found an incorrect UTF-8 octet", start))
    }

    /// The octet of `%41`. The cursor stays at its last digit.
    fn escaped_octet(&mut self, context: &'static str) -> Result<u8, SyntaxError> {
        let mut octet = 0_u8;
        for _ in 0..2 {
            self.cursor.skip();
            let digit = char::from(self.cursor.peek(0)).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let Some(digit) = digit else {
                return Err(SyntaxError::new(context, "did not find URI escaped octet", self.cursor.mark()));
            };
            octet = (octet << 4) | digit;
        }
        Ok(octet)
    }
}
