//! Images that the agent fetches itself, from a real registry into a real containerd.

use std::fs;

use super::node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};
use super::registry::{PASSWORD, Proxy, Registry, Way, make_image, secret};

const BYTES: usize = 6 << 20;

/// A node whose agent fetches images itself.
fn start() -> Node {
    start_with("fetch: resumable")
}

fn configure(node: &Node, images: &str) {
    fs::write(node.folder().join("coracle.yaml"), format!("images: {{{images}}}\n")).unwrap();
}

fn start_with(images: &str) -> Node {
    let mut node = Node::with_runtime();
    configure(&node, images);
    let config = node.folder().join("coracle.yaml");
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node.start_agent();
    node
}

fn manifest(image: &str, spec: &str) -> String {
    let manifest = Manifest::new("web").container_with("main", STAY, "imagePullPolicy: IfNotPresent");
    manifest.spec(spec).text().replace(BUSYBOX, image)
}

#[test]
fn interrupted_pull_resumes_where_it_stopped() {
    let mut node = start();
    let registry = Registry::with_password(&node);
    let made = make_image(&node, "app", BYTES);
    let image = registry.push(&node, &made, "team/app:1");
    // Otherwise the layer would be in the runtime.
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::DeadAfter(BYTES / 2));
    let image = proxy.name(&registry, &image);
    node.write_manifest("login", &secret("login", &proxy.address, PASSWORD));
    node.write_manifest("web", &manifest(&image, "imagePullSecrets: [{name: login}]"));
    node.wait_until("the cut to be reported", |pods| {
        pods.has("web", |pod| pod.container("main").is_waiting_for("ErrImagePull"))
    });
    let blobs = || {
        let images = fs::read_dir(node.folder().join("pods/coracle/fetch")).into_iter().flatten().flatten();
        images.flat_map(|image| fs::read_dir(image.path().join("blobs/sha256")).into_iter().flatten().flatten()).count()
    };
    assert!(blobs() > 0, "nothing was kept");
    node.kill_agent();
    proxy.set(Way::Open);
    node.start_agent();
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let given = proxy.given();
    assert!((BYTES..BYTES + (1 << 20)).contains(&given), "{given} bytes for an image of {BYTES}");
    wait_for("the parts to go", PATIENCE, || {
        let left = fs::read_dir(node.folder().join("pods/coracle/fetch")).unwrap().count();
        (left == 0).then_some(())
    });
    // The names are those that the runtime's own pull would have stored.
    let names = node.image_names();
    let (name, _) = image.rsplit_once(':').unwrap();
    assert!(names.contains(&image), "{names:?}");
    let by_digest = format!("{name}@sha256:");
    assert!(Node::is_on_crio() || names.iter().any(|name| name.starts_with(&by_digest)), "{names:?}");
    let container = node.pods().get("web").unwrap().json()["status"]["containerStatuses"][0].clone();
    assert!(container["imageID"].as_str().unwrap().contains("sha256:"), "{container}");
}

#[test]
fn layers_of_the_present_image_are_not_fetched_again() {
    if Node::is_on_crio() {
        eprintln!("not run: CRI-O's store has no packed layers");
        return;
    }
    let node = start();
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:2");
    let proxy = Proxy::start(&node, &registry, Way::Open);
    node.write_manifest("web", &manifest(&proxy.name(&registry, &image), "hostNetwork: true"));
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    assert!(proxy.given() < 20_000, "{} bytes", proxy.given());
}

fn restart(node: &mut Node) {
    node.kill_agent();
    node.start_agent();
}

fn wait_until_held(node: &Node, why: &str) {
    node.wait_until("the pull to be held", |pods| {
        pods.has("web", |pod| pod.container("main").is_waiting_for("ImagePullWaiting"))
    });
    let container = node.pods().get("web").unwrap().json()["status"]["containerStatuses"][0].clone();
    let message = container["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(why), "{message}");
    assert!(node.events("web").find("ImagePullWaiting", "Pull of image ").is_some());
    wait_for("the status to say so", PATIENCE, || {
        node.ask(&["status"]).filter(|text| text.contains("pulls wait: ") && text.contains(why)).map(drop)
    });
}

#[test]
fn budget_holds_a_fetch_which_goes_on_when_there_is_room() {
    const BUDGET: usize = 2 << 20;
    let mut node = start_with("fetch: resumable, bytesPerDay: 2Mi");
    let registry = Registry::start(&node);
    let made = make_image(&node, "app", BYTES);
    let image = registry.push(&node, &made, "team/app:1");
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::Open);
    let image = proxy.name(&registry, &image);
    node.write_manifest("web", &manifest(&image, "hostNetwork: true"));
    let why = "images.bytesPerDay is used up until ";
    wait_until_held(&node, why);
    // Heads of answers are not counted.
    let given = proxy.given();
    assert!((BUDGET - (64 << 10)..BUDGET + (16 << 10)).contains(&given), "{given} bytes of {BUDGET}");
    for _ in 0..2 {
        restart(&mut node);
        wait_until_held(&node, why);
    }
    assert!(proxy.given() - given < 8 << 10, "{} bytes more", proxy.given() - given);
    configure(&node, "fetch: resumable, bytesPerDay: 20Mi");
    restart(&mut node);
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let given = proxy.given();
    assert!((BYTES..BYTES + (1 << 20)).contains(&given), "{given} bytes for an image of {BYTES}");
    let status = node.ask(&["status"]).unwrap();
    assert!(status.contains("Images:   6.") && status.contains("MB of 20.9MB today"), "{status}");
}

