//! The command line: a server, and commands with their output and exit codes.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

struct Desk {
    child: Child,
    folder: tempfile::TempDir,
}

impl Desk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = program(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        Self::start_by(command, folder)
    }

    fn start_by(mut command: Command, folder: tempfile::TempDir) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("frontdesk ready http://127.0.0.1:"), "{line:?}");
        Self { child, folder }
    }

    fn run(&self, args: &[&str]) -> Output {
        program(self.folder.path(), args).output().unwrap()
    }

    /// Runs a command that must succeed; returns its JSON.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Runs a command that must fail with exit code 1; returns the reason on stderr.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stdout.is_empty());
        text(&output.stderr)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frontdesk"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FRONTDESK_")) {
        command.env_remove(name);
    }
    command.args(args).arg("--data-dir").arg(folder);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_operator_sets_up_a_tenant_and_inspects_it() {
    let desk = Desk::start();
    assert_eq!(desk.json(&["tenant", "create", "acme"])["id"], "acme");
    assert!(desk.refused(&["tenant", "create", "acme"]).contains("already exists"));
    assert!(desk.refused(&["tenant", "create", "No Good"]).contains("a-z 0-9"));
    let table = text(&desk.run(&["tenant", "ls"]).stdout);
    assert!(table.contains("NAME") && table.contains("acme") && table.contains("home"), "{table}");

    let made = desk.json(&["gateway", "add", "bot:1", "--tenant", "acme", "--instance", "helper-bot"]);
    assert_eq!(made["secret"].as_str().unwrap().len(), 64);
    assert_eq!(desk.json(&["gateway", "show", "bot:1"])["instance"], "helper-bot");
    let rotated = desk.json(&["gateway", "rotate", "bot:1"]);
    assert!(rotated["secret"] != made["secret"] && rotated["overlap_until"].as_u64().unwrap() > 0);

    desk.json(&["bind", "relay", "ann", "--tenant", "acme", "--instance", "helper-bot"]);
    desk.json(&["unbind", "relay", "ann", "--tenant", "acme", "--instance", "helper-bot"]);
    assert!(
        desk.refused(&["unbind", "relay", "ann", "--tenant", "acme", "--instance", "helper-bot"])
            .contains("user \"ann\" of \"relay\" is not linked to \"helper-bot\"")
    );

    let token = desk.json(&["token", "create", "--tenant", "acme", "--scope", "chat", "--ttl", "1h"]);
    let id = token["id"].as_str().unwrap();
    assert!(
        !text(&desk.run(&["token", "ls"]).stdout).contains(token["token"].as_str().unwrap()),
        "a token is shown once only"
    );
    desk.json(&["token", "revoke", id]);
    assert!(desk.json(&["token", "ls"])["tokens"].as_array().unwrap().is_empty());
    assert!(desk.json(&["enroll-token", "--tenant", "acme"])["token"].as_str().unwrap().starts_with("fde_"));

    desk.json(&["bot", "add", "other", "--id", "9", "--tenant", "acme", "--set", "a=b"]);
    assert!(
        desk.refused(&["bot", "add", "other", "--id", "8", "--secret", "k=plain"]).contains("env:NAME or file:PATH")
    );
    desk.json(&["route", "add", "other", "guild", "--tenant", "acme"]);
    assert!(desk.refused(&["route", "add", "other", "guild", "--tenant", "home"]).contains("routed to another tenant"));
    desk.json(&["route", "rm", "other", "guild"]);
    desk.json(&["bot", "rm", "other", "--id", "9"]);
    desk.json(&["gateway", "revoke", "bot:1"]);
    assert!(desk.refused(&["gateway", "rotate", "bot:1"]).contains("not found, or revoked"));
    assert!(desk.refused(&["mail", "ls", "--instance", "nobody"]).contains("not found"));
    assert!(desk.refused(&["explain", "ev-999"]).contains("not found"));
}

#[test]
fn the_doctor_accepts_a_new_server_and_a_backup_is_complete() {
    let desk = Desk::start();
    let report = text(&desk.run(&["doctor"]).stdout);
    assert!(report.contains("ok    store: writes are durable") && report.contains("integrity"), "{report}");
    let file = desk.folder.path().join("copy.db");
    let path = file.to_str().unwrap();
    assert!(desk.json(&["backup", path])["bytes"].as_u64().unwrap() > 0);
    assert!(file.exists());
    assert!(desk.refused(&["backup", path]).contains("exists already"));
}

