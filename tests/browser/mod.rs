//! The status page in a real Chromium beside a real containerd.

mod chromium;

use std::path::Path;

use chromium::Chromium;
use nix::sys::signal::Signal;

use crate::containerd::{mistakes, node, registry};
use mistakes::{FIRST_MINUTES, MISTAKES, REFUSED, write_mistakes};
use node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};
use registry::{Proxy, Registry, Way, make_image};

const PAGE: &str = "http://127.0.0.1:4194/";

fn start() -> Node {
    let mut node = Node::with_runtime();
    node.add_arguments(&["--page-port", "4194"]);
    node.start_agent();
    node
}

impl Chromium {
    /// Waits until a JavaScript expression is true.
    #[track_caller]
    fn wait_until(&mut self, what: &str, expression: &str) {
        let until = std::time::Instant::now() + PATIENCE;
        while self.evaluate(expression) != true {
            if std::time::Instant::now() > until {
                let text = self.evaluate("document.body.innerText");
                panic!("waited in vain until {what}; text of the page: {text:#}; its errors: {:?}", self.complaints());
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }

    /// Waits for visible text.
    #[track_caller]
    fn wait_to_read(&mut self, words: &str) {
        let words = serde_json::Value::from(words);
        self.wait_until(&format!("{words} is on the page"), &format!("document.body.innerText.includes({words})"));
    }

    /// Writes a screenshot into the build's folder for manual inspection.
    fn picture(&mut self, name: &str) {
        let picture = self.screenshot();
        assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5000, "{} bytes", picture.len());
        std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), picture).unwrap();
    }
}

/// A JavaScript expression for the row of a manifest's pod.
fn row(manifest: &str) -> String {
    format!("[...document.querySelectorAll('#pods > li')].find(row => row.innerText.startsWith('{manifest}-node-a'))")
}

#[test]
fn page_follows_the_pods_of_a_running_node() {
    let node = start();
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (1200, 900), "light");
    browser.wait_to_read("No pods yet.");
    browser.wait_to_read("All is well");
    node.apply(&Manifest::new("web").container("main", STAY).container("beside", STAY));
    node.apply(&Manifest::new("store").container("main", STAY));
    browser.wait_to_read("2 of 2 pods running");
    assert_eq!(browser.evaluate("document.title"), "node-a");
    browser.wait_until(
        "what the pod uses is drawn",
        &format!("{}.querySelector('path.line').getAttribute('d').includes('L')", row("web")),
    );
    browser.wait_until(
        "the node's memory is shown",
        "/of \\d+(\\.\\d+)? GiB/.test(document.querySelector('#tiles').innerText)",
    );
    // Opens the pod with the keyboard.
    browser.evaluate(&format!("{}.querySelector('summary').focus()", row("web")));
    browser.press_enter();
    browser.wait_until(
        "its containers are shown",
        &format!("{}.querySelector('.inside').innerText.includes('beside')", row("web")),
    );
    node.kill_container("web", "beside");
    browser.wait_until("the restart is seen", &format!("/\\b1 \\(\\d+[sm] ago\\)/.test({}.innerText)", row("web")));
    let is_open = browser.evaluate(&format!("{}.firstChild.open", row("web")));
    assert_eq!(is_open, true, "the opened pod stays open");
    browser.wait_until("the event is listed", "document.querySelector('#events').innerText.includes('Started')");
    browser.picture("page.png");

    // Failing pods are listed first, and foreign text is escaped.
    node.apply(&Manifest::new("broken").container("main", "echo gone; exit 3").spec("restartPolicy: Always"));
    node.write_manifest("evil", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: \"<img src=x onerror=alert(1)>\", image: a}]}\n");
    browser.wait_to_read("CrashLoopBackOff");
    browser.wait_to_read("<img src=x onerror=alert(1)>");
    browser.wait_until(
        "the broken pod is listed first",
        "document.querySelector('#pods > li').innerText.startsWith('broken-node-a')",
    );
    browser.wait_to_read("2 problems");
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    browser.picture("page-wrong.png");
    browser.look_as((390, 844), "dark");
    browser.wait_until("the page fits a phone", "document.documentElement.scrollWidth <= 390");
    browser.picture("page-phone-dark.png");
    node.remove_manifest("broken");
    node.remove_manifest("evil");
    browser.wait_to_read("All is well");
    browser.wait_to_read("2 of 2 pods running");
    assert_eq!(browser.complaints(), [""; 0], "errors of the page or its policy");
    browser.end();
}

