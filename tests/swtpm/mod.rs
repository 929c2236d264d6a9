//! A TPM in software (the program swtpm), behind a socket.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Its state stays in its folder.
pub(crate) struct Swtpm {
    program: Child,
    pub(crate) socket: PathBuf,
}

impl Swtpm {
    pub(crate) fn start(folder: &Path) -> Self {
        let (state, socket) = (folder.join("tpm-state"), folder.join("tpm"));
        std::fs::create_dir_all(&state).unwrap();
        let _ = std::fs::remove_file(&socket);
        let program = Command::new("swtpm")
            .args(["socket", "--tpm2", "--flags", "startup-clear"])
            .args(["--tpmstate", &format!("dir={}", state.display())])
            .args(["--server", &format!("type=unixio,path={}", socket.display())])
            .args(["--ctrl", &format!("type=unixio,path={}", folder.join("tpm-control").display())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program swtpm, of the package of this name");
        let started = Instant::now();
        // The socket is there a moment before the program listens at it.
        while UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "swtpm does not start");
            thread::sleep(Duration::from_millis(5));
        }
        Self { program, socket }
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
