//! A private Postgres that a test may end, and a standby of it.

use std::path::Path;
use std::process::{Command, Output};

fn script(args: &[&str]) -> Output {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres")).args(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let said = script(args);
    assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

pub(crate) struct Postgres {
    _folder: tempfile::TempDir,
    server: String,
    pub(crate) url: String,
}

impl Postgres {
    /// `settings` are `NAME=VALUE`.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::make("start", settings)
    }

    /// A copy that follows this one under the name `standby`.
    pub(crate) fn standby(&self, settings: &[&str]) -> Self {
        Self::make("standby", &[&[self.url.as_str()], settings].concat())
    }

    fn make(verb: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The owner of the server's folder is another user when the tests run as root.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let server = folder.path().join("server").to_str().unwrap().to_owned();
        let url = done(&[&[verb, &server], more].concat());
        Self { _folder: folder, server, url }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.split(['@', '/']).nth(3).unwrap()
    }

    /// Ends it as a crash would.
    pub(crate) fn stop(&self) {
        done(&["stop", &self.server]);
    }

    /// Ends it as a crash would, and starts it again on the same port.
    pub(crate) fn restart(&self) {
        self.stop();
        let port = self.address().rsplit_once(':').unwrap().1;
        done(&["start", &self.server, &format!("port={port}")]);
    }

    pub(crate) fn promote(&self) {
        done(&["promote", &self.server]);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        script(&["stop", &self.server]); // the test may have stopped it
    }
}