#[test]
fn window_holds_the_pull_until_it_opens_and_an_urgent_pod_passes() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let from = (now + 15) / 60 + 1;
    let time = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
    let node = start_with(&format!("windows: [\"{}-{}\"]", time(from), time(from + 5)));
    let registry = Registry::start(&node);
    let image = registry.push_busybox(&node, "app:2");
    let other = registry.push_busybox(&node, "app:3");
    node.write_manifest("web", &manifest(&image, "hostNetwork: true"));
    wait_until_held(&node, &format!("outside images.windows until {} UTC", time(from)));
    let urgent = manifest(&other, "hostNetwork: true")
        .replace("metadata: {name: web}", "metadata: {name: urgent, annotations: {coracle.dev/urgent: \"true\"}}");
    node.write_manifest("urgent", &urgent);
    node.wait_until("the urgent pod is ready", |pods| pods.has("urgent", |pod| pod.is_ready()));
    assert!(node.pods().has("web", |pod| !pod.is_ready()));
    wait_for("the window to open", 2 * PATIENCE, || node.pods().has("web", |pod| pod.is_ready()).then_some(()));
}

/// The length of the longest part.
fn part(node: &Node) -> u64 {
    let images = fs::read_dir(node.folder().join("pods/coracle/fetch")).into_iter().flatten().flatten();
    let blobs =
        images.flat_map(|image| fs::read_dir(image.path().join("blobs/sha256")).into_iter().flatten().flatten());
    blobs.filter_map(|blob| blob.metadata().ok()).map(|found| found.len()).max().unwrap_or_default()
}

#[test]
fn killed_agent_loses_no_byte() {
    let mut node = start_with("fetch: resumable, bytesPerSecond: 1Mi");
    let registry = Registry::start(&node);
    let made = make_image(&node, "app", BYTES);
    let image = registry.push(&node, &made, "team/app:1");
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::Open);
    let image = proxy.name(&registry, &image);
    node.write_manifest("web", &manifest(&image, "hostNetwork: true"));
    // What the kernel has received for the slow reader is lost with each kill; what is in the part is not.
    for megabytes in 1..5 {
        wait_for("more bytes", PATIENCE, || (part(&node) > megabytes << 20).then_some(()));
        node.kill_agent();
        let kept = part(&node);
        node.start_agent();
        wait_for("the fetch to go on", PATIENCE, || (part(&node) > kept).then_some(()));
    }
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
}

/// A disk that fills up in the middle of a fetch: the present version runs on, the parts stay.
#[test]
fn full_disk_ends_no_pod_and_the_fetch_goes_on_with_room() {
    let mut node = Node::with_runtime();
    configure(&node, "fetch: resumable, bytesPerSecond: 1Mi");
    let fetches = node.folder().join("pods/coracle/fetch").display().to_string();
    node.enclosure().run(&["mkdir", "-p", &fetches]);
    node.enclosure().run(&["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", &fetches]);
    let config = node.folder().join("coracle.yaml");
    node.add_arguments(&["--coracle-config", &config.display().to_string()]);
    node.start_agent();
    let registry = Registry::start(&node);
    let made = make_image(&node, "app", BYTES);
    let image = registry.push(&node, &made, "team/app:1");
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::Open);
    let image = proxy.name(&registry, &image);
    node.write_manifest("web", &manifest(BUSYBOX, "hostNetwork: true"));
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let first = node.pods().get("web").unwrap().json()["metadata"]["uid"].clone();
    node.write_manifest("web", &manifest(&image, "hostNetwork: true"));
    wait_for("the first bytes", PATIENCE, || (proxy.given() > 1 << 20).then_some(()));
    let filling = format!("{fetches}/filling");
    let fill = format!("dd if=/dev/zero of={filling} bs=1M 2>/dev/null || true");
    node.enclosure().run(&["sh", "-c", &fill]);
    wait_for("the failure to be shown", PATIENCE, || {
        node.ask(&["describe", "web"]).filter(|text| text.contains("no space left on device")).map(drop)
    });
    assert!(node.pods().has("web", |pod| pod.is_ready()), "the present version was ended");
    assert_eq!(node.pods().get("web").unwrap().json()["metadata"]["uid"], first);
    node.enclosure().run(&["rm", &filling]);
    wait_for("the new version", 2 * PATIENCE, || {
        let pods = node.pods();
        let is_new = pods.get("web").is_some_and(|pod| pod.json()["metadata"]["uid"] != first);
        (is_new && pods.has("web", |pod| pod.is_ready())).then_some(())
    });
    assert!(proxy.given() < 3 * BYTES, "{} bytes for an image of {BYTES}", proxy.given());
}
