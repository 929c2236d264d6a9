//! Images with a scripted image service.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::pending;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::{Receiver, Sender};

use super::gc::InUse;
use super::service::ImageError;
use super::*;
use crate::kubelet::image_archives::RuntimeVerifiers;
use crate::kubelet::image_transfer::{FetchPlaces, key_of};
use crate::platform::config::ImageGc;
use crate::platform::cri::RuntimeService;
use crate::platform::cri::v1::{AuthConfig, FilesystemIdentifier, FilesystemUsage, ImageFsInfoResponse, ImageSpec};
use crate::platform::net::ProxySettings;
use crate::protocol::grpc::{Code, Status};

const IMAGE: &str = "registry.invalid/none/such:1";

/// The result of the next pull.
enum Pull {
    Gives(Image),
    Fails(&'static str),
    /// Waits for a message, then succeeds.
    Waits(Receiver<()>, Image),
}

#[derive(Default)]
pub(super) struct Script {
    present: RefCell<Vec<(String, Image)>>,
    pulls: RefCell<VecDeque<Pull>>,
    pulled: RefCell<Vec<String>>,
    /// The username of each pull.
    users: RefCell<Vec<String>>,
    looked: RefCell<Vec<String>>,
    inspect_error: Option<&'static str>,
    /// The id of an image that cannot be removed.
    unremovable: Option<&'static str>,
    /// What pulls return instead of the id, as some versions of CRI-O.
    pull_ref: Cell<Option<&'static str>>,
}

impl Script {
    /// The runtime has the image under this name.
    pub(super) fn add(&self, name: &str, image: Image) {
        self.present.borrow_mut().push((name.to_owned(), image));
    }

    /// Pulls of the runtime so far.
    pub(super) fn pulls(&self) -> usize {
        self.pulled.borrow().len()
    }
}

/// An error from the runtime.
fn refused(message: &str) -> ImageError {
    ImageError::Runtime(Status::new(Code::Unknown, message))
}

impl Service for Rc<Script> {
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, ImageError> {
        self.looked.borrow_mut().push(image.image.clone());
        match self.inspect_error {
            Some(error) => Err(refused(error)),
            None => {
                let present = self.present.borrow();
                let found = present.iter().find(|(name, found)| *name == image.image || found.id == image.image);
                Ok(found.map(|(_, found)| found.clone()))
            }
        }
    }

    async fn pull(
        &self,
        image: &ImageSpec,
        auth: Option<&AuthConfig>,
        _: &PodSandboxConfig,
    ) -> Result<String, ImageError> {
        self.users.borrow_mut().push(auth.map_or_else(String::new, |auth| auth.username.clone()));
        self.pulled.borrow_mut().push(image.image.clone());
        let next = self.pulls.borrow_mut().pop_front().expect("the script has no more pulls");
        let found = match next {
            Pull::Fails(error) => return Err(refused(error)),
            Pull::Gives(found) => found,
            Pull::Waits(word, found) => {
                word.recv().await.ok();
                found
            }
        };
        let id = self.pull_ref.get().map_or_else(|| found.id.clone(), str::to_owned);
        self.present.borrow_mut().push((image.image.clone(), found));
        Ok(id)
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        Ok(self.present.borrow().iter().map(|(_, image)| image.clone()).collect())
    }

    async fn remove(&self, image: &ImageSpec) -> Result<(), ImageError> {
        if self.unremovable.is_some_and(|id| id == image.image) {
            return Err(refused("read-only file system"));
        }
        self.present.borrow_mut().retain(|(_, present)| present.id != image.image);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<ImageFsInfoResponse, ImageError> {
        // The file system of the test binary is in use; a temporary directory may be on an empty one.
        let program = std::env::current_exe().unwrap();
        let mountpoint = program.parent().unwrap().display().to_string();
        let fs_id = Some(FilesystemIdentifier { mountpoint });
        let usage = FilesystemUsage { fs_id, ..FilesystemUsage::default() };
        Ok(ImageFsInfoResponse { image_filesystems: vec![usage], ..ImageFsInfoResponse::default() })
    }
}

pub(super) fn image(id: &str) -> Image {
    Image { id: id.to_owned(), size: 7, uid: Some(1000), ..Image::default() }
}

pub(super) fn images(script: &Rc<Script>, parallel: Option<u32>) -> Images<Rc<Script>> {
    images_as(script, config_with(|config| config.images.max_parallel_pulls = parallel))
}

fn images_as(script: &Rc<Script>, config: Config) -> Images<Rc<Script>> {
    Images::new(Rc::clone(script), &config, async_channel::bounded(1).0)
}

/// No limits, and nothing specific to this machine.
fn config() -> Config {
    let mut config = Config { root_dir: "/nowhere".into(), ..Config::default() };
    config.images.serialize_pulls = false;
    config.images.registry_pull_qps = 0;
    config.images.credentials_verification = CredentialsVerification::Never;
    config
}

/// The configuration, modified by `set`.
fn config_with(set: impl FnOnce(&mut Config)) -> Config {
    let mut config = config();
    set(&mut config);
    config
}

pub(super) fn pod(uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = PodUid::from(uid);
    pod.metadata.annotations = [("note", "x".to_owned())].into_iter().collect();
    pod
}

fn container(image: &str, policy: PullPolicy) -> Container {
    Container { image: image.to_owned(), image_pull_policy: Some(policy), ..Container::default() }
}

async fn ensure(
    images: &Images<Rc<Script>>,
    uid: &str,
    image: &str,
    policy: PullPolicy,
) -> Result<PresentImage, Waiting> {
    ensure_with(images, uid, image, policy, &PullSecrets::default()).await
}

async fn ensure_with(
    images: &Images<Rc<Script>>,
    uid: &str,
    image: &str,
    policy: PullPolicy,
    secrets: &PullSecrets,
) -> Result<PresentImage, Waiting> {
    let wanted = container(image, policy);
    images.ensure(&pod(uid), WantedImage::by(&wanted), &PodSandboxConfig::default(), secrets.clone(), pending()).await
}

fn now(images: &Images<Rc<Script>>, image: &str, policy: PullPolicy) -> Result<PresentImage, Waiting> {
    rt::block_on(ensure(images, "u", image, policy))
}

fn waits(reason: Reason, message: &str) -> Result<PresentImage, Waiting> {
    Err(Waiting::new(reason, message))
}

#[test]
fn present_image_is_used_by_id_with_its_user() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("busybox:latest".to_owned(), image("sha256:1")));
    let images = images(&script, Some(1));
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        let user = ImageUser { uid: Some(1000), name: String::new() };
        assert_eq!(
            now(&images, "busybox", policy),
            Ok(PresentImage { image_ref: "sha256:1".to_owned(), user, size: 7, names: Vec::new() })
        );
    }
    assert!(script.pulled.borrow().is_empty());
}

