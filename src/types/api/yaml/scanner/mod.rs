//! Splits a YAML text into tokens. Pure.
//!
//! A port of the scanner of go-yaml v2 (`scannerc.go`), which is a port of libyaml's: what it accepts is what Kubernetes
//! accepts. The comments name the few places that accept more.

mod scalars;
mod tags;

use std::collections::VecDeque;

use super::MAX_YAML_DEPTH;
use super::cursor::{Cursor, Mark};
use super::syntax_error::SyntaxError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    YamlDirective,
    /// `text` is the handle, `suffix` the prefix.
    TagDirective,
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias,
    Anchor,
    /// `text` is the handle.
    Tag,
    PlainScalar,
    /// A quoted or a block scalar.
    StyledScalar,
    StreamEnd,
}

#[derive(Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: Mark,
    pub(super) text: String,
    pub(super) suffix: String,
}

impl Token {
    fn bare(kind: Kind, start: Mark) -> Self {
        Self::with_text(kind, start, String::new())
    }

    fn with_text(kind: Kind, start: Mark, text: String) -> Self {
        Self { kind, start, text, suffix: String::new() }
    }
}

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    cursor: Cursor<'a>,
    /// Tokens that the parser has not taken; more than one while a key may still turn out to be one.
    tokens: VecDeque<Token>,
    /// Number of tokens that the parser has taken.
    taken: usize,
    /// The kind of the newest token at the end of the queue.
    newest: Option<Kind>,
    /// One more than the column of the innermost block collection; 0 outside of all.
    indent: usize,
    indents: Vec<usize>,
    /// Nesting of brackets and braces.
    flow_level: usize,
    /// The latest possible key of each flow level. The block level is the first.
    simple_keys: Vec<Option<SimpleKey>>,
    simple_key_allowed: bool,
}

/// A token that is a key if a colon follows it.
#[derive(Clone, Copy, Debug)]
struct SimpleKey {
    /// Nothing but a key can be here.
    required: bool,
    /// The number of its token in the stream.
    token: usize,
    mark: Mark,
}

