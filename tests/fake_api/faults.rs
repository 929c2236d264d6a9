//! Scripted faults.

use std::time::Duration;

use serde_json::Value;

use super::FakeApi;
use super::api_error::ApiError;
use super::exchange::Seen;
use super::http::Response;
use super::request_log::Request;

/// What happens to a request besides or instead of its usual course.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Wait this long, then proceed.
    Delay(Duration),
    /// Wait for `release`, then proceed.
    Hold,
    /// No effect; send this response.
    Answer(Response),
    /// No effect; send these bytes, which need not be HTTP, and cut the connection.
    Speak(Vec<u8>),
    /// No effect; never respond.
    Hang,
    /// Take effect; never respond.
    HangAfterEffect,
    /// No effect; end the request like this.
    EndBeforeEffect(End),
    /// Take effect; end the request like this instead of responding.
    EndAfterEffect(End),
    /// Take effect; end the request like this in the middle of the response.
    EndInAnswer(End),
    /// Take effect; stall halfway through the response.
    StallInAnswer,
    /// Take effect; send half of the JSON in a response that looks complete.
    Malformed,
    /// Take effect; send the response in pieces of this size, with a pause between them.
    Drip { bytes: usize, pause: Duration },
    /// A fault of a watch.
    Watch(WatchFault),
}

/// An abrupt end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is cut.
    Connection,
    /// Only the request's stream is reset. Over HTTP/1.1 the connection is cut.
    Stream(Seen),
}

/// What goes wrong with an established watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// Nothing follows the head.
    Silent,
    /// After this many events, send these bytes in a chunk of their own.
    Garbage { after: usize, bytes: Vec<u8> },
    /// Send each event twice.
    Duplicate,
    /// Swap two events.
    Reorder,
    /// End abruptly after this many events, by resetting the stream or the connection.
    CutAfter(usize),
    /// End abruptly in the middle of the event that follows this many.
    CutInEvent(usize),
    /// Stall after this many events.
    StallAfter(usize),
    /// End in order after this many events.
    EndAfter(usize),
    /// Send events in pieces of this size, with a pause between them.
    Drip { bytes: usize, pause: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    verb: String,
    pattern: String,
    about: String,
    user: String,
    /// Number of matching requests to let pass first.
    skip: u32,
    /// Number of requests that the rule still affects.
    times: u32,
    fault: Fault,
}

impl Rule {
    /// Whether the rule affects this request. Updates the counts.
    fn takes(&mut self, request: &Request) -> bool {
        let fits = request.is(&self.verb, &self.pattern)
            && request.is_about(&self.about)
            && (self.user.is_empty() || self.user == request.identity.user);
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

    pub(super) fn is_of(&self, verb: &str, pattern: &str) -> bool {
        self.verb == verb && self.pattern == pattern
    }
}

/// The faults of a request: its delays, and what happens then.
pub(crate) fn faults(rules: &mut [Rule], request: &Request) -> Vec<Fault> {
    let mut found = Vec::new();
    for rule in rules {
        if !rule.takes(request) {
            continue;
        }
        let is_last = !matches!(rule.fault, Fault::Delay(_) | Fault::Hold);
        found.push(rule.fault.clone());
        if is_last {
            break;
        }
    }
    found
}

/// Builds a fault. It takes effect at the end of the statement, and affects every request unless `times` limits it.
pub(crate) struct On<'a> {
    fake: &'a FakeApi,
    verb: String,
    pattern: String,
    about: String,
    user: String,
    skip: u32,
    times: u32,
    fault: Option<Fault>,
}

impl<'a> On<'a> {
    pub(super) fn new(fake: &'a FakeApi, verb: &str, pattern: &str) -> Self {
        Self {
            fake,
            verb: verb.to_owned(),
            pattern: pattern.to_owned(),
            about: String::new(),
            user: String::new(),
            skip: 0,
            times: u32::MAX,
            fault: None,
        }
    }

    /// Affects only requests with this text in the query or body.
    pub(crate) fn about(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about);
        self
    }

    /// Affects only requests of this user.
    pub(crate) fn of_user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Lets the first `count` requests pass.
    pub(crate) fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    pub(crate) fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    /// Responds with the server's error for this code. `header` and `body` may follow.
    pub(crate) fn answer(self, status: u16) -> Self {
        let response = if status == 429 {
            // The filter that limits requests in flight answers in plain text.
            let text = "Too many requests, please try again later.\n";
            Response::new(429, "text/plain; charset=utf-8", text).header("Retry-After", "1")
        } else {
            let status_object = ApiError::of_code(status).status();
            Response::new(status, "application/json", status_object.to_string() + "\n")
        };
        self.goes(Fault::Answer(response))
    }

    /// Sets or replaces a header of the response.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Some(Fault::Answer(response)) = &mut self.fault {
            response.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            response.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body of the response.
    pub(crate) fn body(mut self, body: &Value) -> Self {
        if let Some(Fault::Answer(response)) = &mut self.fault {
            response.body = body.to_string().into_bytes();
        }
        self.header("Content-Type", "application/json")
    }

    pub(crate) fn delay(self, delay: Duration) -> Self {
        self.goes(Fault::Delay(delay))
    }

    pub(crate) fn hold(self) -> Self {
        self.goes(Fault::Hold)
    }

    pub(crate) fn speak(self, bytes: &[u8]) -> Self {
        self.goes(Fault::Speak(bytes.to_vec()))
    }

    pub(crate) fn hang(self) -> Self {
        self.goes(Fault::Hang)
    }

    pub(crate) fn hang_after_effect(self) -> Self {
        self.goes(Fault::HangAfterEffect)
    }

    pub(crate) fn cut(self) -> Self {
        self.goes(Fault::EndBeforeEffect(End::Connection))
    }

    pub(crate) fn cut_after_effect(self) -> Self {
        self.goes(Fault::EndAfterEffect(End::Connection))
    }

    pub(crate) fn cut_in_answer(self) -> Self {
        self.goes(Fault::EndInAnswer(End::Connection))
    }

    /// Refuses the stream like a server that has not processed it.
    pub(crate) fn refuse_stream(self) -> Self {
        self.goes(Fault::EndBeforeEffect(End::Stream(Seen::No)))
    }

    pub(crate) fn reset_after_effect(self) -> Self {
        self.goes(Fault::EndAfterEffect(End::Stream(Seen::Yes)))
    }

    pub(crate) fn reset_in_answer(self) -> Self {
        self.goes(Fault::EndInAnswer(End::Stream(Seen::Yes)))
    }

    pub(crate) fn stall_in_answer(self) -> Self {
        self.goes(Fault::StallInAnswer)
    }

    pub(crate) fn malformed(self) -> Self {
        self.goes(Fault::Malformed)
    }

    pub(crate) fn drip(self, bytes: usize, pause: Duration) -> Self {
        self.goes(Fault::Drip { bytes, pause })
    }

    pub(crate) fn watch(self, fault: WatchFault) -> Self {
        self.goes(Fault::Watch(fault))
    }

    fn goes(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        let Some(fault) = self.fault.take() else { return };
        let [verb, pattern, about, user] =
            [&mut self.verb, &mut self.pattern, &mut self.about, &mut self.user].map(std::mem::take);
        let rule = Rule { verb, pattern, about, user, skip: self.skip, times: self.times, fault };
        self.fake.change(|world| world.rules.push(rule));
    }
}
