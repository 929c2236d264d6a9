//! The binary's responses to command lines: exit codes, and one line for an error.

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
    check_failure(&["pod"], 2, "pod: unknown command (did you mean pods?); coracle --help lists all commands");
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
fn closed_stdout_is_no_failure() {
    let script = format!("{} --help | head -n 1; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_coracle"));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
