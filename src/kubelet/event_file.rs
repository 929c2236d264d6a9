//! The file with the node's events: they outlive the agent, and those that the API server does not have outlive a power
//! cut.
//!
//! At its end the agent writes the whole ring. While it runs it writes only what waits for the API server, some minutes
//! after the first such event and then more and more rarely. A node whose events are sent at once writes nothing.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::{clock, wall_timer};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::pods::{EventRing, StoredEvents};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// Below the root directory.
const EVENTS_FILE: &str = "coracle/events.json";
/// Of the file: about 300 events.
const MAX_EVENT_FILE_BYTES: usize = 128 << 10;
/// Between the first event that waits and the first write: most lines are back by then.
const FIRST_EVENT_WRITE_DELAY: Duration = Duration::from_secs(120);
/// Longest time between writes. A power cut in a long outage loses the events since the last write.
const MAX_EVENT_WRITE_DELAY: Duration = Duration::from_secs(3600);
/// A clock that is adjusted by less is not corrected in events, which have whole seconds.
const MIN_CLOCK_STEP_SECONDS: i64 = 2;

/// The file, and the ring that it keeps.
pub(crate) struct EventFile {
    path: PathBuf,
    ring: Rc<RefCell<EventRing>>,
    /// Events were noted.
    noted: Rc<Signal>,
}

impl EventFile {
    /// Restores the events of the former agent. A file that cannot be used is logged and ignored.
    pub(crate) async fn open(root_dir: PathBuf, ring: Rc<RefCell<EventRing>>, noted: Rc<Signal>) -> Self {
        let file = Self { path: root_dir.join(EVENTS_FILE), ring, noted };
        let path = file.path.clone();
        let limit = u64::try_from(MAX_EVENT_FILE_BYTES).unwrap_or(u64::MAX);
        match rt::blocking(move || durable::read(&path, limit)).await {
            Ok(StoredFile::Nothing) => {}
            Ok(StoredFile::Whole(text)) if file.ring.borrow_mut().restore(&text, rt::now()).is_some() => {}
            Ok(StoredFile::Whole(_) | StoredFile::Damaged) => {
                log!(warn, "stored events are damaged, they are lost", file = file.path.display());
            }
            Err(error) => {
                log!(warn, "failed to read stored events", file = file.path.display(), error = ErrorChain(&error));
            }
        }
        file
    }

    /// Writes the events that wait for the API server. A clock that is set corrects the events of this process.
    pub(crate) async fn run(self: Rc<Self>) {
        rt::either(self.write_unsent(), self.follow_clock()).await;
    }

    async fn write_unsent(&self) {
        let mut delay = Backoff::new(FIRST_EVENT_WRITE_DELAY, MAX_EVENT_WRITE_DELAY);
        // The former agent left some.
        let mut has_unsent = self.ring.borrow().unsent_count() > 0;
        loop {
            let seen = self.noted.changes();
            if !has_unsent && self.ring.borrow().unsent_count() == 0 {
                delay.reset();
                self.noted.beyond(seen).await;
            }
            rt::sleep(delay.next_wait()).await;
            let waiting = self.ring.borrow().unsent_count() > 0;
            if waiting || has_unsent {
                self.write(StoredEvents::Unsent).await;
                has_unsent = waiting;
            }
        }
    }

    /// Writes every event, for the next agent.
    pub(crate) async fn write_all(&self) {
        self.write(StoredEvents::All).await;
    }

    async fn write(&self, stored_events: StoredEvents) {
        let text = self.ring.borrow().to_json(stored_events, MAX_EVENT_FILE_BYTES);
        let path = self.path.clone();
        let written = rt::blocking(move || match text.as_str() {
            "[]" => durable::remove(&path),
            _ => durable::write_changed(&path, text.as_bytes()).map(drop),
        });
        if let Err(error) = written.await {
            log!(warn, "failed to store events", file = self.path.display(), error = ErrorChain(&error));
        }
    }

    async fn follow_clock(&self) {
        let mut before = boot_time();
        loop {
            wall_timer::until(i64::MAX).await;
            let now = boot_time();
            let step = now.saturating_sub(before);
            if step.abs() >= MIN_CLOCK_STEP_SECONDS {
                self.ring.borrow_mut().on_clock_set(step);
                before = now;
            }
        }
    }
}