#[test]
fn page_reports_a_lost_node_and_reconnects() {
    let mut node = start();
    node.apply(&Manifest::new("web").container("main", STAY));
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (390, 844), "light");
    browser.wait_to_read("1 of 1 pod running");
    node.stop_agent(Signal::SIGKILL);
    browser.wait_to_read("No connection to the node since ");
    assert_eq!(browser.evaluate("document.title"), "not connected: node-a");
    let seen = browser.evaluate("document.querySelector('#pods').innerText");
    assert!(seen.as_str().unwrap().contains("web-node-a"), "what was seen last stays: {seen}");
    // Nothing is known to be well, also after the page has drawn itself again.
    browser.evaluate("show()");
    assert_eq!(browser.evaluate("document.querySelector('#verdict .good') === null"), true);
    browser.picture("page-lost.png");
    node.remove_manifest("web");
    node.start_agent();
    browser.wait_until("the page is connected again", "document.querySelector('#link').innerText === 'live'");
    browser.wait_to_read("No pods yet.");
    assert_eq!(browser.evaluate("document.querySelector('#lost').hidden"), true);
    browser.end();
}

/// Texts that lie over each other, or over the edge of the screen.
const OVERPRINTS: &str = r"(() => {
  const texts = [...document.querySelectorAll('#pods span, #pods small, #events b, #events span, #wrong a, #wrong b, #tiles dd')]
    .filter(one => one.textContent.trim() && !one.querySelector('*') && !one.closest('.hidden, [hidden]') && one.getClientRects().length);
  const boxes = texts.flatMap(one => [...one.getClientRects()].map(box => [one, box]));
  const bad = boxes.filter(([, box]) => box.right > innerWidth + 1).map(([one]) => 'wide: ' + one.textContent);
  boxes.forEach(([one, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
    const over = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (one !== other && over > 2 && down > 4) bad.push(one.textContent + ' | ' + other.textContent);
  }));
  return bad;
})()";

