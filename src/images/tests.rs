//! Images against a service that is a script.

use std::collections::VecDeque;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use async_channel::{Receiver, Sender};

use super::*;

const IMAGE: &str = "registry.invalid/none/such:1";

/// What the next pull comes to.
enum Pull {
    Gives(Image),
    Fails(&'static str),
    /// Waits for a word, then gives.
    Waits(Receiver<()>, Image),
}

#[derive(Default)]
struct Script {
    present: RefCell<Vec<(String, Image)>>,
    pulls: RefCell<VecDeque<Pull>>,
    pulled: RefCell<Vec<String>>,
    looked: RefCell<Vec<String>>,
    inspect_error: Option<&'static str>,
}

impl Service for Rc<Script> {
    async fn status(&self, image: &ImageSpec) -> Result<Option<Image>, String> {
        self.looked.borrow_mut().push(image.image.clone());
        match self.inspect_error {
            Some(error) => Err(error.to_owned()),
            None => {
                let present = self.present.borrow();
                let found = present.iter().find(|(name, found)| *name == image.image || found.id == image.image);
                Ok(found.map(|(_, found)| found.clone()))
            }
        }
    }

    async fn pull(&self, image: &ImageSpec, _: &PodSandboxConfig) -> Result<String, String> {
        self.pulled.borrow_mut().push(image.image.clone());
        let next = self.pulls.borrow_mut().pop_front().expect("a pull that the script does not have");
        let found = match next {
            Pull::Fails(error) => return Err(error.to_owned()),
            Pull::Gives(found) => found,
            Pull::Waits(word, found) => {
                word.recv().await.ok();
                found
            }
        };
        let id = found.id.clone();
        self.present.borrow_mut().push((image.image.clone(), found));
        Ok(id)
    }
}

fn image(id: &str) -> Image {
    Image { id: id.to_owned(), size: 7, uid: Some(1000), ..Image::default() }
}

fn images(script: &Rc<Script>, parallel: Option<u32>) -> Images<Rc<Script>> {
    Images::new(Rc::clone(script), PullLimits { parallel, rate: 0, burst: 0 }, async_channel::bounded(1).0)
}

fn pod(uid: &str) -> Pod {
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
    images.ensure(&pod(uid), Wanted::by(&container(image, policy)), &PodSandboxConfig::default(), pending()).await
}

fn now(images: &Images<Rc<Script>>, image: &str, policy: PullPolicy) -> Result<PresentImage, Waiting> {
    rt::block_on(ensure(images, "u", image, policy))
}

fn waits(reason: Reason, message: &str) -> Result<PresentImage, Waiting> {
    Err(Waiting::new(reason, message))
}

#[test]
fn a_present_image_is_used_by_its_id_and_with_its_user() {
    let script = Rc::new(Script::default());
    script.present.borrow_mut().push(("busybox:latest".to_owned(), image("sha256:1")));
    let images = images(&script, Some(1));
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        let user = ImageUser { uid: Some(1000), name: String::new() };
        assert_eq!(
            now(&images, "busybox", policy),
            Ok(PresentImage { image_ref: "sha256:1".to_owned(), user, size: 7 })
        );
    }
    assert!(script.pulled.borrow().is_empty());
}

#[test]
fn always_pulls_what_is_present_and_if_not_present_what_is_missing() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().extend([Pull::Gives(image("sha256:1")), Pull::Gives(image("sha256:2"))]);
    let images = images(&script, Some(1));
    assert_eq!(now(&images, "a:1", PullPolicy::IfNotPresent).unwrap().image_ref, "sha256:1");
    assert_eq!(now(&images, "a:1", PullPolicy::Always).unwrap().image_ref, "sha256:2");
    assert_eq!(*script.pulled.borrow(), ["a:1", "a:1"]);
}

#[test]
fn a_missing_image_that_is_never_pulled_says_so() {
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
fn a_name_that_is_none_asks_nobody() {
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
fn an_image_that_cannot_be_looked_at_is_not_pulled() {
    let script = Rc::new(Script { inspect_error: Some("no disk"), ..Script::default() });
    assert_eq!(
        now(&images(&script, Some(1)), IMAGE, PullPolicy::IfNotPresent),
        waits(Reason::IMAGE_INSPECT_ERROR, "Failed to inspect image \"registry.invalid/none/such:1\": no disk")
    );
    assert!(script.pulled.borrow().is_empty());
}

#[test]
fn after_a_failure_the_next_try_waits_and_tells_what_failed() {
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
fn an_image_that_comes_from_elsewhere_ends_the_wait() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Fails("no route"));
    let images = images(&script, Some(1));
    assert!(now(&images, IMAGE, PullPolicy::IfNotPresent).is_err());
    script.present.borrow_mut().push((IMAGE.to_owned(), image("sha256:1")));
    assert!(now(&images, IMAGE, PullPolicy::IfNotPresent).is_ok());
}

#[test]
fn too_many_pulls_at_once_fail_as_pulls_do() {
    let script = Rc::new(Script::default());
    script.pulls.borrow_mut().push_back(Pull::Gives(image("sha256:1")));
    let images =
        Images::new(Rc::clone(&script), PullLimits { parallel: None, rate: 1, burst: 1 }, async_channel::bounded(1).0);
    assert!(now(&images, "a:1", PullPolicy::Always).is_ok());
    assert_eq!(now(&images, "a:1", PullPolicy::Always), waits(Reason::ERR_IMAGE_PULL, "pull QPS exceeded"));
    assert_eq!(script.pulled.borrow().len(), 1);
}

/// Two pods want an image while the first pull is under way. Gives how many pulls began before it ended, and in all.
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
        for _ in 0..10 {
            rt::yield_now().await;
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
fn a_pod_that_waited_for_its_turn_does_not_pull_again_what_came_meanwhile() {
    assert_eq!(pulls_of_two_pods(Some(1), PullPolicy::IfNotPresent), (1, 1));
    assert_eq!(pulls_of_two_pods(Some(1), PullPolicy::Always), (1, 2));
}

#[test]
fn pulls_run_beside_each_other_where_they_may() {
    assert_eq!(pulls_of_two_pods(None, PullPolicy::IfNotPresent), (2, 2));
    assert_eq!(pulls_of_two_pods(Some(2), PullPolicy::IfNotPresent), (2, 2));
}

#[test]
fn a_pull_that_is_given_up_frees_its_turn_and_is_no_failure() {
    let (_word, listens) = async_channel::bounded(1);
    let script = Rc::new(Script::default());
    let waits = Pull::Waits(listens, image("sha256:1"));
    script.pulls.borrow_mut().extend([waits, Pull::Gives(image("sha256:2"))]);
    let images = images(&script, Some(1));
    let given_up = rt::block_on(async {
        let wanted = container("a:1", PullPolicy::Always);
        images.ensure(&pod("u"), Wanted::by(&wanted), &PodSandboxConfig::default(), rt::yield_now()).await
    });
    assert_eq!(given_up, self::waits(Reason::CONTAINER_CREATING, ""));
    assert_eq!(images.retry_at(&PodUid::from("u"), "a:1"), None);
    assert_eq!(now(&images, "a:1", PullPolicy::Always).unwrap().image_ref, "sha256:2");
}

#[test]
fn serialized_pulls_are_one_at_a_time() {
    let mut config = Config { serialize_image_pulls: true, max_parallel_image_pulls: Some(5), ..Config::default() };
    assert_eq!(PullLimits::of(&config).parallel, Some(1));
    config.serialize_image_pulls = false;
    assert_eq!(PullLimits::of(&config).parallel, Some(5));
}
