//! Files in `deploy/`: dashboards and alerts name only what a running server exposes, and the rest fits the server.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use process::{Desk, until};
use reqwest::Method;
use serde_json::{Value, json};

const PREFIX: &str = "frontdesk_";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Words of a text that look like metrics of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with(PREFIX)).map(str::to_owned).collect()
}

/// Every expression of a dashboard.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut found: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    found.extend(dashboard["templating"]["list"].as_array().unwrap().iter().map(Value::to_string));
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboards_and_alerts_name_only_metrics_of_a_running_server() {
    let desk = Desk::start(&[]).await;
    // A bot whose platform does not answer: its listener fails, which is told only then.
    let bot = json!({
        "platform": "telegram", "id": "lost", "tenant": process::TENANT,
        "settings": { "base_url": "http://127.0.0.1:9" }, "secrets": { "token": "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11" },
    });
    let (status, added) = desk.api.ask(Method::POST, "/admin/v1/bots", &desk.api.admin, Some(&bot)).await.unwrap();
    assert_eq!(status, 201, "{added}");
    let look = async || {
        let (_, text) = desk.api.ask(Method::GET, "/metrics", "", None).await.unwrap();
        let text = text.as_str().unwrap_or_default().to_owned();
        text.contains("frontdesk_listeners_failing{").then_some(text)
    };
    let text = until("a listener fails", Duration::from_mins(1), look).await;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exposed: BTreeSet<String> = samples.flat_map(|line| named(line.split(['{', ' ']).next().unwrap())).collect();
    assert!(exposed.contains("frontdesk_events_accepted_total"), "{exposed:?}");

    let dashboard: Value = serde_json::from_str(&read("monitoring/grafana-dashboard.json")).unwrap();
    let alerts = read("monitoring/alerts.yaml");
    let rules: Vec<&str> = alerts.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
    assert!(rules.len() > 5 && expressions(&dashboard).len() > 10);
    let used: BTreeSet<String> =
        expressions(&dashboard).iter().map(String::as_str).chain(rules).flat_map(named).collect();
    let absent: Vec<_> = used.difference(&exposed).collect();
    assert!(absent.is_empty(), "not exposed: {absent:?}\n{text}");
}

/// Metrics and error codes are public names: OPERATING.md lists all of them, and no others.
#[test]
fn every_metric_and_error_code_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (source, operating) = (text("crates/core/src/meters.rs"), text("docs/OPERATING.md"));
    let registered = source.split("r.register(").skip(1).map(|rest| rest.split('"').nth(1).unwrap().to_owned());
    let registered: BTreeSet<String> = registered.collect();
    assert!(registered.len() > 40, "{registered:?}");
    let name = |metric: String| metric.trim_start_matches(PREFIX).trim_end_matches("_total").to_owned();
    assert_eq!(named(&operating).into_iter().map(name).collect::<BTreeSet<_>>(), registered);

    let section = operating.split("### Error codes").nth(1).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let codes = cells.flat_map(|cell| cell.split(',')).map(|code| code.trim().trim_matches('`').to_owned());
    let known = frontdesk_wire::code::CODES.map(|code| code.name().to_owned());
    assert_eq!(codes.collect::<BTreeSet<_>>(), BTreeSet::from(known));
}

/// There is no parser of YAML among our dependencies. What breaks such a file most often is found without one.
#[test]
fn yaml_files_have_no_tabs_and_even_indentation() {
    for name in
        ["compose.yaml", "kubernetes/frontdesk.yaml", "kubernetes/secret.example.yaml", "monitoring/alerts.yaml"]
    {
        for (number, line) in read(name).lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            assert!(!line.contains('\t') && indent % 2 == 0, "{name}, line {}: {line:?}", number + 1);
            for (open, close) in [('{', '}'), ('[', ']')] {
                let is_comment = line.trim_start().starts_with('#');
                let count = |letter| line.matches(letter).count();
                assert!(is_comment || count(open) == count(close), "{name}, line {}: {line:?}", number + 1);
            }
        }
    }
}

/// A variable that the server does not know would be ignored.
#[test]
fn files_set_only_variables_that_are_settings() {
    let mut names = BTreeSet::new();
    for name in ["compose.yaml", "kubernetes/frontdesk.yaml", "Dockerfile"] {
        let text = read(name);
        let words = text.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
        names.extend(words.filter(|word| word.starts_with("FRONTDESK_")).map(str::to_owned));
    }
    assert!(names.len() > 5, "{names:?}");
    let (keys, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frontdesk"));
    command.args(["config", "check"]).env_clear();
    for name in names {
        let value = match name.as_str() {
            "FRONTDESK_STORE_URL" => "postgres://x/y".into(),
            "FRONTDESK_PUBLIC_URL" => "https://desk.example".into(),
            "FRONTDESK_DATA_DIR" => data.path().display().to_string(),
            "FRONTDESK_LISTEN" => "0.0.0.0:8787".into(),
            "FRONTDESK_LOG" => "json".into(),
            "FRONTDESK_SERVER_CONNECTIONS_PER_PEER" => "0".into(),
            other => keys.path().join(other).display().to_string(),
        };
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
