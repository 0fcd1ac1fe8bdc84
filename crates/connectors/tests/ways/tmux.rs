//! The tmux connector: what reaches the pane, what never does, and a tmux that hangs.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_connectors::{Tmux, TmuxSettings};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::conformance::agent_connector::{augment, template};
use frontdesk_wire::agents::{AgentConnector, Class, Fault, WakeOpts};
use serde_json::{Value, json};

use crate::terminal::Terminal;

fn opened(target: &str, settings: TmuxSettings) -> Result<Tmux, Fault> {
    Tmux::open("ann", target, settings, Arc::new(TestEnv::default()))
}

fn head(line: &str) -> Value {
    serde_json::from_str(line.strip_prefix("# ").unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_is_a_metadata_line_and_the_unchanged_text() {
    let terminal = Terminal::open();
    let way = opened("agent", terminal.settings()).unwrap();
    let text = "Enter C-c ; kill-server\n$(touch x) `id` \"quoted\" 'single' #{pane_id} -- grüße\n\ttabbed \\n";
    let receipt = way.deliver("ann", &augment("d-1", text)).await.unwrap();
    assert_eq!((receipt.delivered_at, receipt.session_id.as_deref()), (TestEnv::START_MS, Some("agent")));
    let read = terminal.read_until("tabbed \\n\n").await.unwrap();
    let (first, rest) = read.split_once('\n').unwrap();
    assert_eq!(rest, format!("{text}\n"));
    let head = head(first);
    assert_eq!((&head["agent_id"], &head["kind"]), (&json!("ann"), &json!("augment")));
    assert_eq!(
        (&head["meta"]["dispatch_id"], &head["meta"]["origin"]["skill_name"]),
        (&json!("d-1"), &json!("watcher"))
    );
    assert_eq!(terminal.tmux(&["list-buffers"]), "", "no paste buffer is left");
    way.deliver("ann", &template("d-2", "")).await.unwrap();
    let read = terminal.read_until("d-2").await.unwrap();
    assert!(
        read.lines().last().unwrap().contains(r#""kind":"template""#),
        "rule 9: an empty text leaves only the metadata line"
    );
}

#[tokio::test]
async fn control_characters_never_reach_the_terminal() {
    let terminal = Terminal::open();
    let way = opened("agent:0.0", terminal.settings()).unwrap();
    let text = "a\u{3}b\u{4}c\u{1b}[201~d\u{7f}e\u{9b}f\0g\u{8}h\ri\r\nj\u{1a}k end";
    way.deliver("ann", &augment("x\u{1b}]0;t\u{7}\u{9d}\u{7f}\ny", text)).await.unwrap();
    let read = terminal.read_until("k end\n").await.unwrap();
    let odd: Vec<char> = read.chars().filter(|c| c.is_control() && *c != '\n').collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert!(
        read.ends_with(
            "\na\u{fffd}b\u{fffd}c\u{fffd}[201~d\u{fffd}e\u{fffd}f\u{fffd}g\u{fffd}h\u{fffd}i\nj\u{fffd}k end\n"
        ),
        "{read:?}"
    );
    assert_eq!(read.lines().count(), 3, "the metadata is one line: {read:?}");
    way.wake("ann", &WakeOpts { context: Some("w\u{1b}".into()), ..WakeOpts::default() }).await.unwrap();
    assert!(terminal.read_until("w\u{fffd}\n").await.is_some());
}

/// A program that enabled bracketed paste gets one paste followed by Enter.
#[tokio::test]
async fn a_paste_is_bracketed_if_the_program_enabled_it() {
    let terminal = Terminal::open();
    let fifo = terminal.fifo();
    let asks = format!("printf '\\033[?2004h'; stty raw -echo; echo ready > '{fifo}'; exec cat > '{fifo}'");
    terminal.tmux(&["new-session", "-d", "-s", "prompt", &asks]);
    terminal.read_until("ready").await.unwrap();
    let way = opened("prompt", terminal.settings()).unwrap();
    way.deliver("ann", &augment("d", "one\ntwo \u{1b}[201~ three")).await.unwrap();
    let read = terminal.read_until("\u{1b}[201~\r").await.unwrap();
    let pasted = read.split_once("\u{1b}[200~").unwrap().1;
    assert!(pasted.ends_with("one\rtwo \u{fffd}[201~ three\u{1b}[201~\r"), "{pasted:?}");
}

#[tokio::test]
async fn rule_14_a_live_pane_is_woken_and_a_missing_one_is_a_fault() {
    let terminal = Terminal::open();
    let way = opened("agent", terminal.settings()).unwrap();
    let opts = WakeOpts { context: Some("look at this".into()), ..WakeOpts::default() };
    let receipt = way.wake("ann", &opts).await.unwrap();
    assert!(receipt.woken && receipt.warnings.is_empty());
    assert_eq!(receipt.session_id.as_deref(), Some("agent"));
    let read = terminal.read_until("look at this\n").await.unwrap();
    assert_eq!(head(read.lines().next().unwrap()), json!({ "agent_id": "ann", "kind": "wake" }));
    let elsewhere = way.wake("ann@kitchen", &opts).await.unwrap();
    assert_eq!(
        (elsewhere.session_id.as_deref(), elsewhere.warnings.len()),
        (Some("agent"), 1),
        "the agent has only one terminal"
    );
    for target in ["nobody", "age", "agent:7", "agent:0.9", "%99", "@99", "$99", "agent.9"] {
        let way = opened(target, terminal.settings()).unwrap();
        for fault in [
            way.health_check().await.unwrap_err(),
            way.wake("ann", &opts).await.unwrap_err(),
            way.deliver("ann", &augment("d", "lost")).await.unwrap_err(),
        ] {
            assert_eq!(
                (fault.class, &fault.fields["cause_kind"]),
                (Class::DeliveryFailedError, &json!("network")),
                "{target}"
            );
        }
    }
    for target in ["agent:", "agent:0", "agent.0", "%0", "@0", "$0", "agent-two"] {
        assert_eq!(opened(target, terminal.settings()).unwrap().health_check().await, Ok(()), "{target}");
    }
    assert_eq!(terminal.tmux(&["list-buffers"]), "");
}

/// Copy mode takes keys for itself.
#[tokio::test]
async fn a_pane_in_copy_mode_gets_its_message() {
    let terminal = Terminal::open();
    terminal.tmux(&["copy-mode", "-t", "=agent:"]);
    opened("agent", terminal.settings()).unwrap().deliver("ann", &augment("d", "through")).await.unwrap();
    assert!(terminal.read_until("through\n").await.is_some());
}

#[tokio::test]
async fn a_pane_whose_program_has_exited_is_refused() {
    let terminal = Terminal::open();
    terminal.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    terminal.tmux(&["new-session", "-d", "-s", "short", "exec cat"]);
    let way = opened("short", terminal.settings()).unwrap();
    assert_eq!(way.health_check().await, Ok(()));
    terminal.tmux(&["send-keys", "-t", "=short:", "C-d"]);
    let ended = async { while way.health_check().await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
    assert!(way.health_check().await.unwrap_err().message.contains("has exited"));
    assert!(way.deliver("ann", &augment("d", "lost")).await.is_err());
}

#[tokio::test]
async fn a_missing_server_and_a_missing_tmux_are_faults() {
    let folder = tempfile::tempdir().unwrap();
    let socket = Some(folder.path().join("none").to_str().unwrap().to_owned());
    let way = opened("agent", TmuxSettings { socket, ..TmuxSettings::default() }).unwrap();
    let fault = way.deliver("ann", &augment("d", "lost")).await.unwrap_err();
    assert!(fault.message.starts_with("tmux failed: "), "{fault}");
    let settings = TmuxSettings { program: "/nowhere/tmux".into(), ..TmuxSettings::default() };
    let fault = opened("agent", settings).unwrap().health_check().await.unwrap_err();
    assert!(fault.message.contains("starting tmux failed"), "{fault}");
}

/// A tmux that never finishes is killed, and the fault has the kind `timeout`.
#[tokio::test]
async fn a_tmux_that_hangs_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (program, pid) = (folder.path().join("tmux"), folder.path().join("pid"));
    let script = format!("#!/bin/sh\necho $$ > '{0}.part'; mv '{0}.part' '{0}'\nexec sleep 600\n", pid.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap().to_owned();
    let settings = TmuxSettings { program, time: Duration::from_secs(2), ..TmuxSettings::default() };
    let fault = opened("agent", settings).unwrap().deliver("ann", &augment("d", "lost")).await.unwrap_err();
    assert_eq!((&fault.fields["cause_kind"], &fault.fields["timeout_ms"]), (&json!("timeout"), &json!(2000)));
    let pid = std::fs::read_to_string(&pid).unwrap();
    let gone = async {
        // Already killed; the runtime reaps it after SIGCHLD.
        while std::fs::metadata(format!("/proc/{}", pid.trim())).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

#[test]
fn a_target_has_only_plain_characters() {
    let long = "a".repeat(129);
    for target in ["", "-t", "-", "a b", "a;b", "a\n", "$(id)", "=a", "{last}", "a'b", "ä", "a/b", "~", "!", "+", &long]
    {
        let fault = opened(target, TmuxSettings::default()).err().unwrap_or_else(|| panic!("{target:?} was accepted"));
        assert_eq!((fault.class, &fault.fields["field"]), (Class::ValidationError, &json!("target")));
    }
    for target in ["agent", "my-agent_2", "a:1.0", "%12", "@3", "$4", "a@b", &long[..128]] {
        assert!(opened(target, TmuxSettings::default()).is_ok(), "{target}");
    }
}
