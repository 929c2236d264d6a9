//! Scripted faults.

use std::fmt;

use coracle::protocol::grpc::{Code, Status};

use super::FakeCri;

/// What happens to a call instead of its usual course.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// No effect; answer with an error.
    Fail(Status),
    /// No effect; never answer.
    Hang,
    /// Take effect; never answer.
    HangAfterEffect,
    /// Wait for `release`, then proceed.
    Hold,
    /// No effect; answer with these bytes.
    Answer(Vec<u8>),
    /// No effect; send these bytes instead of HTTP/2 and cut the connection.
    Speak(Vec<u8>),
    /// No effect; cut the connection.
    CutBeforeEffect,
    /// Take effect; cut the connection instead of answering.
    CutAfterEffect,
    /// Take effect; cut the connection in the middle of the answer.
    CutInAnswer,
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    method: &'static str,
    about: String,
    /// Number of matching calls to let pass first.
    skip: u32,
    /// Number of calls that the rule still affects.
    times: u32,
    fault: Fault,
}

impl Rule {
    /// Whether the rule affects this call. Updates the counts.
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

/// The fault for a call, if any.
pub(crate) fn fault(rules: &mut [Rule], method: &str, request: &[u8]) -> Option<Fault> {
    let rule = rules.iter_mut().find_map(|rule| rule.takes(method, request).then_some(rule))?;
    Some(rule.fault.clone())
}

/// Builds a fault. It takes effect at the end of the statement, and affects every call unless `times` limits it.
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

    /// Affects only calls whose request contains this text, such as an id, a name or an image.
    pub(crate) fn about(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about);
        self
    }

    /// Lets the first `count` calls pass.
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
