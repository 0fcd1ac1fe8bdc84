//! `bench idle`: the cost of an idle server.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::Instant;

use super::load::{LoadOrders, LoadReady};
use super::report::{machine, median, rss_bytes};
use super::stage::{LoadProcess, Stage};

const STARTS: usize = 5;

pub(super) async fn run(sockets: usize) -> anyhow::Result<Value> {
    let (start_ms, rest) = starts().await?;
    let mut stage = Stage::open().await?;
    eprintln!("provisioning {sockets} agents");
    stage.provision(sockets).await?;
    let before = rss_bytes();
    let orders = LoadOrders {
        urls: stage.urls(),
        feeds: Vec::new(),
        door: None,
        gateways: stage.gateways.clone(),
        in_tenants: false,
        messages: 0,
        bytes: 0,
        rate: None,
    };
    eprintln!("opening {sockets} sockets");
    let mut load = LoadProcess::start(&orders).await?;
    let _ready: LoadReady = load.next().await?;
    let open = stage.app.desk.delivery().sockets().open_sockets();
    anyhow::ensure!(
        open == sockets,
        "only {open} of {sockets} sockets are open; raise the limit of open files (ulimit -n)"
    );
    tokio::time::sleep(Duration::from_secs(3)).await; // lets buffers of the handshakes be freed
    let after = rss_bytes();
    load.end().await;
    stage.close().await;
    let binary = std::env::current_exe().and_then(std::fs::metadata).map_or(0, |meta| meta.len());
    Ok(json!({
        "bench": "idle",
        "machine": machine(),
        "sockets": sockets,
        "bytes_per_socket": (after.saturating_sub(before)) / sockets.max(1) as u64,
        "start_ms": { "median": median(&start_ms), "rounds": start_ms },
        "rest_rss_mb": rest.resident as f64 / 1e6,
        "rest_private_mb": rest.private as f64 / 1e6,
        "binary_mb": binary as f64 / 1e6,
    }))
}

/// Memory of a process, in bytes.
#[derive(Default)]
struct Memory {
    resident: u64,
    /// Without mapped pages of files, which are mostly those of the binary and shared with other servers.
    private: u64,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let mut pages = statm.split_whitespace().skip(1).filter_map(|pages| pages.parse::<u64>().ok());
        let (resident, of_files) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        Self { resident: resident * 4096, private: resident.saturating_sub(of_files) * 4096 }
    }
}

/// From spawn to the line that says ready, on a data folder that is there already; then its memory.
async fn starts() -> anyhow::Result<(Vec<f64>, Memory)> {
    let folder = std::env::temp_dir().join(format!("frontdesk-start-{}", std::process::id()));
    let (mut times, mut rest) = (Vec::new(), Memory::default());
    for _ in 0..=STARTS {
        let began = Instant::now();
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        lines.next_line().await?.context("serve exited before it was ready")?;
        times.push((began.elapsed().as_secs_f64() * 1e5).round() / 100.0);
        tokio::time::sleep(Duration::from_millis(500)).await;
        rest = Memory::of(child.id().unwrap_or(0));
        child.kill().await?;
    }
    let _ = std::fs::remove_dir_all(&folder);
    times.remove(0); // the first one made the folder and the keys
    Ok((times, rest))
}