#[test]
fn always_pulls_present_images_and_if_not_present_only_missing_ones() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().extend([Pull::Gives(image("sha256:1")), Pull::Gives(image("sha256:2"))]);
    let images = images(&script, Some(1));
    assert_eq!(now(&images, "a:1", PullPolicy::IfNotPresent).unwrap().image_ref, "sha256:1");
    assert_eq!(now(&images, "a:1", PullPolicy::Always).unwrap().image_ref, "sha256:2");
    assert_eq!(*script.pulled.borrow(), ["a:1", "a:1"]);
}

#[test]
fn missing_image_with_never_is_reported() {
    let script = Rc::new(Script::default());
    assert_eq!(
        now(&images(&script, Some(1)), IMAGE, PullPolicy::Never),
        waits(
            Reason::ERR_IMAGE_NEVER_PULL,
            "Container image \"registry.invalid/none/such:1\" is not present with pull policy of Never"
        )
    );
}

#[test]
fn invalid_name_asks_no_service() {
    let script = Rc::new(Script::default());
    assert_eq!(
        now(&images(&script, Some(1)), "a b", PullPolicy::Always),
        waits(
            Reason::INVALID_IMAGE_NAME,
            "Failed to apply default image tag \"a b\": couldn't parse image name \"a b\": invalid reference format"
        )
    );
    assert!(script.looked.borrow().is_empty() && script.pulled.borrow().is_empty());
}

#[test]
fn failed_inspection_prevents_the_pull() {
    let script = Rc::new(Script { inspect_error: Some("no disk"), ..Script::default() });
    assert_eq!(
        now(&images(&script, Some(1)), IMAGE, PullPolicy::IfNotPresent),
        waits(Reason::IMAGE_INSPECT_ERROR, "Failed to inspect image \"registry.invalid/none/such:1\": no disk")
    );
    assert!(script.pulled.borrow().is_empty());
}

#[test]
fn failed_pull_backs_off_with_its_error() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Fails("failed to resolve reference"));
    let images = images(&script, Some(1));
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Always] {
        let expected = match policy {
            PullPolicy::IfNotPresent => waits(Reason::ERR_IMAGE_PULL, "failed to resolve reference"),
            _ => waits(
                Reason::IMAGE_PULL_BACK_OFF,
                "Back-off pulling image \"registry.invalid/none/such:1\": ErrImagePull: failed to resolve reference",
            ),
        };
        assert_eq!(now(&images, IMAGE, policy), expected);
    }
    let until = images.retry_at(&PodUid::from("u"), IMAGE).unwrap().duration_since(Instant::now());
    assert!(until > Duration::from_secs(5) && until <= Duration::from_secs(10), "{until:?}");
    assert_eq!(images.retry_at(&PodUid::from("v"), IMAGE), None);
}

#[test]
fn image_from_elsewhere_ends_the_backoff() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Fails("no route"));
    let images = images(&script, Some(1));
    assert_eq!(now(&images, IMAGE, PullPolicy::IfNotPresent), waits(Reason::ERR_IMAGE_PULL, "no route"));
    script.present.borrow_mut().push((IMAGE.to_owned(), image("sha256:1")));
    let used = now(&images, IMAGE, PullPolicy::IfNotPresent).map(|image| image.image_ref);
    assert_eq!((used.as_deref(), script.pulled.borrow().len()), (Ok("sha256:1"), 1));
}

#[test]
fn pull_rate_limit_fails_like_a_pull() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Gives(image("sha256:1")));
    let images = images_as(
        &script,
        config_with(|config| {
            config.images.registry_pull_qps = 1;
            config.images.registry_burst = 1;
        }),
    );
    assert!(now(&images, "a:1", PullPolicy::Always).is_ok());
    assert_eq!(now(&images, "a:1", PullPolicy::Always), waits(Reason::ERR_IMAGE_PULL, "pull QPS exceeded"));
    assert_eq!(script.pulled.borrow().len(), 1);
}

