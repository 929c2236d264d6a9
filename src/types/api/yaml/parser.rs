//! Turns the tokens of a YAML text into events. Pure.
//!
//! A port of the parser of go-yaml v2 (`parserc.go`). Tags of lists and objects mean nothing there, and are dropped.

use super::cursor::Mark;
use super::scanner::{Kind, Scanner, Token};
use super::syntax_error::SyntaxError;

#[derive(Debug)]
pub(super) enum Event {
    DocumentStart,
    DocumentEnd,
    Alias(String),
    Scalar(ScalarEvent),
    SequenceStart { anchor: Option<String> },
    SequenceEnd,
    MappingStart { anchor: Option<String> },
    MappingEnd,
    StreamEnd,
}

#[derive(Debug, Default)]
pub(super) struct ScalarEvent {
    pub(super) text: String,
    /// Neither quoted nor a block scalar.
    pub(super) plain: bool,
    pub(super) anchor: Option<String>,
    /// The whole tag: `tag:yaml.org,2002:str` for `!!str`.
    pub(super) tag: Option<String>,
}

/// What the next token is read as. The names are libyaml's.
#[derive(Clone, Copy, Debug)]
enum State {
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceFirstEntry,
    BlockSequenceEntry,
    IndentlessSequenceEntry,
    BlockMappingFirstKey,
    BlockMappingKey,
    BlockMappingValue,
    FlowSequenceFirstEntry,
    FlowSequenceEntry,
    FlowSequenceEntryMappingKey,
    FlowSequenceEntryMappingValue,
    FlowSequenceEntryMappingEnd,
    FlowMappingFirstKey,
    FlowMappingKey,
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    Block,
    /// The value of a block mapping, whose sequence may begin at the column of the key.
    BlockOrIndentlessSequence,
    Flow,
}

#[derive(Debug)]
pub(super) struct Parser<'a> {
    scanner: Scanner<'a>,
    state: State,
    /// The states to return to.
    states: Vec<State>,
    /// The starts of the open collections.
    starts: Vec<Mark>,
    /// Handles and prefixes of the document's `%TAG` directives.
    tag_directives: Vec<(String, String)>,
}

/// An event, and where it begins.
type Parsed = Result<(Event, Mark), SyntaxError>;