/// Each sentence counts once it was seen: a crash loop is named while it waits, not while its container runs.
#[track_caller]
fn wait_until_all_are_named(browser: &mut Chromium) {
    let pods = MISTAKES.iter().filter(|(.., sentence)| !sentence.is_empty());
    let pods = pods.map(|(name, _, sentence)| (format!("pod default/{name}-node-a"), *sentence));
    let manifests = REFUSED.iter().map(|(name, _, sentence)| (format!("{name}.yaml"), *sentence));
    let mut unseen: Vec<(String, &str)> = pods.chain(manifests).collect();
    let until = std::time::Instant::now() + FIRST_MINUTES;
    browser.wait_until(
        "all problems can be shown",
        "(() => { const rest = document.querySelector('#rest'); if (!rest.hidden) rest.click(); return !rest.hidden; })()",
    );
    while !unseen.is_empty() {
        let problems = browser.evaluate("[...document.querySelectorAll('#wrong > li')].map(one => one.innerText)");
        let problems: Vec<&str> = problems.as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        unseen.retain(|(name, sentence)| !problems.iter().any(|one| one.contains(name) && one.contains(sentence)));
        assert!(std::time::Instant::now() < until, "not named: {unseen:#?}; page: {problems:#?}");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

#[test]
fn mistakes_are_readable_on_every_screen_and_events_lead_to_their_pods() {
    let node = start();
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (320, 700), "light");
    let directory = node.folder().join("manifests").display().to_string();
    browser.wait_to_read(&format!("Put a pod manifest into {directory} to run it."));
    write_mistakes(&node);
    for (name, manifest, _) in REFUSED {
        node.write_manifest(name, manifest);
    }
    let long = "missing-settings-of-the-measuring-station-in-the-old-harbour";
    node.apply(&Manifest::new(long).container_with("main", STAY, "envFrom: [{configMapRef: {name: gone}}]"));
    wait_until_all_are_named(&mut browser);
    browser.wait_to_read("next try in");
    for width in [320, 390, 1280] {
        browser.look_as((width, 900), "light");
        browser.wait_until(
            "the page fits the screen",
            &format!("document.documentElement.scrollWidth <= {width} && innerWidth === {width}"),
        );
        browser.picture(&format!("page-mistakes-{width}.png"));
        for part in ["pods", "sources"] {
            browser.evaluate(&format!("document.querySelector('#h-{part}').scrollIntoView()"));
            browser.picture(&format!("page-mistakes-{part}-{width}.png"));
        }
        browser.evaluate("scrollTo(0, 0)");
        assert_eq!(browser.evaluate(OVERPRINTS), serde_json::json!([]), "{width} pixels");
    }
    // Each figure of a row has its heading for those who hear the page.
    let spoken = browser.evaluate(&format!("{}.querySelector('.restarts').textContent", row("crash")));
    assert!(spoken.as_str().unwrap().starts_with("Restarts "), "{spoken}");
    // All events: the newest may be of other pods.
    browser.evaluate("document.querySelector('#more').click()");
    browser.wait_until(
        "an event of the pod is listed",
        "(() => { const link = [...document.querySelectorAll('#events a')].find(link => link.textContent.startsWith('crash-node-a')); \
         if (link) link.click(); return !!link; })()",
    );
    browser.wait_until("the event's pod is opened", &format!("{}.firstChild.open", row("crash")));
    let text = browser.evaluate("document.body.innerText");
    assert!(!text.as_str().unwrap().contains("abcent"), "logs and commands are not for everyone: {text}");
    assert_eq!(browser.complaints(), [""; 0], "errors of the page or its policy");
    browser.end();
}

#[test]
fn owner_sees_the_last_log_lines_and_restarts_a_pod() {
    let node = start();
    node.apply(&Manifest::new("crashes").container("main", "echo the last words; exit 3"));
    node.apply(&Manifest::new("web").container("main", STAY));
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (390, 844), "light");
    browser.wait_to_read("CrashLoopBackOff");
    browser.wait_to_read("1 of 2 pods running");
    let give = |token: &str| {
        format!(
            "(() => {{ const owner = document.querySelector('#owner'); owner.open = true; \
             owner.querySelector('input').value = '{token}'; owner.querySelector('button').click(); }})()"
        )
    };
    let open = |name: &str| format!("{}.querySelector('details').open = true", row(name));
    // Without a token file, the page is read-only.
    browser.evaluate(&give("aaaa-bbbb"));
    browser.evaluate(&open("crashes"));
    browser.wait_to_read("this page is read-only");
    let root_dir = node.folder().join("pods").display().to_string();
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_coracle"))
        .args(["page-token", "--root-dir", &root_dir])
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert_eq!(token.len(), 24, "{token}");
    browser.open(PAGE, (390, 844), "light");
    browser.wait_to_read("CrashLoopBackOff");
    browser.evaluate(&give(&token));
    browser.evaluate(&open("crashes"));
    browser.wait_until("the last lines are shown", &format!("{}.innerText.includes('the last words')", row("crashes")));
    browser.evaluate(&format!("{}.scrollIntoView()", row("crashes")));
    browser.picture("page-owner.png");
    browser.evaluate(&open("web"));
    let press = format!(
        "(() => {{ const button = [...{}.querySelectorAll('.acts button')].find(one => one.textContent.startsWith('Restart')); \
         if (!button) return false; button.click(); return true; }})()",
        row("web")
    );
    browser.wait_until("the button is there", &press);
    browser.wait_to_read("Restart now?");
    assert_eq!(browser.evaluate(&press), true);
    browser.wait_to_read("Done: restarting");
    node.wait_until("the container was restarted", |pods| pods.has("web", |pod| pod.container("main").restarts() == 1));
    // The 403 of the first try is the only complaint.
    let others: Vec<&String> = browser.complaints().iter().filter(|one| !one.contains("403")).collect();
    assert!(others.is_empty(), "{others:?}");
    browser.end();
}

