//! Tasks that go on when the caller who waits for them is dropped.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;

use super::{Task, spawn};

/// Dropping it cancels its tasks.
#[derive(Debug, Default)]
pub struct UncancelledTasks(RefCell<Vec<Task<()>>>);

impl UncancelledTasks {
    /// Runs `future` to its end, also if the caller is dropped meanwhile. Whoever gives it bounds its time.
    pub async fn run<T: 'static>(&self, future: Pin<Box<dyn Future<Output = T>>>) -> T {
        let outcome = Rc::new(Cell::new(None));
        let (ends, ended) = async_channel::bounded::<()>(1);
        let of_task = Rc::clone(&outcome);
        let task = spawn(async move {
            of_task.set(Some(future.await));
            drop(ends);
        });
        let mut tasks = self.0.take();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
        self.0.replace(tasks);
        // The channel closes.
        let _ = ended.recv().await;
        match outcome.take() {
            Some(outcome) => outcome,
            // These tasks are cancelled only with the agent.
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::rt;

    #[test]
    fn task_goes_on_without_its_caller() {
        let minute = Duration::from_secs(60);
        let ended = rt::simulate(1, |_| async move {
            let (tasks, ended) = (UncancelledTasks::default(), Rc::new(Cell::new(false)));
            let of_task = Rc::clone(&ended);
            let task = async move {
                rt::sleep(minute).await;
                of_task.set(true);
            };
            rt::deadline(Duration::from_secs(1), tasks.run(Box::pin(task))).await.unwrap_err();
            rt::sleep(minute).await;
            ended.get()
        });
        assert_eq!(ended, Ok(true));
    }
}