/// Two pods need an image while the first pull is in progress. Returns the number of pulls begun before it ended, and
/// in total.
fn pulls_of_two_pods(parallel: Option<u32>, policy: PullPolicy) -> (usize, usize) {
    let (word, listens): (Sender<()>, Receiver<()>) = async_channel::bounded(1);
    let script = Rc::new(Script::default());
    let waits = Pull::Waits(listens, image("sha256:1"));
    script.pulls.borrow_mut().extend([waits, Pull::Gives(image("sha256:1"))]);
    let images = Rc::new(images(&script, parallel));
    rt::block_on(async {
        let tasks = ["u", "v"].map(|uid| {
            let images = Rc::clone(&images);
            rt::spawn(async move { ensure(&images, uid, "a:1", policy).await })
        });
        // Either one pulls and the other waits for its turn, or both have begun.
        let both = parallel != Some(1);
        while script.pulled.borrow().len() < 1 + usize::from(both) || (!both && images.under_way().list().len() < 2) {
            rt::sleep(Duration::from_millis(1)).await;
        }
        let begun = script.pulled.borrow().len();
        word.send(()).await.unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap().image_ref, "sha256:1");
        }
        (begun, script.pulled.borrow().len())
    })
}

#[test]
fn waiting_pod_does_not_pull_an_image_that_arrived() {
    assert_eq!(pulls_of_two_pods(Some(1), PullPolicy::IfNotPresent), (1, 1));
    assert_eq!(pulls_of_two_pods(Some(1), PullPolicy::Always), (1, 2));
}

#[test]
fn parallel_pulls_run_concurrently() {
    assert_eq!(pulls_of_two_pods(None, PullPolicy::IfNotPresent), (2, 2));
    assert_eq!(pulls_of_two_pods(Some(2), PullPolicy::IfNotPresent), (2, 2));
}

#[test]
fn cancelled_pull_frees_its_turn_without_backoff() {
    let (_word, listens) = async_channel::bounded(1);
    let script = Rc::new(Script::default());
    let waits = Pull::Waits(listens, image("sha256:1"));
    script.pulls.borrow_mut().extend([waits, Pull::Gives(image("sha256:2"))]);
    let images = images(&script, Some(1));
    let given_up = rt::block_on(async {
        let wanted = container("a:1", PullPolicy::Always);
        let secrets = PullSecrets::default();
        let begun = async {
            while script.pulled.borrow().is_empty() {
                rt::sleep(Duration::from_millis(1)).await;
            }
        };
        images.ensure(&pod("u"), WantedImage::by(&wanted), &PodSandboxConfig::default(), secrets, begun).await
    });
    assert_eq!(given_up, self::waits(Reason::CONTAINER_CREATING, ""));
    assert_eq!(images.retry_at(&PodUid::from("u"), "a:1"), None);
    assert_eq!(now(&images, "a:1", PullPolicy::Always).unwrap().image_ref, "sha256:2");
}

#[test]
fn serialized_pulls_run_one_at_a_time() {
    let mut config = Config::default();
    config.images.serialize_pulls = true;
    config.images.max_parallel_pulls = Some(5);
    assert_eq!(PullLimits::of(&config).parallel, Some(1));
    config.images.serialize_pulls = false;
    assert_eq!(PullLimits::of(&config).parallel, Some(5));
}

const AWAY: &str = "failed to resolve reference \"r.io/a:1\": dial tcp 192.0.2.7:443: connect: connection refused";

#[test]
fn always_uses_the_present_image_during_an_outage() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/a:1".to_owned(), image("sha256:1")));
    script.pulls.borrow_mut().push_back(Pull::Fails(AWAY));
    let images = images(&script, Some(1));
    for uid in ["u", "u", "v"] {
        let found = rt::block_on(ensure(&images, uid, "r.io/a:1", PullPolicy::Always));
        assert_eq!(found.unwrap().image_ref, "sha256:1");
    }
    assert_eq!(script.pulled.borrow().len(), 1, "a later pod waited for the registry again");
    // Other registries and missing images are still pulled.
    script.pulls.borrow_mut().extend([Pull::Gives(image("sha256:2")), Pull::Fails(AWAY)]);
    assert_eq!(now(&images, "q.io/a:1", PullPolicy::Always).unwrap().image_ref, "sha256:2");
    assert_eq!(now(&images, "r.io/b:1", PullPolicy::Always), waits(Reason::ERR_IMAGE_PULL, AWAY));
}

#[test]
fn always_respects_a_denial() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/a:1".to_owned(), image("sha256:1")));
    script.pulls.borrow_mut().push_back(Pull::Fails("pull access denied"));
    assert_eq!(
        now(&images(&script, Some(1)), "r.io/a:1", PullPolicy::Always),
        waits(Reason::ERR_IMAGE_PULL, "pull access denied")
    );
}

