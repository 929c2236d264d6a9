//! What goes wrong, and when.

use std::fmt;

use coracle::protocol::grpc::{Code, Status};

use super::FakeCri;

/// What happens to a call instead of its usual course.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Nothing is done, and the answer is an error.
    Fail(Status),
    /// Nothing is done, and the answer never comes.
    Hang,
    /// It is done, and the answer never comes.
    HangAfterEffect,
    /// It waits for `release`, and goes on as usual.
    Hold,
    /// Nothing is done, and the answer is these bytes.
    Answer(Vec<u8>),
    /// Nothing is done; these bytes come instead of HTTP/2, and the connection is cut.
    Speak(Vec<u8>),
    /// Nothing is done, and the connection is cut.
    CutBeforeEffect,
    /// It is done, and the connection is cut instead of an answer.
    CutAfterEffect,
    /// It is done, and the connection is cut in the middle of the answer.
    CutInAnswer,
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    method: &'static str,
    about: String,
    /// How many fitting calls go by before it counts.
    skip: u32,
    /// How often it still counts.
    times: u32,
    fault: Fault,
}

impl Rule {
    /// Whether this call is one of those that it makes go wrong, which counts.
    fn takes(&mut self, method: &str, request: &[u8]) -> bool {
        let about = self.about.as_bytes();
        let fits = (self.method == "*" || self.method == method)
            && (about.is_empty() || request.windows(about.len()).any(|part| part == about));
        if !fits || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}

/// The fault for a call, if it has one.
pub(crate) fn fault(rules: &mut [Rule], method: &str, request: &[u8]) -> Option<Fault> {
    let rule = rules.iter_mut().find_map(|rule| rule.takes(method, request).then_some(rule))?;
    Some(rule.fault.clone())
}

/// A fault in the making: it counts from the end of the statement, for every call unless `times` says otherwise.
pub(crate) struct On<'a> {
    fake: &'a FakeCri,
    method: &'static str,
    about: String,
    skip: u32,
    times: u32,
    fault: Option<Fault>,
}

impl<'a> On<'a> {
    pub(super) fn new(fake: &'a FakeCri, method: &'static str) -> Self {
        Self { fake, method, about: String::new(), skip: 0, times: u32::MAX, fault: None }
    }

    /// Only for calls whose request has this text somewhere: an id, a name, an image.
    pub(crate) fn about(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about);
        self
    }

    /// Not for the first `count` calls.
    pub(crate) fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    pub(crate) fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    pub(crate) fn fail(self, code: Code, message: &str) -> Self {
        self.goes(Fault::Fail(Status::new(code, message)))
    }

    pub(crate) fn hang(self) -> Self {
        self.goes(Fault::Hang)
    }

    pub(crate) fn hang_after_effect(self) -> Self {
        self.goes(Fault::HangAfterEffect)
    }

    pub(crate) fn hold(self) -> Self {
        self.goes(Fault::Hold)
    }

    pub(crate) fn answer(self, bytes: &[u8]) -> Self {
        self.goes(Fault::Answer(bytes.to_vec()))
    }

    pub(crate) fn speak(self, bytes: &[u8]) -> Self {
        self.goes(Fault::Speak(bytes.to_vec()))
    }

    pub(crate) fn cut_before_effect(self) -> Self {
        self.goes(Fault::CutBeforeEffect)
    }

    pub(crate) fn cut_after_effect(self) -> Self {
        self.goes(Fault::CutAfterEffect)
    }

    pub(crate) fn cut_in_answer(self) -> Self {
        self.goes(Fault::CutInAnswer)
    }

    fn goes(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        let Some(fault) = self.fault.take() else { return };
        let about = std::mem::take(&mut self.about);
        let rule = Rule { method: self.method, about, skip: self.skip, times: self.times, fault };
        self.fake.change(|world| world.rules.push(rule));
    }
}

impl fmt::Debug for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "On({})", self.method)
    }
}