#[test]
fn charts_begin_before_the_page_was_opened() {
    let node = start();
    // Three readings, so two points.
    std::thread::sleep(std::time::Duration::from_secs(32));
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (390, 844), "light");
    browser.wait_until(
        "the history is drawn",
        "(past.get('node') || []).some(point => point[0] < performance.now() - 14e3)",
    );
    browser.end();
}

#[test]
fn another_origin_cannot_read_the_node() {
    let node = start();
    let mut browser = Chromium::start(&node);
    // The same machine under another origin.
    browser.open("http://localhost:4194/", (800, 600), "light");
    browser.wait_to_read("All is well");
    let reads = "fetch('http://127.0.0.1:4194/status').then(answer => answer.text(), error => 'refused')";
    assert_eq!(browser.evaluate(reads), "refused");
    assert_eq!(browser.evaluate("fetch('status').then(answer => answer.json()).then(status => status.node)"), "node-a");
    // A site without a content security policy whose name resolves to this machine (DNS rebinding).
    browser.open("http://rebound.localhost:4194/", (800, 600), "light");
    wait_for("the refusal", PATIENCE, || {
        let text = browser.evaluate("document.body ? document.body.innerText : ''");
        text.as_str()?.contains("does not go by that name").then_some(())
    });
    browser.end();
}

#[test]
fn page_shows_how_far_the_next_version_is() {
    const BYTES: usize = 6 << 20;
    let mut node = Node::with_runtime();
    let config = node.folder().join("coracle.yaml");
    std::fs::write(&config, "images: {fetch: resumable, bytesPerSecond: 100k}\n").unwrap();
    node.add_arguments(&["--page-port", "4194", "--coracle-config", &config.display().to_string()]);
    node.start_agent();
    let registry = Registry::start(&node);
    let made = make_image(&node, "web", BYTES);
    let image = registry.push(&node, &made, "web:2");
    node.remove_image(&made);
    let proxy = Proxy::start(&node, &registry, Way::Open);
    let image = proxy.name(&registry, &image);
    let manifest = Manifest::new("web").container_with("main", STAY, "imagePullPolicy: IfNotPresent");
    let text = manifest.spec("hostNetwork: true").text();
    node.write_manifest("web", &text);
    node.wait_until("web is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.write_manifest("web", &text.replace(BUSYBOX, &image));
    let mut browser = Chromium::start(&node);
    browser.open(PAGE, (1200, 900), "light");
    let bar = format!("{}.querySelector('.name .bar')", row("web"));
    browser.wait_until("the bar moves", &format!("parseInt({bar}.firstChild.style.width) >= 3 && !{bar}.hidden"));
    browser.wait_until("its row says so", &format!("/Running, update pulling \\d+ %/.test({}.innerText)", row("web")));
    browser.evaluate(&format!("{}.querySelector('summary').click()", row("web")));
    browser.wait_until(
        "the rest is told",
        r"/next version: pulling \d+ %, \d+\.\d of 6\.\d MB, \d+ s left/.test(document.body.innerText)",
    );
    browser.picture("page-update.png");
    browser.look_as((390, 844), "dark");
    browser.wait_until("nothing is wider than a phone", "document.documentElement.scrollWidth <= 390");
    browser.picture("page-update-phone.png");
    let shown = node.ask(&["pods"]).unwrap();
    assert!(shown.contains("Running (next version: pulling ") && shown.contains(" s left)"), "{shown}");
    assert_eq!(browser.complaints(), [""; 0], "the page, or its policy, has complained");
    browser.end();
}