#[test]
fn strict_node_fails_during_an_outage() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/a:1".to_owned(), image("sha256:1")));
    script.pulls.borrow_mut().push_back(Pull::Fails(AWAY));
    let images = images_as(&script, config_with(|config| config.images.strict_pull_policy = true));
    assert_eq!(now(&images, "r.io/a:1", PullPolicy::Always), waits(Reason::ERR_IMAGE_PULL, AWAY));
    let message = format!("Back-off pulling image \"r.io/a:1\": ErrImagePull: {AWAY}");
    assert_eq!(now(&images, "r.io/a:1", PullPolicy::Always), waits(Reason::IMAGE_PULL_BACK_OFF, &message));
}

/// Pull secrets of a pod with one Secret that has these logins for r.io.
fn secrets(users: &[(&str, &str)]) -> PullSecrets {
    secrets_of("s", users)
}

/// The same with a Secret of this name.
fn secrets_of(name: &str, users: &[(&str, &str)]) -> PullSecrets {
    let auths: serde_json::Map<String, serde_json::Value> = users
        .iter()
        .map(|(place, user)| ((*place).to_owned(), serde_json::json!({"username": user, "password": "p"})))
        .collect();
    let secret = serde_json::json!({
        "metadata": {"namespace": "ns", "name": name}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": serde_json::json!({"auths": auths}).to_string()}
    });
    let mut secret = crate::types::api::decode::<crate::types::api::Secret>(secret).unwrap().value;
    secret.merge_string_data();
    let since = crate::types::api::Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH);
    let mut objects = crate::state::objects::Objects::default();
    let object = std::sync::Arc::new(secret.into());
    objects.replace(&[crate::state::objects::SourceObject { object, origin: "m".into(), since }]);
    let mut pod = pod("u");
    pod.metadata.namespace = "ns".to_owned();
    pod.spec.image_pull_secrets = vec![crate::types::api::LocalObjectReference { name: name.to_owned() }];
    PullSecrets::of(&pod, &objects)
}

#[test]
fn credentials_are_tried_until_one_succeeds() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().extend([Pull::Fails("no"), Pull::Gives(image("sha256:1"))]);
    let images = images(&script, Some(1));
    let secrets = secrets(&[("r.io", "wide"), ("r.io/a", "narrow"), ("q.io", "other")]);
    let pulled = rt::block_on(ensure_with(&images, "u", "r.io/a:1", PullPolicy::Always, &secrets));
    assert_eq!(pulled.unwrap().image_ref, "sha256:1");
    assert_eq!(*script.users.borrow(), ["narrow", "wide"]);
}

#[test]
fn secrets_are_parsed_once_for_a_repository() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/a:1".to_owned(), image("sha256:1")));
    let (images, secrets) = (images(&script, Some(1)), secrets(&[("r.io", "wide")]));
    let ensure = || rt::block_on(ensure_with(&images, "u", "r.io/a:1", PullPolicy::Never, &secrets)).unwrap();
    assert!(secrets.parsed("r.io/a").is_none());
    ensure();
    let first = secrets.parsed("r.io/a").unwrap();
    ensure();
    assert!(Rc::ptr_eq(&first, &secrets.parsed("r.io/a").unwrap()));
}

#[test]
fn large_secrets_are_parsed_in_the_share_of_their_pod() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/a:1".to_owned(), image("sha256:1")));
    let (images, large) = (images(&script, Some(1)), "u".repeat(100 << 10));
    rt::block_on(async {
        let (end, ended) = async_channel::bounded::<()>(1);
        let (begin, begun) = async_channel::bounded(2);
        let jobs = [ended.clone(), ended].map(|ended| (ended, begin.clone()));
        let _busy = jobs.map(|(ended, begin)| {
            rt::spawn(rt::blocking_for("busy", move || {
                begin.send_blocking(()).is_ok() && ended.recv_blocking().is_ok()
            }))
        });
        let ensure = async |uid: &str, limit: Duration| {
            let secrets = secrets(&[("r.io", large.as_str())]);
            let ensured = ensure_with(&images, uid, "r.io/a:1", PullPolicy::Never, &secrets);
            rt::deadline(limit, ensured).await.is_ok()
        };
        for _ in 0..2 {
            begun.recv().await.unwrap();
        }
        let long = Duration::from_secs(20);
        assert!(ensure("other", long).await && !ensure("busy", Duration::from_millis(200)).await);
        drop(end);
        assert!(ensure("busy", long).await);
    });
}

#[test]
fn no_anonymous_pull_with_credentials_and_each_error_once() {
    for (refusals, message) in [(["no", "no"], "no"), (["no", "never"], "[no, never]")] {
        let script = Rc::new(Script::default());
        script.pulls.borrow_mut().extend(refusals.map(Pull::Fails));
        let secrets = secrets(&[("r.io", "wide"), ("r.io/a", "narrow")]);
        let images = images(&script, Some(1));
        let pulled = rt::block_on(ensure_with(&images, "u", "r.io/a:1", PullPolicy::Always, &secrets));
        assert_eq!(pulled, waits(Reason::ERR_IMAGE_PULL, message));
        assert_eq!(script.users.borrow().len(), 2);
    }
}

