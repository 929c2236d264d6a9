//! Jobs and CronJobs of a node without a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};

/// A Job `task` whose pods run `script` with a directory of the machine at `/data`.
fn job(spec: &str, data: &Path, script: &str) -> String {
    let data = data.display();
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: task}}\nspec:\n  {spec}\n  template:\n    spec:\n      \
         restartPolicy: Never\n      terminationGracePeriodSeconds: 1\n      containers:\n        - name: main\n          \
         image: '{BUSYBOX}'\n          command: [sh, -c, '{script}']\n          \
         volumeMounts: [{{name: data, mountPath: /data}}]\n      volumes: [{{name: data, hostPath: {{path: '{data}'}}}}]\n"
    )
}

/// The Job as `coracle jobs` shows it.
fn row(node: &Node) -> Option<Value> {
    let all: Value = serde_json::from_str(&node.ask(&["jobs", "-o", "json"])?).unwrap();
    all["jobs"].as_array().unwrap().first().cloned()
}

fn wait_for_status(node: &Node, status: &str) -> Value {
    wait_for(status, PATIENCE, || row(node).filter(|job| job["status"] == status))
}

fn data(node: &Node) -> PathBuf {
    let data = node.folder().join("job-data");
    fs::create_dir_all(&data).unwrap();
    data
}

#[test]
fn completed_job_does_not_run_again_after_restarts_of_agent_and_machine() {
    let mut node = Node::start();
    node.apply(&Manifest::new("other").container("main", STAY));
    let data = data(&node);
    let runs = || fs::read_to_string(data.join("runs")).unwrap_or_default().lines().count();
    let document = job("completions: 3\n  parallelism: 2", &data, "echo run >>/data/runs");
    node.write_manifest("task", &document);
    let done = wait_for_status(&node, "Complete");
    assert_eq!((&done["succeeded"], &done["failed"], &done["active"]), (&3.into(), &0.into(), &0.into()));
    assert_eq!(runs(), 3);
    let pods = node.ask(&["pods", "job/task"]).expect("its pods");
    assert_eq!(pods.matches("Completed").count(), 3, "{pods}");

    node.kill_agent();
    node.start_agent();
    wait_for_status(&node, "Complete");
    node.cut_power();
    node.start_containerd();
    node.start_agent();
    wait_for_status(&node, "Complete");
    node.wait_until("no pod of the job to run", |pods| pods.0.len() == 4 && pods.has("other", |pod| pod.is_ready()));
    assert_eq!(runs(), 3);

    node.write_manifest("task", &document.replace("completions: 3", "completions: 1"));
    wait_for("another job", PATIENCE, || row(&node).filter(|job| job["succeeded"] == 1));
    assert_eq!(runs(), 4);
    node.remove_manifest("task");
    wait_for("the end of the job", PATIENCE, || row(&node).is_none().then_some(()));
    wait_for("the end of its pods", PATIENCE, || (node.pods().0.len() == 1).then_some(()));
    assert_eq!(node.source_errors(), "");
}

#[test]
fn failing_job_fails_after_its_limit() {
    let node = Node::start();
    let data = data(&node);
    node.write_manifest("task", &job("backoffLimit: 1", &data, "echo run >>/data/runs; exit 3"));
    let failed = wait_for_status(&node, "Failed");
    assert_eq!((&failed["reason"], &failed["failed"]), (&"BackoffLimitExceeded".into(), &2.into()));
    assert_eq!(fs::read_to_string(data.join("runs")).unwrap().lines().count(), 2);
    let events = node.ask(&["events", "-A"]).expect("events");
    for reason in ["SuccessfulCreate", "BackoffLimitExceeded"] {
        assert!(events.contains(reason), "{events}");
    }
}

#[test]
fn cron_job_runs_each_minute_once_over_a_power_cut() {
    let mut node = Node::start();
    node.apply(&Manifest::new("other").container("main", STAY));
    let data = data(&node);
    let of_job = job("backoffLimit: 0", &data, "date +%s >>/data/runs");
    let (_, spec) = of_job.split_once("spec:\n").unwrap();
    let template: String = spec.lines().map(|line| format!("    {line}\n")).collect();
    let document = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: task}}\nspec:\n  schedule: '* * * * *'\n  \
         timeZone: UTC\n  jobTemplate:\n    spec:\n{template}"
    );
    node.write_manifest("task", &document);
    let minute = Duration::from_secs(60);
    let done = |node: &Node| row(node).filter(|job| job["status"] == "Complete");
    let first = wait_for("the first minute", PATIENCE + minute, || done(&node));
    let name = first["name"].as_str().unwrap();
    let minutes = name.strip_prefix("task-").and_then(|minutes| minutes.parse::<u64>().ok()).expect(name);
    let pods = node.ask(&["pods", "cronjob/task"]).expect("its pods");
    assert!(pods.contains(name), "{pods}");
    node.cut_power();
    node.start_containerd();
    node.start_agent();
    let second = [minutes + 1, minutes + 2].map(|minutes| format!("task-{minutes}"));
    wait_for("the next minute", PATIENCE + minute * 2, || {
        let all: Value = serde_json::from_str(&node.ask(&["jobs", "-o", "json"])?).unwrap();
        let mut jobs = all["jobs"].as_array().unwrap().iter();
        jobs.find(|job| second.iter().any(|name| job["name"] == **name) && job["status"] == "Complete").cloned()
    });
    let runs = fs::read_to_string(data.join("runs")).unwrap();
    let mut of_minutes: Vec<u64> = runs.lines().map(|second| second.parse::<u64>().unwrap() / 60).collect();
    of_minutes.dedup();
    assert_eq!(of_minutes.len(), runs.lines().count(), "one run a minute: {runs}");
    node.remove_manifest("task");
    wait_for("the end of its jobs", PATIENCE, || row(&node).is_none().then_some(()));
    assert_eq!(node.source_errors(), "");
}
