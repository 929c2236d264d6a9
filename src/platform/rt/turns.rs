//! Turns at something that many owners share, so that one of them cannot take all.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use async_channel::Sender;

use super::job_queue::{JobQueue, Owner};

/// Hands out a limited number of turns, and fewer to each owner.
pub struct Turns {
    limit: usize,
    state: RefCell<State>,
}

struct State {
    taken: usize,
    waiting: JobQueue<Sender<Turn>>,
}

/// Dropping it ends the turn.
#[derive(Debug)]
pub struct Turn {
    /// `None` if it was never taken.
    turns: Option<Rc<Turns>>,
    owner: Owner,
}

impl Turns {
    /// At most `limit` turns at a time, and `of_one` of one owner.
    pub fn new(limit: usize, of_one: usize) -> Rc<Self> {
        // The queue keeps one for jobs without an owner, of which there are none here.
        let waiting = JobQueue::new(limit + 1, of_one);
        Rc::new(Self { limit, state: RefCell::new(State { taken: 0, waiting }) })
    }

    /// Waits for a turn of the pod with uid `owner`, or of other work named by it.
    pub async fn take(self: &Rc<Self>, owner: &str) -> Turn {
        let (sender, receiver) = async_channel::bounded(1);
        self.state.borrow_mut().waiting.push(Some(owner.into()), sender, super::now());
        self.hand_out();
        match receiver.recv().await {
            Ok(turn) => turn,
            // The queue drops a sender only after use.
            Err(_) => std::future::pending().await,
        }
    }

    fn hand_out(self: &Rc<Self>) {
        while let Some((owner, sender)) = self.next() {
            let turn = Turn { turns: Some(Rc::clone(self)), owner };
            if let Err(refused) = sender.try_send(turn) {
                // It no longer waits. Ends here instead of in `drop`, which would call this function again.
                let mut turn = refused.into_inner();
                turn.turns = None;
                self.end(&turn.owner);
            }
        }
    }

    fn next(&self) -> Option<(Owner, Sender<Turn>)> {
        let mut state = self.state.borrow_mut();
        if state.taken >= self.limit {
            return None;
        }
        let next = state.waiting.take()?;
        state.taken += 1;
        Some(next)
    }

    fn end(&self, owner: &Owner) {
        let mut state = self.state.borrow_mut();
        state.taken -= 1;
        state.waiting.ended(owner);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.end(&self.owner);
            turns.hand_out();
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{deadline, simulate, spawn};
    use super::*;

    #[test]
    fn owner_that_keeps_its_turns_delays_no_other() {
        let taken = simulate(1, |_| async {
            let turns = Turns::new(8, 2);
            let greedy: Vec<_> = (0..20)
                .map(|_| {
                    let turns = Rc::clone(&turns);
                    spawn(async move { turns.take("greedy").await })
                })
                .collect();
            super::super::sleep(Duration::from_secs(1)).await;
            let honest = deadline(Duration::from_secs(1), turns.take("honest")).await;
            drop(greedy);
            honest.is_ok()
        });
        assert_eq!(taken, Ok(true));
    }

    #[test]
    fn ended_and_abandoned_turns_go_to_those_that_wait() {
        let taken = simulate(1, |_| async {
            let turns = Turns::new(8, 1);
            let first = turns.take("a").await;
            for _ in 0..100 {
                assert!(deadline(Duration::from_millis(1), turns.take("a")).await.is_err());
            }
            drop(first);
            let next = deadline(Duration::from_secs(1), turns.take("a")).await;
            assert!(next.is_ok());
            drop(next);
            turns.state.borrow().taken
        });
        assert_eq!(taken, Ok(0));
    }
}