#[test]
fn changed_credentials_end_the_backoff() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().extend([Pull::Fails("no"), Pull::Gives(image("sha256:1"))]);
    let images = images(&script, Some(1));
    let (wrong, right) = (secrets(&[("r.io", "wrong")]), secrets(&[("r.io", "right")]));
    let pull = |secrets| rt::block_on(ensure_with(&images, "u", "r.io/a:1", PullPolicy::Always, secrets));
    assert_eq!(pull(&wrong), waits(Reason::ERR_IMAGE_PULL, "no"));
    let message = "Back-off pulling image \"r.io/a:1\": ErrImagePull: no";
    assert_eq!(pull(&wrong), waits(Reason::IMAGE_PULL_BACK_OFF, message));
    assert!(pull(&right).is_ok());
}

#[test]
fn pulls_send_upstreams_events() {
    let (sender, inbox) = async_channel::bounded(16);
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().extend([Pull::Fails("no route"), Pull::Gives(image("sha256:1"))]);
    let images = Images::new(Rc::clone(&script), &config(), sender);
    assert!(now(&images, "a:1", PullPolicy::IfNotPresent).is_err());
    assert!(now(&images, "a:1", PullPolicy::IfNotPresent).is_err());
    assert!(rt::block_on(ensure(&images, "v", "a:1", PullPolicy::IfNotPresent)).is_ok());
    assert!(now(&images, "a:1", PullPolicy::Never).is_ok());
    assert!(now(&images, "b:1", PullPolicy::Never).is_err());
    let told = std::iter::from_fn(|| inbox.try_recv().ok()).map(|event| match event {
        SyncEvent::PodEvent(event) => format!("{} {}", event.reason, event.message),
        other => panic!("{other:?}"),
    });
    let mut told: Vec<String> = told.collect();
    let pulled = told.remove(4);
    assert!(pulled.starts_with("Pulled Successfully pulled image \"a:1\" in "), "{pulled}");
    assert!(pulled.ends_with("s including waiting). Image size: 7 bytes."), "{pulled}");
    assert_eq!(
        told,
        [
            "Pulling Pulling image \"a:1\"",
            "Failed Failed to pull image \"a:1\": no route",
            "BackOff Back-off pulling image \"a:1\"",
            "Pulling Pulling image \"a:1\"",
            "Pulled Container image \"a:1\" already present on machine and can be accessed by the pod",
            "ErrImageNeverPull Container image \"b:1\" is not present with pull policy of Never",
        ]
    );
}