/// When the machine was booted, by the wall clock. Suspended time does not move it.
fn boot_time() -> i64 {
    let uptime = i64::try_from(clock::uptime().as_secs()).unwrap_or_default();
    clock::now().unix_seconds().saturating_sub(uptime)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::platform::rt::TestFolder;
    use crate::state::pods::{NewEvent, NodeEvent, SendOutcome};
    use crate::types::api::{EventKind, Reason, Time};

    fn note(ring: &RefCell<EventRing>, message: &str) {
        let event = NodeEvent::new(EventKind::Warning, Reason::SYSTEM_OOM, message);
        ring.borrow_mut().note(NewEvent::of_node("n", event), Time::from_unix_seconds(1000), rt::now());
    }

    fn send_all(ring: &RefCell<EventRing>) {
        loop {
            let unsent = ring.borrow().unsent("n");
            let Some(unsent) = unsent else { return };
            ring.borrow_mut().sent(&unsent, SendOutcome::Accepted);
        }
    }

    /// How many unsent events the file has; `None` if there is no file.
    fn stored(root: &Path) -> Option<usize> {
        let StoredFile::Whole(text) = durable::read(&root.join(EVENTS_FILE), 1 << 20).unwrap() else { return None };
        let mut ring = EventRing::with_queue(1);
        ring.restore(&text, Instant::now()).unwrap();
        Some(ring.unsent_count())
    }

    #[test]
    fn events_that_wait_are_written_more_and_more_rarely_and_removed_once_sent() {
        let root = TestFolder::new("events-wait");
        let path = root.0.clone();
        let seen = rt::simulate(1, |_| async move {
            let (ring, noted) = (Rc::new(RefCell::new(EventRing::with_queue(1))), Rc::<Signal>::default());
            let file = EventFile::open(path.clone(), Rc::clone(&ring), Rc::clone(&noted)).await;
            let task = rt::spawn(Rc::new(file).run());
            let mut seen = Vec::new();
            for (wait, message) in
                [(3600, None), (1, Some("sent")), (119, Some("a")), (2, Some("b")), (200, None), (60, None)]
            {
                rt::sleep(Duration::from_secs(wait)).await;
                if let Some(message) = message {
                    note(&ring, message);
                    noted.notify();
                }
                if message == Some("sent") {
                    send_all(&ring);
                }
                rt::sleep(Duration::from_millis(10)).await;
                seen.push(stored(&path));
            }
            send_all(&ring);
            rt::sleep(Duration::from_secs(700)).await;
            seen.push(stored(&path));
            drop(task);
            seen
        });
        assert_eq!(seen, Ok(vec![None, None, None, Some(1), Some(1), Some(2), None]));
    }

    #[test]
    fn next_agent_has_the_events_of_the_former_one() {
        let root = TestFolder::new("events-next");
        let path = root.0.clone();
        let shown = rt::simulate(1, |_| async move {
            let open = |ring: &Rc<RefCell<EventRing>>| EventFile::open(path.clone(), Rc::clone(ring), Rc::default());
            let former = Rc::new(RefCell::new(EventRing::default()));
            let file = open(&former).await;
            note(&former, "out of memory");
            file.write_all().await;
            let next = Rc::new(RefCell::new(EventRing::default()));
            open(&next).await;
            let events: Vec<_> = next.borrow().events("n").collect();
            events.into_iter().map(|event| (event.message, event.first_timestamp)).collect::<Vec<_>>()
        });
        assert_eq!(shown, Ok(vec![("out of memory".to_owned(), Some(Time::from_unix_seconds(1000)))]));
    }

    #[test]
    fn damaged_file_is_ignored_and_replaced() {
        let root = TestFolder::new("events-damaged");
        let file = root.0.join(EVENTS_FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "[half").unwrap();
        let path = root.0.clone();
        let shown = rt::simulate(1, |_| async move {
            let ring = Rc::new(RefCell::new(EventRing::with_queue(1)));
            let opened = EventFile::open(path, Rc::clone(&ring), Rc::default()).await;
            let before = ring.borrow().events("n").count();
            note(&ring, "a");
            opened.write_all().await;
            before
        });
        assert_eq!((shown, stored(&root.0)), (Ok(0), Some(1)));
    }
}
