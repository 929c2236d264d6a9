//! inotify in simulations: the kernel's own, on the simulation's own disk. The kernel queues events synchronously, and only
//! the simulation's thread changes that disk, so a seed always gives the same events.
//!
//! A killed agent loses its queued events with its descriptor, as a real one does.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{major, minor};

/// The inotify instances of a simulation.
#[derive(Default)]
pub(super) struct Watches {
    open: RefCell<Vec<Weak<Watched>>>,
    /// The device number of the disk. Other file systems are the machine's, whose programs change them at any time.
    disk: RefCell<Option<u64>>,
}

/// An inotify instance, and the task that waits for its events.
#[derive(Debug)]
pub struct Watched {
    instance: OwnedFd,
    waits: Mutex<Option<Waker>>,
}

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Watches {
    /// Allows watches on the file system of this directory.
    pub(super) fn allow(&self, disk: &Path) -> io::Result<()> {
        let device = fs::metadata(disk)?.dev();
        // As the kernel writes it in fdinfo.
        self.disk.replace(Some(u64::from(major(device)) << 20 | u64::from(minor(device))));
        Ok(())
    }

    /// Fails if the instance watches anything but the disk.
    pub(super) fn add(&self, instance: &impl AsFd) -> io::Result<Arc<Watched>> {
        let instance = instance.as_fd().try_clone_to_owned()?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", instance.as_raw_fd()))?;
        let devices = info.split_whitespace().filter_map(|field| field.strip_prefix("sdev:"));
        if devices.map(|device| u64::from_str_radix(device, 16).ok()).any(|device| device != *self.disk.borrow()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let watched = Arc::new(Watched { instance, waits: Mutex::default() });
        self.open.borrow_mut().push(Arc::downgrade(&watched));
        Ok(watched)
    }

    /// Wakes the tasks for which there are events; false if there are none.
    pub(super) fn wake(&self) -> bool {
        let mut open = self.open.borrow_mut();
        open.retain(|watched| watched.strong_count() > 0);
        let waiting: Vec<_> = open.iter().filter_map(Weak::upgrade).filter(|watched| watched.is_waited_for()).collect();
        // One call for all: this runs before each step of the clock.
        let mut poll_fds: Vec<_> =
            waiting.iter().map(|watched| PollFd::new(&watched.instance, PollFlags::IN)).collect();
        if poll_fds.is_empty() || poll(&mut poll_fds, Some(&NO_WAIT)).is_ok_and(|ready| ready == 0) {
            return false;
        }
        let ready = waiting.iter().zip(&poll_fds).filter(|(_, poll_fd)| poll_fd.revents().contains(PollFlags::IN));
        let wakers: Vec<Waker> = ready.filter_map(|(watched, _)| watched.waits.lock().unwrap().take()).collect();
        let is_any = !wakers.is_empty();
        wakers.into_iter().for_each(Waker::wake);
        is_any
    }
}

impl Watched {
    fn has_events(&self) -> bool {
        poll(&mut [PollFd::new(&self.instance, PollFlags::IN)], Some(&NO_WAIT)).is_ok_and(|ready| ready > 0)
    }

    fn is_waited_for(&self) -> bool {
        self.waits.lock().unwrap().is_some()
    }

    pub(super) fn poll_readable(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.has_events() {
            return Poll::Ready(Ok(()));
        }
        self.waits.lock().unwrap().replace(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

    use super::super::{Async, Elapsed, TestFolder, World, deadline, simulate, sleep, spawn};
    use super::*;

    fn watch(world: &World, folder: &Path) -> Async<Inotify> {
        world.watches.allow(folder).unwrap();
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
        inotify.add_watch(folder, AddWatchFlags::IN_ALL_EVENTS.difference(AddWatchFlags::IN_OPEN)).unwrap();
        Async::new(inotify).unwrap()
    }

    async fn events(inotify: &Async<Inotify>) -> Vec<(AddWatchFlags, String)> {
        inotify.readable().await.unwrap();
        let name = |name: Option<std::ffi::OsString>| name.map_or_else(String::new, |name| name.into_string().unwrap());
        let events = inotify.get_ref().read_events().unwrap();
        events.into_iter().map(|event| (event.mask, name(event.name))).collect()
    }

    #[test]
    fn events_of_the_disk_arrive_without_a_timer() {
        let folder = TestFolder::new("watched-events");
        let path = folder.0.clone();
        let result = simulate(1, |world: Rc<World>| async move {
            let inotify = watch(&world, &path);
            let begun = world.passed();
            let changes = spawn(async move {
                sleep(Duration::from_secs(3600)).await;
                fs::write(path.join("a"), "1").unwrap();
                fs::rename(path.join("a"), path.join("b")).unwrap();
                fs::remove_file(path.join("b")).unwrap();
            });
            let result = events(&inotify).await;
            changes.await;
            (world.passed() - begun, result)
        });
        let named = |mask: AddWatchFlags, name: &str| (mask, name.to_owned());
        let events = vec![
            named(AddWatchFlags::IN_CREATE, "a"),
            named(AddWatchFlags::IN_MODIFY, "a"),
            named(AddWatchFlags::IN_CLOSE_WRITE, "a"),
            named(AddWatchFlags::IN_MOVED_FROM, "a"),
            named(AddWatchFlags::IN_MOVED_TO, "b"),
            named(AddWatchFlags::IN_DELETE, "b"),
        ];
        assert_eq!(result, Ok((Duration::from_secs(3600), events)));
    }

    #[test]
    fn queued_events_wait_for_their_reader_and_end_with_its_descriptor() {
        let folder = TestFolder::new("watched-queued");
        let path = folder.0.clone();
        let result = simulate(1, |world: Rc<World>| async move {
            let inotify = watch(&world, &path);
            fs::write(path.join("a"), "1").unwrap();
            sleep(Duration::from_secs(60)).await;
            let queued = events(&inotify).await.len();
            fs::write(path.join("a"), "2").unwrap();
            // The program ends, and another one starts.
            drop(inotify);
            let inotify = watch(&world, &path);
            let waits = deadline(Duration::from_secs(60), inotify.readable()).await;
            (queued, waits.is_err_and(|Elapsed| true))
        });
        assert_eq!(result, Ok((3, true)));
    }

    #[test]
    fn overflow_is_reported() {
        let folder = TestFolder::new("watched-overflow");
        let path = folder.0.clone();
        let most: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
        let result = simulate(1, move |world: Rc<World>| async move {
            let inotify = watch(&world, &path);
            for _ in 0..=most / 2 {
                fs::write(path.join("a"), "").unwrap();
                fs::remove_file(path.join("a")).unwrap();
            }
            let (mut count, mut lost) = (0, false);
            loop {
                match inotify.get_ref().read_events() {
                    Ok(events) => {
                        count += events.len();
                        lost |= events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
                    }
                    Err(Errno::EAGAIN) => return (count <= most + 1, lost),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert_eq!(result, Ok((true, true)));
    }

    #[test]
    fn other_file_systems_are_not_watched() {
        let folder = TestFolder::new("watched-others");
        let path = folder.0.clone();
        let kind = simulate(1, |world: Rc<World>| async move {
            world.watches.allow(&path).unwrap();
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
            inotify.add_watch("/proc", AddWatchFlags::IN_CREATE).unwrap();
            Async::new(inotify).map_err(|error| error.kind()).err()
        });
        assert_eq!(kind, Ok(Some(io::ErrorKind::Unsupported)));
    }
}