/// A script with these images, and a node whose file system is always too full.
fn full_node(ids: &[&'static str], unremovable: Option<&'static str>) -> (Rc<Script>, Images<Rc<Script>>) {
    let script = Rc::new(Script { unremovable, ..Script::default() });
    script.present.borrow_mut().extend(ids.iter().map(|id| (format!("r.io/{id}:1"), image(id))));
    let image_gc = ImageGc { high: 0, low: 0, ..ImageGc::default() };
    let images = images_as(&script, config_with(|config| config.images.gc = image_gc));
    (script, images)
}

fn left(script: &Script) -> Vec<String> {
    script.present.borrow().iter().map(|(_, image)| image.id.clone()).collect()
}

#[test]
fn unused_images_are_removed_and_the_shortfall_reported() {
    let (script, images) = full_node(&["a", "b", "c"], None);
    let mut in_use = InUse::default();
    in_use.add("b");
    let collected = rt::block_on(images.collect(&in_use));
    assert_eq!(left(&script), ["b"]);
    let Err(CollectError::NotEnough(message)) = collected else { panic!("{collected:?}") };
    assert!(message.contains("deleting unused images (freed 14 bytes)"), "{message}");
}

#[test]
fn unremovable_image_does_not_stop_the_collection() {
    let (script, images) = full_node(&["a", "b"], Some("a"));
    let Err(CollectError::Failed(message)) = rt::block_on(images.collect(&InUse::default())) else { panic!() };
    assert_eq!(left(&script), ["a"]);
    assert!(message.ends_with("but freed 7 bytes space with errors in image deletion: [read-only file system]"));
}

#[test]
fn only_the_requested_bytes_are_freed_and_new_images_stay() {
    let (script, images) = full_node(&["a", "b", "c"], None);
    script.pulls.borrow_mut().push_back(Pull::Gives(image("new")));
    assert!(now(&images, "r.io/new:1", PullPolicy::Always).is_ok());
    assert!(images.has_pulled() && !images.has_pulled());
    assert_eq!(rt::block_on(images.free(8, &InUse::default())), Ok(14));
    assert_eq!(left(&script).len(), 2);
    assert_eq!(rt::block_on(images.free(u64::MAX, &InUse::default())), Ok(7));
    assert_eq!(left(&script), ["new"]);
}

#[test]
fn fetched_parts_are_freed_before_images_unless_a_pod_wants_them() {
    let (script, images) = full_node(&["a", "b"], None);
    // Beside the test binary, as the runtime's images.
    let directory = std::env::current_exe().unwrap().with_file_name(format!("coracle-parts-{}", std::process::id()));
    let blobs = |image: &str| directory.join(key_of(image)).join("blobs/sha256");
    for name in ["r.io/unwanted:1", "r.io/wanted:latest"] {
        std::fs::create_dir_all(blobs(name)).unwrap();
        std::fs::write(blobs(name).join("x.part"), "ten bytes.").unwrap();
    }
    let client = crate::platform::rpc::Client::new("/nowhere");
    let (of_images, of_pods) =
        (ImageService::new(client.clone(), Duration::ZERO), RuntimeService::new(client, Duration::ZERO));
    let places = FetchPlaces {
        directory: directory.clone(),
        hosts: PathBuf::new(),
        endpoint: PathBuf::new(),
        verifiers: RuntimeVerifiers(PathBuf::new()),
        proxies: ProxySettings::default(),
        peering: None,
        pressure: None,
    };
    let images = images.with_fetcher(Some(Fetcher::new(places, of_images, of_pods)));
    let mut in_use = InUse::default();
    in_use.want("r.io/wanted");
    let seen = [5, 8, 1].map(|bytes| {
        let freed = rt::block_on(images.free(bytes, &in_use)).unwrap();
        (freed, left(&script).len(), blobs("r.io/unwanted:1").exists(), blobs("r.io/wanted:latest").exists())
    });
    let all = rt::block_on(images.free_all_parts());
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(seen, [(10, 2, false, true), (14, 0, false, true), (10, 0, false, false)]);
    assert_eq!(all, 0);
}

#[test]
fn image_pulled_with_a_secret_is_only_for_pods_with_it() {
    let root_dir = std::env::temp_dir().join(format!("coracle-images-{}", std::process::id()));
    let credentials_verification = CredentialsVerification::NeverForPreloaded;
    let config = config_with(|config| {
        config.root_dir = root_dir.clone();
        config.images.credentials_verification = credentials_verification;
    });
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("r.io/preloaded:1".to_owned(), image("sha256:0")));
    script.pulls.borrow_mut().extend([Pull::Gives(image("sha256:1")), Pull::Fails("no")]);
    let (with, without) = (secrets(&[("r.io", "u")]), PullSecrets::default());
    let first = images_as(&script, config.clone());
    // The records outlive the process.
    let second = images_as(&script, config);
    let ensure = |images, uid, image, policy, secrets| {
        rt::block_on(ensure_with(images, uid, image, policy, secrets)).map(|present| present.image_ref)
    };
    let preloaded = ensure(&first, "u", "r.io/preloaded:1", PullPolicy::IfNotPresent, &without);
    let pulled = ensure(&first, "u", "r.io/a:1", PullPolicy::IfNotPresent, &with);
    let known = ensure(&second, "u", "r.io/a:1", PullPolicy::IfNotPresent, &with);
    let refused = ensure(&second, "v", "r.io/a:1", PullPolicy::IfNotPresent, &without);
    let never = ensure(&second, "w", "r.io/a:1", PullPolicy::Never, &without);
    let pulling = std::fs::read_dir(root_dir.join("image_manager/pulling")).map(Iterator::count);
    std::fs::remove_dir_all(&root_dir).unwrap();
    assert_eq!(preloaded.unwrap(), "sha256:0");
    assert_eq!((pulled.unwrap(), known.unwrap()), ("sha256:1".to_owned(), "sha256:1".to_owned()));
    assert_eq!(refused.unwrap_err().reason, Reason::ERR_IMAGE_PULL);
    assert_eq!(never.unwrap_err().reason, Reason::ERR_IMAGE_NEVER_PULL);
    assert_eq!(script.pulled.borrow().len(), 2);
    assert_eq!(pulling.unwrap(), 0, "an intent record is left");
}

/// A node whose records are in a directory of their own.
struct Node {
    root_dir: PathBuf,
    script: Rc<Script>,
}

impl Node {
    fn new(name: &str) -> Self {
        let root_dir = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root_dir);
        Self { root_dir, script: Rc::default() }
    }

    /// A process with the default policy.
    fn process(&self) -> Rc<Images<Rc<Script>>> {
        let config = config_with(|config| {
            config.root_dir.clone_from(&self.root_dir);
            config.images.credentials_verification = CredentialsVerification::NeverForPreloaded;
        });
        Rc::new(images_as(&self.script, config))
    }

    fn will(&self, pull: Pull) {
        self.script.pulls.borrow_mut().push_back(pull);
    }

    /// The next pull, which waits until the sender is dropped.
    fn waiting_pull(&self, image: Image) -> Sender<()> {
        let (word, listens) = async_channel::bounded(1);
        self.will(Pull::Waits(listens, image));
        word
    }

    async fn has_begun(&self, pulls: usize) {
        while self.script.pulls() < pulls {
            rt::sleep(Duration::from_millis(1)).await;
        }
    }

    /// A pull of r.io/a:1 with the Secret of this user, until it is dropped in the middle.
    fn interrupted_pull(&self, images: &Images<Rc<Script>>, user: &str) {
        let _word = self.waiting_pull(image("never"));
        let begun = self.script.pulls() + 1;
        rt::block_on(rt::either(
            async {
                let pulled = with_secret(images, user, PullPolicy::Always).await;
                panic!("the pull has ended: {pulled:?}");
            },
            self.has_begun(begun),
        ));
    }

    fn intents(&self) -> usize {
        std::fs::read_dir(self.root_dir.join("image_manager/pulling")).map_or(0, Iterator::count)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root_dir);
    }
}

/// The id of r.io/a:1 for a pod of this user, which has a Secret for r.io.
async fn with_secret(images: &Images<Rc<Script>>, user: &str, policy: PullPolicy) -> Result<String, Reason> {
    let secrets = secrets_of(user, &[("r.io", user)]);
    let ensured = ensure_with(images, user, "r.io/a:1", policy, &secrets).await;
    ensured.map(|present| present.image_ref).map_err(|waiting| waiting.reason)
}