/// The colon of a key without `?` is at most this many characters behind the start of the key.
const MAX_SIMPLE_KEY_CHARS: usize = 1024;

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            cursor: Cursor::new(text),
            tokens: VecDeque::new(),
            taken: 0,
            newest: None,
            indent: 0,
            indents: Vec::new(),
            flow_level: 0,
            simple_keys: vec![None],
            simple_key_allowed: true,
        }
    }

    /// The kind and position of the next token. The stream's end repeats for ever.
    pub(super) fn peek(&mut self) -> Result<(Kind, Mark), SyntaxError> {
        self.fill()?;
        Ok(self.tokens.front().map_or((Kind::StreamEnd, self.cursor.mark()), |token| (token.kind, token.start)))
    }

    pub(super) fn take(&mut self) -> Result<Token, SyntaxError> {
        self.fill()?;
        self.taken += 1;
        Ok(self.tokens.pop_front().unwrap_or_else(|| Token::bare(Kind::StreamEnd, self.cursor.mark())))
    }

    /// Scans until the first token of the queue is certain.
    fn fill(&mut self) -> Result<(), SyntaxError> {
        while self.tokens.is_empty() || self.first_may_be_key()? {
            self.scan_next()?;
        }
        Ok(())
    }

    /// Whether the first token of the queue may still become a key, before which a KEY token is inserted.
    fn first_may_be_key(&mut self) -> Result<bool, SyntaxError> {
        let level = self.simple_keys.iter().position(|key| key.is_some_and(|key| key.token == self.taken));
        match level {
            Some(level) => Ok(self.valid_simple_key(level)?.is_some()),
            None => Ok(false),
        }
    }

    fn scan_next(&mut self) -> Result<(), SyntaxError> {
        self.skip_to_token();
        let column = self.cursor.column();
        self.end_blocks(column + 1);
        if self.cursor.at_end() {
            return self.stream_end();
        }
        let byte = self.cursor.peek(0);
        if column == 0 && byte == b'%' {
            return self.directive();
        }
        if self.cursor.at_document_indicator() {
            return self.document_indicator(if byte == b'-' { Kind::DocumentStart } else { Kind::DocumentEnd });
        }
        let in_flow = self.flow_level > 0;
        let word_ends = self.cursor.ends_word(1);
        match byte {
            b'[' => self.flow_start(Kind::FlowSequenceStart),
            b'{' => self.flow_start(Kind::FlowMappingStart),
            b']' => self.flow_end(Kind::FlowSequenceEnd),
            b'}' => self.flow_end(Kind::FlowMappingEnd),
            b',' => self.flow_entry(),
            b'-' if word_ends => self.block_entry(),
            b'?' if in_flow || word_ends => self.key(),
            b':' if word_ends || (in_flow && !self.at_scalar_with_colon()) => self.value(),
            b'*' => self.anchor(Kind::Alias),
            b'&' => self.anchor(Kind::Anchor),
            b'!' => self.tag(),
            b'|' if !in_flow => self.block_scalar(true),
            b'>' if !in_flow => self.block_scalar(false),
            b'\'' => self.quoted_scalar(true),
            b'"' => self.quoted_scalar(false),
            b'\t' | b'|' | b'>' | b'%' | b'@' | b'`' => Err(self.unexpected_character(byte)),
            _ => self.plain_scalar(),
        }
    }

    fn unexpected_character(&self, byte: u8) -> SyntaxError {
        let problem = match byte {
            b'\t' => "found a tab character where indentation with spaces or a token is expected",
            _ => "found character that cannot start any token",
        };
        SyntaxError::new("while scanning for the next token", problem, self.cursor.mark())
    }

    /// Whether a plain scalar that begins with a colon is here in a flow collection: `[:8080]`. Upstream knows no such
    /// scalars: there every value that this accepts is an error.
    fn at_scalar_with_colon(&self) -> bool {
        let begins = matches!(
            self.newest,
            Some(Kind::FlowSequenceStart | Kind::FlowMappingStart | Kind::FlowEntry | Kind::Value)
        );
        begins && !matches!(self.cursor.peek(1), b',' | b'[' | b']' | b'{' | b'}')
    }

    /// Skips blanks, comments and line breaks. Tabs may not be where they could be taken for indentation.
    fn skip_to_token(&mut self) {
        loop {
            self.cursor.skip_byte_order_mark();
            let tabs = self.flow_level > 0 || !self.simple_key_allowed;
            while self.cursor.peek(0) == b' ' || (tabs && self.cursor.peek(0) == b'\t') {
                self.cursor.skip();
            }
            self.cursor.skip_comment();
            if !self.cursor.at_break() {
                return;
            }
            self.cursor.skip_break();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }

    fn push(&mut self, token: Token) {
        self.newest = Some(token.kind);
        self.tokens.push_back(token);
    }

    /// Adds a token of `width` characters at the cursor.
    fn push_indicator(&mut self, kind: Kind, width: usize) {
        self.push(Token::bare(kind, self.cursor.mark()));
        for _ in 0..width {
            self.cursor.skip();
        }
    }

    /// The possible key of a flow level. One whose colon can no longer follow is forgotten.
    fn valid_simple_key(&mut self, level: usize) -> Result<Option<SimpleKey>, SyntaxError> {
        let now = self.cursor.mark();
        let Some(slot) = self.simple_keys.get_mut(level) else { return Ok(None) };
        let Some(key) = *slot else { return Ok(None) };
        if key.mark.line == now.line && now.index <= key.mark.index + MAX_SIMPLE_KEY_CHARS {
            return Ok(Some(key));
        }
        *slot = None;
        if key.required { Err(no_colon(key.mark)) } else { Ok(None) }
    }

    /// Notes that a key may begin here.
    fn save_simple_key(&mut self) -> Result<(), SyntaxError> {
        if self.simple_key_allowed {
            self.remove_simple_key()?;
            let mark = self.cursor.mark();
            let required = self.flow_level == 0 && self.indent == mark.column + 1;
            let token = self.taken + self.tokens.len();
            if let Some(slot) = self.simple_keys.last_mut() {
                *slot = Some(SimpleKey { required, token, mark });
            }
        }
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Result<(), SyntaxError> {
        match self.simple_keys.last_mut().and_then(Option::take) {
            Some(SimpleKey { required: true, mark, .. }) => Err(no_colon(mark)),
            _ => Ok(()),
        }
    }

    /// Begins a block collection at `mark` if it is deeper than the current one. Its token is inserted before the token
    /// with the number `before`, if there is one.
    fn begin_block(&mut self, kind: Kind, mark: Mark, before: Option<usize>) -> Result<(), SyntaxError> {
        if self.flow_level > 0 || self.indent > mark.column {
            return Ok(());
        }
        if self.indents.len() > MAX_YAML_DEPTH {
            return Err(SyntaxError::too_deep(mark));
        }
        self.indents.push(self.indent);
        self.indent = mark.column + 1;
        let token = Token::bare(kind, mark);
        match before {
            Some(number) => self.tokens.insert(number.saturating_sub(self.taken).min(self.tokens.len()), token),
            None => self.push(token),
        }
        Ok(())
    }

    /// Ends the block collections whose entries are further to the right than `indent` allows.
    fn end_blocks(&mut self, indent: usize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > indent {
            self.push(Token::bare(Kind::BlockEnd, self.cursor.mark()));
            self.indent = self.indents.pop().unwrap_or(0);
        }
    }

    fn stream_end(&mut self) -> Result<(), SyntaxError> {
        self.cursor.end_line();
        self.end_blocks(0);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push_indicator(Kind::StreamEnd, 0);
        Ok(())
    }

    fn document_indicator(&mut self, kind: Kind) -> Result<(), SyntaxError> {
        self.end_blocks(0);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push_indicator(kind, 3);
        Ok(())
    }

    fn flow_start(&mut self, kind: Kind) -> Result<(), SyntaxError> {
        self.save_simple_key()?;
        if self.flow_level >= MAX_YAML_DEPTH {
            return Err(SyntaxError::too_deep(self.cursor.mark()));
        }
        self.simple_keys.push(None);
        self.flow_level += 1;
        self.simple_key_allowed = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn flow_end(&mut self, kind: Kind) -> Result<(), SyntaxError> {
        self.remove_simple_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            self.simple_keys.pop();
        }
        self.simple_key_allowed = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn flow_entry(&mut self) -> Result<(), SyntaxError> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(Kind::FlowEntry, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), SyntaxError> {
        // In a flow collection the parser reports it.
        if self.flow_level == 0 {
            self.allow_entry("block sequence entries are not allowed in this context")?;
            self.begin_block(Kind::BlockSequenceStart, self.cursor.mark(), None)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(Kind::BlockEntry, 1);
        Ok(())
    }

    fn key(&mut self) -> Result<(), SyntaxError> {
        if self.flow_level == 0 {
            self.allow_entry("mapping keys are not allowed in this context")?;
            self.begin_block(Kind::BlockMappingStart, self.cursor.mark(), None)?;
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.push_indicator(Kind::Key, 1);
        Ok(())
    }

    fn value(&mut self) -> Result<(), SyntaxError> {
        if let Some(key) = self.valid_simple_key(self.flow_level)? {
            let at = key.token.saturating_sub(self.taken).min(self.tokens.len());
            self.tokens.insert(at, Token::bare(Kind::Key, key.mark));
            self.begin_block(Kind::BlockMappingStart, key.mark, Some(key.token))?;
            if let Some(slot) = self.simple_keys.last_mut() {
                *slot = None;
            }
            self.simple_key_allowed = false;
        } else {
            if self.flow_level == 0 {
                self.allow_entry("mapping values are not allowed in this context")?;
                self.begin_block(Kind::BlockMappingStart, self.cursor.mark(), None)?;
            }
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.push_indicator(Kind::Value, 1);
        Ok(())
    }

    fn allow_entry(&self, problem: &'static str) -> Result<(), SyntaxError> {
        if self.simple_key_allowed { Ok(()) } else { Err(SyntaxError::new("", problem, self.cursor.mark())) }
    }
}

fn no_colon(key: Mark) -> SyntaxError {
    SyntaxError::new("while scanning a simple key", "could not find expected ':'", key)
}