/// More `%TAG` directives than any document has.
pub(super) const MAX_TAG_DIRECTIVES: usize = 64;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            scanner: Scanner::new(text),
            state: State::ImplicitDocumentStart,
            states: Vec::new(),
            starts: Vec::new(),
            tag_directives: Vec::new(),
        }
    }

    /// The next event. The stream's end repeats for ever.
    pub(super) fn next(&mut self) -> Parsed {
        match self.state {
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(Context::Block),
            State::BlockSequenceFirstEntry => self.first(Self::block_sequence_entry),
            State::BlockSequenceEntry => self.block_sequence_entry(),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingFirstKey => self.first(Self::block_mapping_key),
            State::BlockMappingKey => self.block_mapping_key(),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirstEntry => self.first(|parser| parser.flow_sequence_entry(true)),
            State::FlowSequenceEntry => self.flow_sequence_entry(false),
            State::FlowSequenceEntryMappingKey => self.flow_sequence_entry_mapping_key(),
            State::FlowSequenceEntryMappingValue => self.flow_sequence_entry_mapping_value(),
            State::FlowSequenceEntryMappingEnd => {
                self.state = State::FlowSequenceEntry;
                Ok((Event::MappingEnd, self.scanner.peek()?.1))
            }
            State::FlowMappingFirstKey => self.first(|parser| parser.flow_mapping_key(true)),
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(),
            State::FlowMappingEmptyValue => {
                let (_, at) = self.scanner.peek()?;
                self.empty_scalar(State::FlowMappingKey, at)
            }
            State::End => Ok((Event::StreamEnd, self.scanner.peek()?.1)),
        }
    }

    /// Skips the token that begins a collection, then reads its first entry.
    fn first(&mut self, entry: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        let Token { start, .. } = self.scanner.take()?;
        self.starts.push(start);
        entry(self)
    }

    fn return_to_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn node_then(&mut self, context: Context, next: State) -> Parsed {
        self.states.push(next);
        self.node(context)
    }

    fn empty_scalar(&mut self, next: State, at: Mark) -> Parsed {
        self.state = next;
        Ok((Event::Scalar(ScalarEvent { plain: true, ..ScalarEvent::default() }), at))
    }

    /// Takes the token that ends a collection.
    fn end_collection(&mut self, event: Event) -> Parsed {
        self.return_to_state();
        self.starts.pop();
        Ok((event, self.scanner.take()?.start))
    }

    fn collection_error(&mut self, context: &'static str, problem: &'static str, at: Mark) -> Parsed {
        let began = self.starts.pop().unwrap_or(at);
        Err(SyntaxError::new(context, problem, at).began(began))
    }

    fn document_start(&mut self, implicit: bool) -> Parsed {
        let (mut kind, mut at) = self.scanner.peek()?;
        while kind == Kind::DocumentEnd {
            self.scanner.take()?;
            (kind, at) = self.scanner.peek()?;
        }
        if kind == Kind::StreamEnd {
            self.state = State::End;
            return Ok((Event::StreamEnd, at));
        }
        let explicit = matches!(kind, Kind::YamlDirective | Kind::TagDirective | Kind::DocumentStart);
        self.states.push(State::DocumentEnd);
        if implicit && !explicit {
            self.state = State::BlockNode;
            return Ok((Event::DocumentStart, at));
        }
        self.directives()?;
        let (kind, indicator) = self.scanner.peek()?;
        if kind != Kind::DocumentStart {
            return Err(SyntaxError::new("", "did not find expected <document start>", indicator));
        }
        self.scanner.take()?;
        self.state = State::DocumentContent;
        Ok((Event::DocumentStart, at))
    }

    fn directives(&mut self) -> Result<(), SyntaxError> {
        let mut versions = 0;
        loop {
            let (kind, at) = self.scanner.peek()?;
            let problem = match kind {
                Kind::YamlDirective => {
                    versions += 1;
                    self.scanner.take()?;
                    (versions > 1).then_some("found duplicate %YAML directive")
                }
                Kind::TagDirective => {
                    let Token { text: handle, suffix: prefix, .. } = self.scanner.take()?;
                    let is_known = self.tag_directives.iter().any(|(other, _)| *other == handle);
                    self.tag_directives.push((handle, prefix));
                    if is_known {
                        Some("found duplicate %TAG directive")
                    } else {
                        (self.tag_directives.len() > MAX_TAG_DIRECTIVES).then_some("found too many %TAG directives")
                    }
                }
                _ => return Ok(()),
            };
            if let Some(problem) = problem {
                return Err(SyntaxError::new("", problem, at));
            }
        }
    }

    fn document_content(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        match kind {
            Kind::YamlDirective | Kind::TagDirective | Kind::DocumentStart | Kind::DocumentEnd | Kind::StreamEnd => {
                self.return_to_state();
                let next = self.state;
                self.empty_scalar(next, at)
            }
            _ => self.node(Context::Block),
        }
    }

    fn document_end(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        if kind == Kind::DocumentEnd {
            self.scanner.take()?;
            // After `...` the next document needs no `---`, as in newer versions of libyaml; an error upstream.
            self.state = State::ImplicitDocumentStart;
        }
        Ok((Event::DocumentEnd, at))
    }

    /// An alias, a scalar or the start of a collection, with anchor and tag before it in either order.
    fn node(&mut self, context: Context) -> Parsed {
        let (mut kind, start) = self.scanner.peek()?;
        if kind == Kind::Alias {
            self.return_to_state();
            return Ok((Event::Alias(self.scanner.take()?.text), start));
        }
        let mut anchor = None;
        let mut tag = None;
        loop {
            match kind {
                Kind::Anchor if anchor.is_none() => anchor = Some(self.scanner.take()?.text),
                Kind::Tag if tag.is_none() => {
                    let token = self.scanner.take()?;
                    tag = Some(self.whole_tag(token)?);
                }
                _ => break,
            }
            kind = self.scanner.peek()?.0;
        }
        let block = context != Context::Flow;
        let (state, event) = match kind {
            Kind::BlockEntry if context == Context::BlockOrIndentlessSequence => {
                (State::IndentlessSequenceEntry, Event::SequenceStart { anchor })
            }
            Kind::FlowSequenceStart => (State::FlowSequenceFirstEntry, Event::SequenceStart { anchor }),
            Kind::FlowMappingStart => (State::FlowMappingFirstKey, Event::MappingStart { anchor }),
            Kind::BlockSequenceStart if block => (State::BlockSequenceFirstEntry, Event::SequenceStart { anchor }),
            Kind::BlockMappingStart if block => (State::BlockMappingFirstKey, Event::MappingStart { anchor }),
            Kind::PlainScalar | Kind::StyledScalar => {
                self.return_to_state();
                let text = self.scanner.take()?.text;
                let scalar = ScalarEvent { text, plain: kind == Kind::PlainScalar, anchor, tag };
                return Ok((Event::Scalar(scalar), start));
            }
            _ if anchor.is_some() || tag.is_some() => {
                self.return_to_state();
                let scalar = ScalarEvent { text: String::new(), plain: true, anchor, tag };
                return Ok((Event::Scalar(scalar), start));
            }
            _ => return self.no_node(block),
        };
        self.state = state;
        Ok((event, start))
    }

    fn no_node(&mut self, block: bool) -> Parsed {
        let (_, at) = self.scanner.peek()?;
        let problem = "did not find expected node content";
        if block {
            return Err(SyntaxError::new("while parsing a block node", problem, at));
        }
        // A bracket that is not closed shows at the end of the text.
        let began = self.starts.last().copied().unwrap_or(at);
        Err(SyntaxError::new("while parsing a flow collection", problem, at).began(began))
    }

    fn whole_tag(&self, token: Token) -> Result<String, SyntaxError> {
        let Token { text: handle, suffix, start, .. } = token;
        if handle.is_empty() {
            return Ok(suffix);
        }
        let directive = self.tag_directives.iter().find(|(other, _)| *other == handle);
        let prefix = match (directive, handle.as_str()) {
            (Some((_, prefix)), _) => prefix,
            (None, "!") => "!",
            (None, "!!") => super::CORE_TAG_PREFIX,
            (None, _) => return Err(SyntaxError::new("while parsing a node", "found undefined tag handle", start)),
        };
        Ok(format!("{prefix}{suffix}"))
    }

    fn block_sequence_entry(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        match kind {
            Kind::BlockEntry => {
                self.scanner.take()?;
                match self.scanner.peek()?.0 {
                    Kind::BlockEntry | Kind::BlockEnd => self.empty_scalar(State::BlockSequenceEntry, at),
                    _ => self.node_then(Context::Block, State::BlockSequenceEntry),
                }
            }
            Kind::BlockEnd => self.end_collection(Event::SequenceEnd),
            _ => self.collection_error("while parsing a block collection", "did not find expected '-' indicator", at),
        }
    }

    fn indentless_sequence_entry(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        if kind != Kind::BlockEntry {
            self.return_to_state();
            return Ok((Event::SequenceEnd, at));
        }
        self.scanner.take()?;
        match self.scanner.peek()?.0 {
            Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd => {
                self.empty_scalar(State::IndentlessSequenceEntry, at)
            }
            _ => self.node_then(Context::Block, State::IndentlessSequenceEntry),
        }
    }

    fn block_mapping_key(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        match kind {
            Kind::Key => {
                self.scanner.take()?;
                self.block_mapping_part(State::BlockMappingValue, at)
            }
            Kind::BlockEnd => self.end_collection(Event::MappingEnd),
            _ => self.collection_error("while parsing a block mapping", "did not find expected key", at),
        }
    }

    fn block_mapping_value(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        if kind != Kind::Value {
            return self.empty_scalar(State::BlockMappingKey, at);
        }
        self.scanner.take()?;
        self.block_mapping_part(State::BlockMappingKey, at)
    }

    /// A key or a value of a block mapping behind its indicator.
    fn block_mapping_part(&mut self, next: State, at: Mark) -> Parsed {
        match self.scanner.peek()?.0 {
            Kind::Key | Kind::Value | Kind::BlockEnd => self.empty_scalar(next, at),
            _ => self.node_then(Context::BlockOrIndentlessSequence, next),
        }
    }

    fn flow_sequence_entry(&mut self, first: bool) -> Parsed {
        let comma = "did not find expected ',' or ']'";
        let (kind, at) = self.flow_entry(first, Kind::FlowSequenceEnd, "while parsing a flow sequence", comma)?;
        match kind {
            Kind::FlowSequenceEnd => self.end_collection(Event::SequenceEnd),
            Kind::Key => {
                self.scanner.take()?;
                self.state = State::FlowSequenceEntryMappingKey;
                Ok((Event::MappingStart { anchor: None }, at))
            }
            _ => self.node_then(Context::Flow, State::FlowSequenceEntry),
        }
    }

    /// Skips the comma before an entry that is not the first: what follows it.
    fn flow_entry(
        &mut self,
        first: bool,
        end: Kind,
        context: &'static str,
        comma: &'static str,
    ) -> Result<(Kind, Mark), SyntaxError> {
        let (kind, at) = self.scanner.peek()?;
        if first || kind == end {
            return Ok((kind, at));
        }
        if kind != Kind::FlowEntry {
            return Err(SyntaxError::new(context, comma, at).began(self.starts.pop().unwrap_or(at)));
        }
        self.scanner.take()?;
        self.scanner.peek()
    }

    fn flow_sequence_entry_mapping_key(&mut self) -> Parsed {
        let (kind, at) = self.scanner.peek()?;
        match kind {
            // Upstream skips this token, so that `[? ]` never ends there.
            Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd => {
                self.empty_scalar(State::FlowSequenceEntryMappingValue, at)
            }
            _ => self.node_then(Context::Flow, State::FlowSequenceEntryMappingValue),
        }
    }

    fn flow_sequence_entry_mapping_value(&mut self) -> Parsed {
        self.flow_value(State::FlowSequenceEntryMappingEnd)
    }

    fn flow_mapping_key(&mut self, first: bool) -> Parsed {
        let comma = "did not find expected ',' or '}'";
        match self.flow_entry(first, Kind::FlowMappingEnd, "while parsing a flow mapping", comma)?.0 {
            Kind::FlowMappingEnd => self.end_collection(Event::MappingEnd),
            Kind::Key => {
                self.scanner.take()?;
                let (kind, at) = self.scanner.peek()?;
                match kind {
                    Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd => {
                        self.empty_scalar(State::FlowMappingValue, at)
                    }
                    _ => self.node_then(Context::Flow, State::FlowMappingValue),
                }
            }
            _ => self.node_then(Context::Flow, State::FlowMappingEmptyValue),
        }
    }

    fn flow_mapping_value(&mut self) -> Parsed {
        self.flow_value(State::FlowMappingKey)
    }

    /// The value of a flow mapping, or of a pair in a flow sequence, with its colon.
    fn flow_value(&mut self, next: State) -> Parsed {
        let (mut kind, mut at) = self.scanner.peek()?;
        if kind == Kind::Value {
            self.scanner.take()?;
            (kind, at) = self.scanner.peek()?;
            if !matches!(kind, Kind::FlowEntry | Kind::FlowSequenceEnd | Kind::FlowMappingEnd) {
                return self.node_then(Context::Flow, next);
            }
        }
        self.empty_scalar(next, at)
    }
}