/// The id of r.io/a:1 for a pod without credentials.
fn without_secret(images: &Images<Rc<Script>>, policy: PullPolicy) -> Result<String, Reason> {
    now(images, "r.io/a:1", policy).map(|present| present.image_ref).map_err(|waiting| waiting.reason)
}

const REFUSED: Result<String, Reason> = Err(Reason::ERR_IMAGE_NEVER_PULL);

#[test]
fn pulls_that_end_together_are_both_recorded() {
    let node = Node::new("pulls-together");
    let images = node.process();
    let words = [node.waiting_pull(image("sha256:1")), node.waiting_pull(image("sha256:1"))];
    rt::block_on(async {
        let pulls = ["a", "b"].map(|user| {
            let images = Rc::clone(&images);
            rt::spawn(async move { with_secret(&images, user, PullPolicy::Always).await })
        });
        node.has_begun(2).await;
        drop(words);
        for pull in pulls {
            pull.await.unwrap();
        }
        for user in ["a", "b"] {
            let present = with_secret(&images, user, PullPolicy::Never).await;
            assert_eq!(present.as_deref(), Ok("sha256:1"), "the Secret {user} is not recorded");
        }
    });
}

#[test]
fn failed_pull_keeps_the_intent_of_an_interrupted_one() {
    let node = Node::new("kept-intent");
    node.interrupted_pull(&node.process(), "a");
    let images = node.process();
    // The runtime has finished the pull of the former process.
    node.script.add("r.io/a:1", image("sha256:1"));
    for pull in ["the first", "the second"] {
        node.will(Pull::Fails("no"));
        let failed = match pull {
            "the first" => without_secret(&images, PullPolicy::Always),
            _ => rt::block_on(with_secret(&images, "b", PullPolicy::Always)),
        };
        assert_eq!(failed, Err(Reason::ERR_IMAGE_PULL));
        assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED, "{pull} failed pull has opened the image");
    }
    node.will(Pull::Gives(image("sha256:1")));
    assert_eq!(rt::block_on(with_secret(&images, "a", PullPolicy::Always)).as_deref(), Ok("sha256:1"));
    assert_eq!((without_secret(&images, PullPolicy::Never), node.intents()), (REFUSED, 0));
}

#[test]
fn intent_lasts_as_long_as_the_pulls_that_wrote_it() {
    let node = Node::new("shared-intent");
    let images = node.process();
    let word = node.waiting_pull(image("sha256:1"));
    rt::block_on(async {
        let pull = {
            let images = Rc::clone(&images);
            rt::spawn(async move { with_secret(&images, "a", PullPolicy::Always).await })
        };
        node.has_begun(1).await;
        node.will(Pull::Fails("no"));
        assert!(with_secret(&images, "b", PullPolicy::Always).await.is_err());
        assert_eq!(node.intents(), 1, "the failed pull has removed it");
        drop(word);
        assert_eq!((pull.await.as_deref(), node.intents()), (Ok("sha256:1"), 0));
    });
    node.will(Pull::Fails("no"));
    assert!(rt::block_on(with_secret(&images, "c", PullPolicy::Always)).is_err());
    assert_eq!(node.intents(), 0, "the failed pull has left it");
}

#[test]
fn image_whose_pull_could_not_be_recorded_is_not_open() {
    let node = Node::new("no-record");
    let images = node.process();
    let records = node.root_dir.join("image_manager");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join("pulled"), "no folder").unwrap();
    node.will(Pull::Gives(image("sha256:1")));
    assert_eq!(rt::block_on(with_secret(&images, "a", PullPolicy::Always)).as_deref(), Ok("sha256:1"));
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED);
}

#[test]
fn interrupted_pull_leaves_a_preloaded_image_open() {
    let node = Node::new("preloaded");
    let images = node.process();
    node.script.add("r.io/a:1", image("sha256:0"));
    for _ in 0..2 {
        node.interrupted_pull(&images, "a");
        assert_eq!(without_secret(&images, PullPolicy::Never).as_deref(), Ok("sha256:0"));
    }
    // The runtime has finished the last pull.
    node.script.present.borrow_mut().clear();
    node.script.add("r.io/a:1", image("sha256:1"));
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED);
    node.interrupted_pull(&images, "a");
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED, "what the first pull has brought");
}

#[test]
fn preloaded_image_that_was_removed_is_not_open_once_pulled() {
    let node = Node::new("removed");
    let images = node.process();
    node.script.add("r.io/a:1", image("sha256:0"));
    node.interrupted_pull(&images, "a");
    node.script.present.borrow_mut().clear();
    node.interrupted_pull(&images, "a");
    node.script.add("r.io/a:1", image("sha256:0"));
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED);
}

#[test]
fn interrupted_pull_protects_an_image_pulled_under_another_name() {
    let node = Node::new("other-name");
    let images = node.process();
    let named = Image { repo_tags: vec!["r.io/a:1".to_owned(), "r.io/b:1".to_owned()], ..image("sha256:1") };
    let secrets = secrets(&[("r.io", "b")]);
    node.will(Pull::Gives(named.clone()));
    assert!(rt::block_on(ensure_with(&images, "b", "r.io/b:1", PullPolicy::Always, &secrets)).is_ok());
    node.interrupted_pull(&images, "a");
    node.script.add("r.io/a:1", named);
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED);
}

