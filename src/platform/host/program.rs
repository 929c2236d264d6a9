//! Runs a program on the node with an input, a timeout and a limit on its output.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{self, Pid};

use crate::platform::host::pidfd;
use crate::platform::rt::{self, AsyncReadExt as _, AsyncWriteExt as _};

/// The exit status and the output of a program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum ProgramError {
    Start(io::Error),
    Talk(io::Error),
    TooMuch,
    Late(Duration),
}

/// Runs `command` with `input`. On timeout, or if the future is dropped, kills the program and all its children.
pub(crate) async fn run(command: Command, input: Vec<u8>, limit: Duration) -> Result<ProgramOutput, ProgramError> {
    let give = |stdin: Option<ChildStdin>| -> Part<'static> {
        Box::pin(async move {
            let Some(stdin) = stdin else { return Ok(Vec::new()) };
            // A program may exit without reading all of its input.
            match rt::Async::new(stdin)?.write_all(&input).await {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
                Ok(()) | Err(_) => Ok(Vec::new()),
            }
        })
    };
    run_given(command, Stdio::piped(), Box::new(give), limit).await
}

/// As [`run`], with a file as the input.
pub(crate) async fn run_on(command: Command, input: File, limit: Duration) -> Result<ProgramOutput, ProgramError> {
    let nothing = |_| -> Part<'static> { Box::pin(std::future::ready(Ok(Vec::new()))) };
    run_given(command, Stdio::from(input), Box::new(nothing), limit).await
}

/// As [`run`], with an input that `feed` writes on the slow pool, until it is done or the program stops reading.
pub(crate) async fn run_fed(
    command: Command,
    feed: impl FnOnce(ChildStdin) + Send + 'static,
    limit: Duration,
) -> Result<ProgramOutput, ProgramError> {
    let give = |stdin: Option<ChildStdin>| -> Part<'static> {
        Box::pin(async move {
            rt::slow(move || stdin.map_or((), feed)).await;
            Ok(Vec::new())
        })
    };
    run_given(command, Stdio::piped(), Box::new(give), limit).await
}

/// A program whose output is read as it comes. It is killed with all its children when this is dropped.
pub(crate) struct RunningProgram {
    output: rt::Async<ChildStdout>,
    _group: Group,
}

/// Starts `command` without an input. Both its outputs go to one pipe, so that neither can fill while the other is read.
pub(crate) async fn stream(mut command: Command) -> io::Result<RunningProgram> {
    let (output, stdout) = unistd::pipe2(OFlag::O_CLOEXEC)?;
    let stderr = stdout.try_clone()?;
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    // The command is dropped there: while it holds the pipe, the output does not end.
    let child = rt::blocking(move || command.spawn()).await?;
    Ok(RunningProgram { output: rt::Async::new(ChildStdout::from(output))?, _group: Group(Some(child)) })
}

impl RunningProgram {
    /// The next part of its output; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut part = vec![0; PROGRAM_READ_BYTES];
        let count = self.output.read(&mut part).await?;
        part.truncate(count);
        Ok((count > 0).then_some(part))
    }
}

const PROGRAM_READ_BYTES: usize = 32 << 10;

type WriteInput = Box<dyn FnOnce(Option<ChildStdin>) -> Part<'static>>;

async fn run_given(
    mut command: Command,
    stdin: Stdio,
    give: WriteInput,
    limit: Duration,
) -> Result<ProgramOutput, ProgramError> {
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = rt::blocking(move || command.spawn()).await.map_err(ProgramError::Start)?;
    let mut group = Group(Some(child));
    let Some(child) = &mut group.0 else { return Err(ProgramError::TooMuch) };
    let ended = rt::deadline(limit, talk(child, give)).await.map_err(|_| ProgramError::Late(limit))?;
    if ended.is_ok() {
        group.0 = None;
    }
    ended
}

async fn talk(child: &mut Child, give: WriteInput) -> Result<ProgramOutput, ProgramError> {
    let fed = give(child.stdin.take());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read_stdout: Part<'_> = Box::pin(async move { read(stdout).await });
    let read_stderr: Part<'_> = Box::pin(async move { read(stderr).await });
    let mut parts = rt::all(vec![fed, read_stdout, read_stderr]).await.into_iter();
    let mut next = || parts.next().unwrap_or(Ok(Vec::new())).map_err(ProgramError::Talk);
    let (_, stdout, stderr) = (next()?, next()?, next()?);
    if stdout.len() > MAX_PROGRAM_OUTPUT_BYTES || stderr.len() > MAX_PROGRAM_OUTPUT_BYTES {
        return Err(ProgramError::TooMuch);
    }
    // `wait` would block the thread until then.
    pidfd::exited(child.id()).await.map_err(ProgramError::Talk)?;
    let status = child.wait().map_err(ProgramError::Talk)?;
    Ok(ProgramOutput { status, stdout, stderr })
}

