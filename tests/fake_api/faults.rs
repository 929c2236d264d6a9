//! What goes wrong, and when.

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
    /// It waits so long, and goes on.
    Delay(Duration),
    /// It waits for `release`, and goes on.
    Hold,
    /// Nothing is done, and this is the answer.
    Answer(Response),
    /// Nothing is done, and these bytes are the answer, which may be no HTTP; then the connection is cut.
    Speak(Vec<u8>),
    /// Nothing is done, and the answer never comes.
    Hang,
    /// It is done, and the answer never comes.
    HangAfterEffect,
    /// Nothing is done, and this is the end.
    EndBeforeEffect(End),
    /// It is done, and this is the end instead of an answer.
    EndAfterEffect(End),
    /// It is done, and this is the end in the middle of the answer.
    EndInAnswer(End),
    /// It is done, and half of the answer never comes.
    StallInAnswer,
    /// It is done, and only half of the JSON is in an answer that looks whole.
    Malformed,
    /// It is done, and the answer comes so many bytes at a time, with a pause between them.
    Drip { bytes: usize, pause: Duration },
    /// A watch goes like this.
    Watch(WatchFault),
}

/// An end with no last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection is cut.
    Connection,
    /// Only the request's stream is reset; over HTTP/1.1 that is the connection, too.
    Stream(Seen),
}

/// What goes wrong with a watch that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchFault {
    /// Nothing comes after the head.
    Silent,
    /// After so many events, these bytes come in a chunk of their own.
    Garbage { after: usize, bytes: Vec<u8> },
    /// Each event comes twice.
    Duplicate,
    /// Of two events, the second comes first.
    Reorder,
    /// The end with no last word after so many events: a reset of the stream, or of the connection.
    CutAfter(usize),
    /// The end in the midst of the event that comes after so many.
    CutInEvent(usize),
    /// Nothing comes after so many events.
    StallAfter(usize),
    /// The usual end after so many events.
    EndAfter(usize),
    /// Events come so many bytes at a time, with a pause between them.
    Drip { bytes: usize, pause: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    verb: String,
    pattern: String,
    about: String,
    user: String,
    /// How many fitting requests go by before it counts.
    skip: u32,
    /// How often it still counts.
    times: u32,
    fault: Fault,
}

impl Rule {
    /// Whether this request is one of those that it makes go wrong, which counts.
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

/// The faults of a request: what it waits for, and what happens then.
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

/// A fault in the making: it counts from the end of the statement, for every request unless `times` says otherwise.
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

    /// Only for requests with this text in the query or in the body.
    pub(crate) fn about(mut self, text: &str) -> Self {
        text.clone_into(&mut self.about);
        self
    }

    /// Only for requests of this user.
    pub(crate) fn of_user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Not for the first `count` requests.
    pub(crate) fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    pub(crate) fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    /// The error that a server answers with this code; `header` and `body` may follow.
    pub(crate) fn answer(self, status: u16) -> Self {
        let response = if status == 429 {
            // The filter that counts requests in flight speaks no JSON.
            let text = "Too many requests, please try again later.\n";
            Response::new(429, "text/plain; charset=utf-8", text).header("Retry-After", "1")
        } else {
            let status_object = ApiError::of_code(status).status();
            Response::new(status, "application/json", status_object.to_string() + "\n")
        };
        self.goes(Fault::Answer(response))
    }

    /// A header of the answer, in the place of one that it has.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Some(Fault::Answer(response)) = &mut self.fault {
            response.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            response.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// The body of the answer.
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

    /// As a server refuses a stream that it has not looked at.
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