#[test]
fn pull_is_recorded_by_the_id_of_the_image() {
    let node = Node::new("by-digest");
    let images = node.process();
    node.script.pull_ref.set(Some("r.io/a@sha256:9"));
    node.script.add("r.io/a@sha256:9", image("1"));
    node.will(Pull::Gives(image("1")));
    assert!(rt::block_on(with_secret(&images, "a", PullPolicy::Always)).is_ok());
    assert_eq!(without_secret(&images, PullPolicy::Never), REFUSED);
    assert_eq!(rt::block_on(with_secret(&images, "a", PullPolicy::Never)).as_deref(), Ok("1"));
}

/// A window that opens in two hours.
fn closed() -> Vec<crate::types::time_windows::TimeWindow> {
    let minute = u16::try_from(crate::platform::host::clock::now().unix_seconds() / 60 % 1440).unwrap();
    vec![crate::types::time_windows::TimeWindow { from: (minute + 120) % 1440, to: (minute + 180) % 1440 }]
}

#[test]
fn pull_waits_for_its_window_and_an_urgent_pod_does_not() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Gives(image("sha256:1")));
    let (inbox, events) = async_channel::bounded(10);
    let config = config_with(|config| config.images.fetch.windows = closed());
    let images = Images::new(Rc::clone(&script), &config, inbox);
    let waiting = now(&images, "a:1", PullPolicy::Always).unwrap_err();
    assert_eq!(waiting.reason, Reason::IMAGE_PULL_WAITING);
    assert!(waiting.message.starts_with("Pull of image \"a:1\" waits: outside images.windows until "), "{waiting:?}");
    let wait = waiting.until.unwrap().saturating_duration_since(rt::now());
    assert!(wait > Duration::from_secs(200), "{wait:?}");
    assert!(script.pulled.borrow().is_empty());
    let Ok(SyncEvent::PodEvent(event)) = events.try_recv() else { panic!("no event") };
    assert_eq!((event.kind, event.reason), (EventKind::Normal, Reason::IMAGE_PULL_WAITING));
    assert!(events.try_recv().is_err(), "a pull was announced");
    let mut urgent = pod("v");
    urgent.metadata.annotations = [("coracle.dev/urgent", "true".to_owned())].into_iter().collect();
    let wanted = container("a:1", PullPolicy::Always);
    let secrets = PullSecrets::default();
    let sandbox = PodSandboxConfig::default();
    let ensured = images.ensure(&urgent, WantedImage::by(&wanted), &sandbox, secrets, pending());
    assert_eq!(rt::block_on(ensured).unwrap().image_ref, "sha256:1");
    // The image is there now, and needs no pull.
    assert!(now(&images, "a:1", PullPolicy::IfNotPresent).is_ok());
}

#[test]
fn pull_by_the_runtime_counts_with_the_size_of_the_image() {
    let script = Rc::new(Script::default());
    let large = Image { size: 60_000, ..image("sha256:1") };
    script.pulls.borrow_mut().extend([Pull::Gives(large.clone()), Pull::Gives(large)]);
    let root = std::env::temp_dir().join(format!("coracle-pull-budget-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let config = config_with(|config| {
        config.images.fetch.bytes_per_day = Some(64 << 10);
        config.root_dir = root.clone();
    });
    let images = images_as(&script, config);
    assert!(now(&images, "a:1", PullPolicy::IfNotPresent).is_ok());
    assert_eq!(images.budget().used(), Some((60_000, 64 << 10)));
    let waiting = now(&images, "b:1", PullPolicy::IfNotPresent).unwrap_err();
    assert!(waiting.message.contains(" waits: images.bytesPerDay is used up until "), "{waiting:?}");
    assert_eq!(script.pulled.borrow().len(), 1);
    let record = std::fs::read_to_string(root.join("coracle/image-bytes")).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(record.ends_with(" 60000\n"), "{record:?}");
}

#[test]
fn urgent_pull_does_not_wait_for_its_turn() {
    rt::block_on(async {
        let script = Rc::new(Script::default());
        let (_open, word) = async_channel::bounded(1);
        script.pulls.borrow_mut().extend([Pull::Waits(word, image("sha256:1")), Pull::Gives(image("sha256:2"))]);
        let images = images(&script, Some(1));
        let slow = async { ensure(&images, "u", "a:1", PullPolicy::Always).await.map(drop) };
        let urgent = async {
            while script.pulled.borrow().is_empty() {
                rt::sleep(Duration::from_millis(1)).await;
            }
            let mut urgent = pod("v");
            urgent.metadata.annotations = [("coracle.dev/urgent", "true".to_owned())].into_iter().collect();
            let wanted = container("b:1", PullPolicy::Always);
            let (sandbox, secrets) = (PodSandboxConfig::default(), PullSecrets::default());
            images.ensure(&urgent, WantedImage::by(&wanted), &sandbox, secrets, pending()).await.map(drop)
        };
        assert_eq!(rt::either(slow, urgent).await, Ok(()));
        assert_eq!(*script.pulled.borrow(), ["a:1", "b:1"]);
    });
}