type Part<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + 'a>>;

async fn read<T>(pipe: Option<T>) -> io::Result<Vec<u8>>
where
    rt::Async<T>: rt::AsyncRead + Unpin,
    T: std::os::fd::AsFd,
{
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let most = u64::try_from(MAX_PROGRAM_OUTPUT_BYTES + 1).unwrap_or(u64::MAX);
        rt::Async::new(pipe)?.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// More than any program here needs to write.
const MAX_PROGRAM_OUTPUT_BYTES: usize = 1 << 20;

/// A program and its children, which share a process group.
struct Group(Option<Child>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        // Kill before the wait: after it the pid may be reused.
        if let Ok(pid) = i32::try_from(child.id()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = rt::thread("program-reaper", move || drop(child.wait()));
        }
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(_) => f.write_str("start the program"),
            Self::Talk(_) => f.write_str("communicate with the program"),
            Self::TooMuch => write!(f, "output exceeds {MAX_PROGRAM_OUTPUT_BYTES} bytes"),
            Self::Late(limit) => write!(f, "program timed out after {} s", limit.as_secs()),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) | Self::Talk(error) => Some(error),
            Self::TooMuch | Self::Late(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: &[u8], limit: Duration) -> Result<ProgramOutput, ProgramError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        rt::block_on(run(command, input.to_vec(), limit))
    }

    #[test]
    fn input_is_passed_and_output_streams_are_separate() {
        let ended = shell("cat; echo complaint >&2; exit 3", b"question", PATIENCE).unwrap();
        assert_eq!((ended.stdout, ended.stderr), (b"question".to_vec(), b"complaint\n".to_vec()));
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn input_may_be_larger_than_the_pipe() {
        let mut command = Command::new("sh");
        command.args(["-c", "wc -c"]);
        let feed = |mut stdin: ChildStdin| {
            use std::io::Write as _;
            (0..10).for_each(|_| stdin.write_all(&[b'x'; 100_000]).unwrap());
        };
        let ended = rt::block_on(run_fed(command, feed, PATIENCE)).unwrap();
        assert_eq!(String::from_utf8(ended.stdout).unwrap().trim(), "1000000");
    }

    #[test]
    fn unread_input_is_no_error() {
        let ended = shell("exec 0<&-; echo enough", &[b'x'; 200_000], PATIENCE).unwrap();
        assert_eq!(ended.stdout, b"enough\n");
    }

    #[test]
    fn streamed_program_may_fill_its_error_pipe_first() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 300000 /dev/zero >&2; echo done"]);
        let output = rt::block_on(rt::deadline(PATIENCE, async {
            let mut program = stream(command).await?;
            let mut output = Vec::new();
            while let Some(part) = program.next().await? {
                output.extend(part);
            }
            io::Result::Ok(output)
        }));
        let output = output.expect("the program does not end").unwrap();
        assert_eq!(output.len(), 300_005);
        assert!(output.ends_with(b"done\n"));
    }

    #[test]
    fn timeouts_kill_the_whole_process_group() {
        let file = std::env::temp_dir().join(format!("coracle-program-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        // Long enough for the shell to start its child on any machine.
        let mut limit = Duration::from_millis(200);
        let pid = loop {
            assert!(matches!(shell(&script, b"", limit), Err(ProgramError::Late(_))));
            match std::fs::read_to_string(&file) {
                Ok(pid) => break pid.trim().parse::<u32>().unwrap(),
                Err(_) => limit *= 2,
            }
        };
        std::fs::remove_file(&file).unwrap();
        rt::block_on(rt::deadline(PATIENCE, pidfd::exited(pid))).unwrap().unwrap();
    }

    #[test]
    fn too_much_output_or_a_missing_program_is_an_error() {
        assert!(matches!(shell("yes", b"", PATIENCE), Err(ProgramError::TooMuch)));
        let missing = rt::block_on(run(Command::new("/nowhere/program"), Vec::new(), PATIENCE));
        assert!(matches!(missing, Err(ProgramError::Start(_))));
    }
}
