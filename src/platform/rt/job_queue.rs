//! The job queue of a thread pool: the node's jobs first, then first come, first served, without letting one owner
//! occupy all threads. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The owner of a job, such as a pod uid; `None` for the node itself.
pub(super) type Owner = Option<Arc<str>>;

/// Waiting jobs, and the owners of running ones.
pub(super) struct JobQueue<T> {
    threads: usize,
    /// Most running jobs of one owner.
    of_one: usize,
    waiting: VecDeque<Waiting<T>>,
    running: Vec<Arc<str>>,
}

struct Waiting<T> {
    owner: Owner,
    since: Instant,
    job: T,
}

impl<T> JobQueue<T> {
    pub(super) const fn new(threads: usize, of_one: usize) -> Self {
        Self { threads, of_one, waiting: VecDeque::new(), running: Vec::new() }
    }

    pub(super) fn push(&mut self, owner: Owner, job: T, now: Instant) {
        self.waiting.push_back(Waiting { owner, since: now, job });
    }

    /// The next job with its owner for [`JobQueue::ended`]: the first job of the node, or else of the owners with the
    /// fewest running jobs.
    pub(super) fn take(&mut self) -> Option<(Owner, T)> {
        let allowed = self.waiting.iter().enumerate().filter(|(_, waiting)| self.allows(&self.running, &waiting.owner));
        let (place, _) =
            allowed.min_by_key(|(_, waiting)| (waiting.owner.is_some(), of(&self.running, &waiting.owner)))?;
        let Waiting { owner, job, .. } = self.waiting.remove(place)?;
        self.running.extend(owner.clone());
        Some((owner, job))
    }

    /// Must be called when a job of this owner has ended.
    pub(super) fn ended(&mut self, owner: &Owner) {
        let place = self.running.iter().position(|running| Some(running) == owner.as_ref());
        place.map(|place| self.running.swap_remove(place));
    }

    /// Number of jobs that would run now with unlimited threads.
    pub(super) fn ready(&self) -> usize {
        let mut running = self.running.clone();
        let mut ready = 0;
        for waiting in &self.waiting {
            if self.allows(&running, &waiting.owner) {
                running.extend(waiting.owner.clone());
                ready += 1;
            }
        }
        ready
    }

    /// How long the oldest job has waited, and how many jobs wait.
    pub(super) fn oldest(&self, now: Instant) -> Option<(Duration, usize)> {
        let first = self.waiting.front()?;
        Some((now.saturating_duration_since(first.since), self.waiting.len()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Reserves one thread for jobs without an owner, even if jobs of several owners hang, and the last quarter for
    /// owners without a running job.
    fn allows(&self, running: &[Arc<str>], owner: &Owner) -> bool {
        let most = match of(running, owner) {
            0 => self.threads.saturating_sub(1),
            of_owner if of_owner < self.of_one => self.threads - self.threads / 4,
            _ => 0,
        };
        owner.is_none() || running.len() < most
    }
}

fn of(running: &[Arc<str>], owner: &Owner) -> usize {
    running.iter().filter(|running| Some(*running) == owner.as_ref()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs that a pool of four threads starts, in order, if none of them ends.
    fn started(jobs: &[(&str, u32)]) -> Vec<u32> {
        let mut queue = JobQueue::new(4, 2);
        for (owner, job) in jobs {
            queue.push((!owner.is_empty()).then(|| Arc::from(*owner)), *job, Instant::now());
        }
        let ready = queue.ready();
        let started: Vec<u32> = std::iter::from_fn(|| queue.take()).map(|(_, job)| job).collect();
        assert_eq!(ready, started.len());
        started
    }

    #[test]
    fn an_owner_has_at_most_two_running_jobs() {
        assert_eq!(started(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]), [1, 4, 2]);
    }

    #[test]
    fn owned_jobs_leave_a_thread_for_the_node() {
        assert_eq!(started(&[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("", 5)]), [5, 1, 2, 3]);
    }

    #[test]
    fn last_quarter_is_for_owners_without_a_running_job() {
        let mut queue = JobQueue::new(8, 2);
        let now = Instant::now();
        for owner in ["a", "a", "b", "b", "c", "c"] {
            queue.push(Some(owner.into()), 0, now);
        }
        assert_eq!(std::iter::from_fn(|| queue.take()).count(), 6);
        queue.push(Some("d".into()), 1, now);
        queue.push(Some("d".into()), 2, now);
        assert_eq!(queue.take().map(|(_, job)| job), Some(1));
        assert!(queue.take().is_none());
    }

    #[test]
    fn jobs_without_an_owner_run_in_order() {
        assert_eq!(started(&[("", 1), ("", 2), ("", 3), ("", 4), ("", 5)]), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn owners_with_fewer_running_jobs_come_first() {
        let (mut queue, now) = (JobQueue::new(4, 2), Instant::now());
        let a: Owner = Some("a".into());
        (0..10).for_each(|job| queue.push(a.clone(), job, now));
        assert_eq!((queue.take().map(|(_, job)| job), queue.take().map(|(_, job)| job)), (Some(0), Some(1)));
        assert!(queue.take().is_none());
        queue.push(Some("b".into()), 10, now);
        queue.ended(&a);
        assert_eq!(queue.take().map(|(_, job)| job), Some(10));
        assert_eq!(queue.take().map(|(_, job)| job), Some(2));
    }

    #[test]
    fn the_oldest_job_waits_since_its_arrival() {
        let (mut queue, now) = (JobQueue::new(4, 2), Instant::now());
        assert_eq!(queue.oldest(now), None);
        queue.push(None, 1, now);
        queue.push(None, 2, now + Duration::from_secs(1));
        assert_eq!(queue.oldest(now + Duration::from_secs(3)), Some((Duration::from_secs(3), 2)));
    }
}
