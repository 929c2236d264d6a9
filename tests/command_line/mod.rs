//! The binary's responses to command lines: exit codes, and one line for an error.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn coracle(line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coracle")).args(line).output().unwrap()
}

#[track_caller]
fn check_failure(line: &[&str], code: i32, message: &str) {
    let output = coracle(line);
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("coracle: {message}\n"));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(code), &b""[..]));
}

#[test]
fn usage_error_prints_one_line_and_exits_with_2() {
    check_failure(&["--max-podz", "3"], 2, "--max-podz: unknown flag (did you mean --max-pods?)");
    check_failure(&["--max-pods=x"], 2, "--max-pods: expected a whole number from 0, found \"x\"");
    check_failure(&["--config", "/nowhere"], 2, "/nowhere: No such file or directory (os error 2)");
    check_failure(&["podz"], 2, "podz: unknown command (did you mean pods?); coracle --help lists all commands");
    check_failure(&["validate"], 2, "validate: expected a FILE, found nothing");
}

#[test]
fn failed_command_prints_one_line_and_exits_with_1_and_status_with_4() {
    for (command, code) in [("pods", 1), ("status", 4)] {
        let message = "not running, or listening on another socket (--local-socket): /nowhere/c.sock: No such file or directory (os error 2)";
        check_failure(&[command, "--local-socket", "/nowhere/c.sock"], code, message);
    }
}

#[test]
fn doctor_without_a_runtime_ends_with_4_and_names_the_setting_of_each_fault() {
    let flags = ["--root-dir", "/nowhere/root", "--container-runtime-endpoint", "unix:///nowhere/runtime.sock"];
    let line = [&["doctor", "-o", "json", "--local-socket", "/nowhere/c.sock", "--"][..], &flags].concat();
    let output = coracle(&line);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &result["verdict"]), (Some(4), &serde_json::json!("failed")));
    let checks = result["checks"].as_array().unwrap();
    let runtime = checks.iter().find(|check| check["check"] == "runtime").unwrap();
    assert!(runtime["text"].as_str().unwrap().contains("nothing listens at /nowhere/runtime.sock"), "{runtime}");
    assert!(!runtime["advice"].as_str().unwrap().is_empty(), "{runtime}");
    for check in ["swap", "clock", "cgroups", "kernel", "disk", "ports", "watchdog"] {
        assert!(checks.iter().any(|one| one["check"] == check), "{check}: {result:#}");
    }
    let text = String::from_utf8(coracle(&[&["doctor", "--"][..], &flags].concat()).stdout).unwrap();
    assert!(text.contains("failed   runtime: nothing listens at /nowhere/runtime.sock"), "{text}");
    // A mistake in the settings is a finding too.
    let output = coracle(&["doctor", "--", "--max-podz", "3"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("failed   configuration: --max-podz: unknown flag"), "{text}");
}

#[test]
fn state_words_are_painted_on_a_terminal_only() {
    let line =
        ["doctor", "--local-socket", "/nowhere/c.sock", "--", "--container-runtime-endpoint", "unix:///nowhere/r"];
    let on_terminal = |variables: &[(&str, &str)]| {
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_coracle"))
            .args(line)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .stdout(pty.slave)
            .spawn()
            .unwrap();
        // The terminal answers with an error once the last writer has closed it.
        let (mut text, mut terminal) = (Vec::new(), std::fs::File::from(pty.master));
        let _ = terminal.read_to_end(&mut text);
        child.wait().unwrap();
        String::from_utf8(text).unwrap()
    };
    let painted = on_terminal(&[]);
    assert!(painted.contains("\n\u{1b}[31mfailed\u{1b}[0m   runtime: "), "{painted}");
    assert!(on_terminal(&[("NO_COLOR", "")]).contains('\u{1b}'), "an empty NO_COLOR says nothing");
    for variables in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert!(!on_terminal(&[variables]).contains('\u{1b}'), "{variables:?}");
    }
    assert!(!String::from_utf8(coracle(&line).stdout).unwrap().contains('\u{1b}'));
}

#[test]
fn help_and_version_are_printed_on_stdout() {
    for line in [&["--help"][..], &["help"], &["pods", "--help"], &["--version"], &["version"]] {
        let output = coracle(line);
        assert!(output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty(), "{line:?}");
    }
}

#[test]
fn invoked_as_kubelet_it_prints_the_kubernetes_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_coracle")).arg0("/usr/bin/kubelet").arg("--version").output();
    assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), "Kubernetes v1.36.2\n");
}

#[test]
fn kubectls_plugin_runs_commands_and_never_an_agent() {
    let folder = std::env::temp_dir().join(format!("coracle-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("kubectl-coracle");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_coracle"), &link).unwrap();
    let plugin = |line: &[&str]| Command::new(&link).args(line).output().unwrap();
    let help = plugin(&[]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("coracle fleet"), "{help:?}");
    let flags = plugin(&["--max-pods", "3"]);
    let expected = "coracle: kubectl coracle: expected a command, as fleet or rollout\n";
    assert_eq!((flags.status.code(), String::from_utf8_lossy(&flags.stderr).as_ref()), (Some(2), expected));
    let fleet = plugin(&["fleet", "--kubeconfig", "/nowhere/config"]);
    let message = "coracle: fleet: read /nowhere/config: No such file or directory (os error 2)\n";
    assert_eq!((fleet.status.code(), String::from_utf8_lossy(&fleet.stderr).as_ref()), (Some(1), message));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn closed_stdout_is_no_failure() {
    let script = format!("{} --help | head -n 1; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_coracle"));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