#[test]
fn errors_name_a_solution() {
    let folder = tempfile::tempdir().unwrap();
    let no_desk = program(folder.path(), &["tenant", "ls"]).output().unwrap();
    assert_eq!(no_desk.status.code(), Some(1));
    assert!(text(&no_desk.stderr).contains("has `frontdesk serve` run here?"), "{}", text(&no_desk.stderr));
    let usage = program(folder.path(), &["tenant", "destroy"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    let setting = program(folder.path(), &["config", "check"]).env("FRONTDESK_RELAY_WIDOW", "1").output().unwrap();
    assert_eq!(setting.status.code(), Some(1));
    assert!(text(&setting.stderr).contains("FRONTDESK_RELAY_WIDOW"));
    let example = program(folder.path(), &["config", "example"]).output().unwrap();
    assert!(text(&example.stdout).contains("settle_ms = 3000"));
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let desk = Desk::start();
    let second = desk.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("in use by another Frontdesk server"), "{}", text(&second.stderr));
}

/// Mode of each file and folder below a folder, and of the folder itself.
fn modes(folder: &Path) -> BTreeMap<PathBuf, u32> {
    let mut found = BTreeMap::from([(folder.to_owned(), mode(folder))]);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            let mode = mode(&path);
            found.insert(path, mode);
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Uploads a file of one byte.
fn upload(desk: &Desk) {
    let made = desk.json(&["token", "create", "--tenant", "home", "--scope", "chat"]);
    let token = made["token"].as_str().unwrap();
    let url = fs::read_to_string(desk.folder.path().join("url")).unwrap();
    let mut stream = TcpStream::connect(url.trim().trim_start_matches("http://")).unwrap();
    let request = format!(
        "POST /chat/v1/media HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {token}\r\nContent-Type: image/png\r\n\
         Content-Length: 1\r\nConnection: close\r\n\r\nx"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn files_of_a_server_are_private_whatever_its_umask() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let serve = program(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let mut without_umask = Command::new("sh");
    without_umask.args(["-c", r#"umask 000 && exec "$0" "$@""#]).arg(serve.get_program()).args(serve.get_args());
    for (name, _) in serve.get_envs() {
        without_umask.env_remove(name); // `program` sets none
    }
    let desk = Desk::start_by(without_umask, folder);
    upload(&desk);
    let folder = desk.folder.path();
    desk.json(&["backup", folder.join("copy.db").to_str().unwrap()]);

    let found = modes(folder);
    for name in
        ["frontdesk.db", "frontdesk.db-wal", "frontdesk.db-shm", "master.key", "admin.token", "media", "copy.db"]
    {
        assert!(found.contains_key(&folder.join(name)), "{name} is missing: {found:?}");
    }
    assert_eq!(fs::read_dir(folder.join("media")).unwrap().count(), 1, "the uploaded file: {found:?}");
    for (path, mode) in &found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(*mode, expected, "mode {mode:o} of {}", path.display());
    }
}

/// A pipe whose reader has closed it, as `| head -1` does.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let desk = Desk::start();
    for args in [
        &["config", "example"] as &[&str],
        &["config", "check"],
        &["tenant", "ls"],
        &["tenant", "ls", "--json"],
        &["journal"],
        &["instances"],
        &["doctor"],
        &["enroll-token", "--tenant", "home"],
        &["tenant", "--help"],
    ] {
        let ended = program(desk.folder.path(), args).stdout(closed_pipe()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(0), ""), "{args:?}");
    }
    let refused = program(desk.folder.path(), &["explain", "ev-999"]).stderr(closed_pipe()).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "an error keeps its exit code if nobody reads its text");
}

#[test]
fn a_server_whose_log_nobody_reads_serves_and_stops_at_the_first_signal() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(closed_pipe()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut desk = Desk { child, folder };
    assert!(text(&desk.run(&["tenant", "ls"]).stdout).contains("home"), "{line:?}");
    let signals = format!("kill -TERM {0}; sleep 60; kill -KILL {0}", desk.child.id());
    let mut watchdog =
        Command::new("sh").args(["-c", &signals]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = desk.child.wait().unwrap();
    watchdog.kill().unwrap();
    watchdog.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_server_with_closed_stdout_keeps_running() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = program(folder.path(), &["serve", "--listen", "127.0.0.1:0"])
        .stdout(closed_pipe())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let ready = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("chat: "));
    let desk = Desk { child, folder };
    assert!(ready.is_some(), "the server ended");
    assert!(text(&desk.run(&["tenant", "ls"]).stdout).contains("home"));
}

/// Set by people for the clients, and by `agent run --exec` for the command that it starts.
const OF_CLIENTS_AND_COMMANDS: [&str; 11] = [
    "FRONTDESK_IDENTITY_TOKEN",
    "FRONTDESK_AGENT_TOKEN",
    "FRONTDESK_PLATFORM",
    "FRONTDESK_CHAT_ID",
    "FRONTDESK_CHAT_TYPE",
    "FRONTDESK_THREAD_ID",
    "FRONTDESK_USER_ID",
    "FRONTDESK_USER_NAME",
    "FRONTDESK_MESSAGE_ID",
    "FRONTDESK_FILES",
    "FRONTDESK_FILES_MISSING",
];

#[test]
fn foreign_variables_stop_no_command_and_are_reported_by_serve() {
    let desk = Desk::start();
    let with = |args: &[&str]| {
        let mut command = program(desk.folder.path(), args);
        for name in OF_CLIENTS_AND_COMMANDS {
            command.env(name, "x");
        }
        command.env("FRONTDESK_TOKEN", "fd_1").env("FRONTDESK_ID", "alice").output().unwrap()
    };
    let listed = with(&["tenant", "ls"]);
    assert_eq!((listed.status.code(), text(&listed.stderr).as_str()), (Some(0), ""));
    let checked = with(&["config", "check"]);
    assert_eq!(checked.status.code(), Some(0));
    let output = text(&checked.stderr);
    assert_eq!(output.lines().count(), 1, "{output}");
    assert!(output.contains("warning") && output.contains("FRONTDESK_ID, FRONTDESK_TOKEN"), "{output}");
    assert!(!output.contains("fd_1"), "a value may be a secret: {output}");
    for name in OF_CLIENTS_AND_COMMANDS {
        assert!(!output.contains(name), "{name} is known: {output}");
    }
    let second = with(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(text(&second.stderr).contains("FRONTDESK_TOKEN"), "{}", text(&second.stderr));
}

#[test]
fn an_operator_messages_an_agent_and_reads_its_inbox() {
    let desk = Desk::start();
    desk.json(&["gateway", "add", "bot:1", "--tenant", "home", "--instance", "helper"]);
    assert_eq!(desk.json(&["agents", "ls", "--tenant", "home"])["agents"][0]["kind"], "instance");
    assert!(desk.refused(&["say", "nobody", "hello", "--tenant", "home"]).contains("nobody"));
    let receipt = desk.json(&["say", "helper", "tea is ready", "--tenant", "home", "--from", "ann"]);
    assert!(receipt["delivery_id"].as_str().unwrap().starts_with("dl_"), "{receipt}");
    let woken = desk.json(&["say", "helper", "now", "--tenant", "home", "--wake"]);
    assert_eq!(woken["woken"], false);
    let inbox = desk.json(&["inbox", "helper", "--tenant", "home"]);
    assert_eq!(inbox["messages"].as_array().map(Vec::len), Some(2), "{inbox}");
    let table = text(&desk.run(&["inbox", "helper", "--tenant", "home"]).stdout);
    assert!(table.contains("FROM") && table.contains("ann") && table.contains("tea is ready"), "{table}");
    let first = inbox["messages"][0]["seq"].to_string();
    let rest = desk.json(&["inbox", "helper", "--tenant", "home", "--after", &first]);
    assert_eq!(rest["messages"].as_array().map(Vec::len), Some(1));
    let beyond = desk.run(&["inbox", "helper", "--tenant", "home", "--after", "999"]);
    assert_eq!((beyond.status.code(), text(&beyond.stdout).as_str()), (Some(0), "none\n"));
    assert!(text(&beyond.stderr).contains("beyond the end of this inbox"), "{}", text(&beyond.stderr));

    let args = ["inbox", "helper", "--tenant", "home", "--after", &first, "--follow"];
    let mut follower = program(desk.folder.path(), &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().ends_with("wake_degraded -: now"));
    desk.json(&["say", "helper", "and biscuits", "--tenant", "home", "--from", "ann"]);
    assert!(lines.next().unwrap().ends_with("augment ann: and biscuits"));
    follower.kill().unwrap();
    follower.wait().unwrap();

    assert_eq!(desk.json(&["agents", "show", "helper", "--tenant", "home"])["agent_id"], "helper");
    desk.json(&["agents", "rm", "helper", "--tenant", "home"]);
    let instances = text(&desk.run(&["instances"]).stdout);
    assert!(instances.contains("KIND") && instances.contains("instance"), "{instances}");
}
