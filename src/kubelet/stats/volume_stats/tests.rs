//! Real file systems, one of which hangs.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;

/// A directory with an empty directory and a FUSE mount without a server.
struct Scratch {
    root: PathBuf,
    /// When closed, all requests to the mount fail.
    server: Option<fs::File>,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("coracle-inquiries-{name}-{}", std::process::id()));
        for directory in ["here", "away"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        Self { root, server: None }
    }

    /// Mounts a file system that hangs like that of an unreachable file server; false if the kernel has no FUSE.
    fn with_server_away(&mut self) -> bool {
        let Ok(server) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else { return false };
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("away"), &self.root.join("away"), Some("fuse"), MsFlags::empty(), Some(options.as_str())).unwrap();
        self.server = Some(server);
        true
    }

    fn volume(&self, name: &str, directory: &str, teller: UsageSource) -> ForeignVolume {
        ForeignVolume {
            pod: "u".to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            claim: Some("data".to_owned()),
            path: self.root.join(directory),
            teller,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.server = None;
        let _ = umount2(&self.root.join("away"), MntFlags::MNT_DETACH);
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn inquiries(root: &Path) -> VolumeStatsCache {
    VolumeStatsCache::new(Csi::new(root, "node", async_channel::bounded(1).0, None))
}

/// Repeats the request: on a busy machine an inquiry may take longer than a request waits.
async fn result_of(inquiries: &VolumeStatsCache, volumes: &[ForeignVolume], of: &ForeignVolume) -> VolumeSnapshot {
    loop {
        inquiries.begin(volumes.iter());
        inquiries.wait().await;
        if let Some(seen) = inquiries.last_result(of) {
            return seen;
        }
        rt::yield_now().await;
    }
}

#[test]
fn file_system_is_measured_and_forgotten_with_its_volume() {
    let scratch = Scratch::new("here");
    let volumes = [scratch.volume("v", "/", UsageSource::Mount), scratch.volume("w", "here", UsageSource::Mount)];
    let inquiries = inquiries(&scratch.root);
    rt::block_on(async {
        let seen = result_of(&inquiries, &volumes, &volumes[0]).await;
        assert_eq!((&*seen.name, seen.claim.as_deref(), seen.is_elsewhere), ("v", Some("data"), true));
        assert!(seen.disk.capacity > 0 && seen.used.bytes == seen.disk.used && seen.at > 0, "{seen:?}");
        while inquiries.queries.borrow().values().any(|inquiry| !inquiry.task.is_finished()) {
            rt::yield_now().await;
        }
        assert_eq!(inquiries.last_result(&volumes[1]), None, "nothing is mounted there");
        let last_begun = || inquiries.queries.borrow()[&volumes[0]].began;
        let began = last_begun();
        inquiries.begin(volumes.iter());
        assert_eq!(last_begun(), began, "less than a minute ago");
        let a_minute_passes = || {
            let mut queries = inquiries.queries.borrow_mut();
            queries.get_mut(&volumes[0]).unwrap().began = began.checked_sub(MIN_VOLUME_STATS_INTERVAL).unwrap();
        };
        a_minute_passes();
        inquiries.begin(volumes.iter());
        assert!(last_begun() >= began, "now it is");
        a_minute_passes();
        inquiries.begin(volumes.iter());
        assert!(last_begun() < began, "it has not answered yet");
        inquiries.begin(std::iter::empty());
        assert_eq!(inquiries.last_result(&volumes[0]), None);
    });
}

/// Number of volumes whose server hangs: more than there are threads.
const HANGING: usize = 24;

#[test]
fn only_the_first_request_waits_for_a_hanging_file_server() {
    let mut scratch = Scratch::new("away");
    if !scratch.with_server_away() {
        eprintln!("not run: there is no /dev/fuse");
        return;
    }
    let names: Vec<String> = (0..HANGING).map(|number| number.to_string()).collect();
    let mut volumes: Vec<_> = names.iter().map(|name| scratch.volume(name, "away", UsageSource::Mount)).collect();
    volumes.insert(0, scratch.volume("v", "/", UsageSource::Mount));
    let inquiries = inquiries(&scratch.root);
    rt::block_on(async {
        result_of(&inquiries, &volumes, &volumes[0]).await;
        let hanging = volumes[1].clone();
        let is_slow = || inquiries.queries.borrow()[&hanging].cached.is_slow.get();
        while !is_slow() {
            inquiries.wait().await;
        }
        let asked = Instant::now();
        (0..20).for_each(|_| inquiries.begin(volumes.iter()));
        for _ in 0..20 {
            inquiries.wait().await;
        }
        assert!(asked.elapsed() < 10 * VOLUME_STATS_WAIT, "{:?}", asked.elapsed());
        assert_eq!(inquiries.last_result(&hanging), None);
        assert!(!inquiries.queries.borrow()[&hanging].task.is_finished());
        // Another pod's volumes are measured all the same.
        let honest = ForeignVolume { pod: "honest".to_owned(), ..scratch.volume("h", "/", UsageSource::Mount) };
        volumes.push(honest.clone());
        let answered = rt::deadline(Duration::from_secs(20), result_of(&inquiries, &volumes, &honest)).await;
        assert_eq!(answered.map(|seen| seen.name), Ok("h".to_owned()));
        scratch.server = None;
        while inquiries.queries.borrow().values().any(|inquiry| !inquiry.task.is_finished()) {
            rt::yield_now().await;
        }
    });
}

/// Processor time of two requests for this many volumes of a pod, the second one with results. No task runs.
fn time_of_requests(count: usize) -> Duration {
    let scratch = Scratch::new(&format!("many-{count}"));
    let volumes: Vec<_> =
        (0..count).map(|number| scratch.volume(&format!("v{number}"), "here", UsageSource::Mount)).collect();
    let inquiries = inquiries(&scratch.root);
    let begun = rt::processor_time();
    for _ in 0..2 {
        inquiries.begin(volumes.iter());
        assert!(volumes.iter().all(|volume| inquiries.last_result(volume).is_none()));
    }
    rt::processor_time() - begun
}

#[test]
fn work_for_volumes_grows_with_their_number() {
    let best = |count| (0..3).map(|_| time_of_requests(count)).min().unwrap();
    let (few, many) = (best(1000), best(4000));
    assert!(many < 8 * few, "{few:?} for 1000 volumes, {many:?} for 4000");
}
