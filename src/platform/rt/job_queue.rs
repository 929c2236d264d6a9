//! The job queue of a thread pool: the node's jobs first, then first come, first served, without letting one owner
//! occupy all threads. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The owner of a job, such as a pod uid; `None` for the node itself.
pub(super) type Owner = Option<Arc<str>>;

/// Waiting jobs, and the number of running ones, by owner. Each step takes time in proportion to the owners.
pub(super) struct JobQueue<T> {
    threads: usize,
    /// Most running jobs of one owner.
    of_one: usize,
    /// Those with waiting or running jobs.
    owners: Vec<OwnedJobs<T>>,
    arrivals: u64,
}

struct OwnedJobs<T> {
    owner: Owner,
    /// Not counted for the node itself, whose jobs have no limit.
    running: usize,
    waiting: VecDeque<Waiting<T>>,
}

struct Waiting<T> {
    /// The place in the order of arrival.
    arrival: u64,
    since: Instant,
    job: T,
}

impl<T> JobQueue<T> {
    pub(super) const fn new(threads: usize, of_one: usize) -> Self {
        Self { threads, of_one, owners: Vec::new(), arrivals: 0 }
    }

    pub(super) fn push(&mut self, owner: Owner, job: T, now: Instant) {
        self.arrivals = self.arrivals.wrapping_add(1);
        let waiting = Waiting { arrival: self.arrivals, since: now, job };
        match self.owners.iter_mut().find(|owned_jobs| owned_jobs.owner == owner) {
            Some(owned_jobs) => owned_jobs.waiting.push_back(waiting),
            None => self.owners.push(OwnedJobs { owner, running: 0, waiting: VecDeque::from([waiting]) }),
        }
    }

    /// The next job with its owner for [`JobQueue::ended`]: the first job of the node, or else of the owners with the
    /// fewest running jobs.
    pub(super) fn take(&mut self) -> Option<(Owner, T)> {
        let (threads, of_one, running_jobs) = (self.threads, self.of_one, self.running());
        let allowed = self.owners.iter_mut().filter(|owned_jobs| {
            owned_jobs.owner.is_none() || allows(threads, of_one, running_jobs, owned_jobs.running)
        });
        let with_first = allowed.filter_map(|owned_jobs| Some((owned_jobs.waiting.front()?.arrival, owned_jobs)));
        let (_, next) = with_first
            .min_by_key(|(arrival, owned_jobs)| (owned_jobs.owner.is_some(), owned_jobs.running, *arrival))?;
        let Waiting { job, .. } = next.waiting.pop_front()?;
        next.running += usize::from(next.owner.is_some());
        let owner = next.owner.clone();
        self.forget_idle();
        Some((owner, job))
    }

    /// Must be called when a job of this owner has ended.
    pub(super) fn ended(&mut self, owner: &Owner) {
        let owned_jobs = self.owners.iter_mut().find(|owned_jobs| owned_jobs.owner == *owner);
        owned_jobs.into_iter().for_each(|owned_jobs| owned_jobs.running = owned_jobs.running.saturating_sub(1));
        self.forget_idle();
    }

    /// Number of jobs that would run now with unlimited threads.
    pub(super) fn ready(&self) -> usize {
        let (of_node, of_owners): (Vec<_>, Vec<_>) =
            self.owners.iter().partition(|owned_jobs| owned_jobs.owner.is_none());
        let mut jobs: Vec<(usize, usize)> =
            of_owners.iter().map(|owned_jobs| (owned_jobs.running, owned_jobs.waiting.len())).collect();
        let (before, mut running_jobs) = (self.running(), self.running());
        let next = |jobs: &mut Vec<(usize, usize)>, running_jobs: usize| {
            let waiting = jobs.iter_mut().filter(|(_, waiting)| *waiting > 0);
            let allowed = waiting.filter(|(running, _)| allows(self.threads, self.of_one, running_jobs, *running));
            allowed.min_by_key(|(running, _)| *running).map(|(running, waiting)| {
                *running += 1;
                *waiting -= 1;
            })
        };
        while next(&mut jobs, running_jobs).is_some() {
            running_jobs += 1;
        }
        running_jobs - before + of_node.iter().map(|owned_jobs| owned_jobs.waiting.len()).sum::<usize>()
    }

    /// How long the oldest job has waited, and how many jobs wait.
    pub(super) fn oldest(&self, now: Instant) -> Option<(Duration, usize)> {
        let first = self
            .owners
            .iter()
            .filter_map(|owned_jobs| owned_jobs.waiting.front())
            .min_by_key(|waiting| waiting.arrival)?;
        Some((now.saturating_duration_since(first.since), self.len()))
    }

    /// Number of waiting jobs.
    pub(super) fn len(&self) -> usize {
        self.owners.iter().map(|owned_jobs| owned_jobs.waiting.len()).sum()
    }

    fn running(&self) -> usize {
        self.owners.iter().map(|owned_jobs| owned_jobs.running).sum()
    }

    fn forget_idle(&mut self) {
        self.owners.retain(|owned_jobs| owned_jobs.running > 0 || !owned_jobs.waiting.is_empty());
    }
}

/// Reserves one thread for jobs without an owner, even if jobs of several owners hang, and the last quarter for owners
/// without a running job. `running` jobs run, of which `running_of_owner` are the owner's.
fn allows(threads: usize, of_one: usize, running: usize, running_of_owner: usize) -> bool {
    let most = match running_of_owner {
        0 => threads.saturating_sub(1),
        owners_jobs if owners_jobs < of_one => threads - threads / 4,
        _ => 0,
    };
    running < most
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
    fn owner_has_at_most_two_running_jobs() {
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
    fn many_jobs_of_an_owner_take_time_in_proportion() {
        let (mut queue, now) = (JobQueue::new(513, 128), Instant::now());
        let owners: Vec<Owner> = (0..100).map(|number| Some(Arc::from(format!("pod-{number}")))).collect();
        owners.iter().for_each(|owner| queue.push(owner.clone(), 0, now));
        (0..100_000).for_each(|job| queue.push(owners.first().unwrap().clone(), job, now));
        let mut taken = 0;
        while let Some((owner, _)) = queue.take() {
            taken += 1;
            queue.ended(&owner);
        }
        // Minutes, if each step looked at each waiting job.
        assert_eq!((taken, queue.len(), queue.running()), (100_100, 0, 0));
        assert!(now.elapsed() < Duration::from_secs(20));
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
    fn oldest_job_waits_since_its_arrival() {
        let (mut queue, now) = (JobQueue::new(4, 2), Instant::now());
        assert_eq!(queue.oldest(now), None);
        queue.push(None, 1, now);
        queue.push(None, 2, now + Duration::from_secs(1));
        assert_eq!(queue.oldest(now + Duration::from_secs(3)), Some((Duration::from_secs(3), 2)));
    }
}
