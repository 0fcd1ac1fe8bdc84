//! Figures with the machine that they were measured on.
use crate::print::out_line;

use serde_json::{Value, json};

pub(super) fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    let memory =
        read("/proc/meminfo").lines().next().map(|line| line.trim_start_matches("MemTotal:").trim().to_owned());
    json!({
        "cpu": model, "cores": std::thread::available_parallelism().map_or(0, usize::from), "memory": memory,
        "kernel": read("/proc/sys/kernel/osrelease").trim(), "version": env!("CARGO_PKG_VERSION"),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

/// Resident memory of this process, in bytes.
pub(super) fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Processor time that the hypervisor gave to other machines while a run lasted.
pub(super) struct Steal {
    /// Ticks of all processors, and those of them that were stolen.
    began: (f64, f64),
}

impl Steal {
    pub(super) fn watch() -> Self {
        Self { began: Self::ticks() }
    }

    /// Since then, in percent of the time of all processors.
    pub(super) fn percent(&self) -> f64 {
        let (all, stolen) = Self::ticks();
        let passed = (all - self.began.0).max(1.0);
        ((stolen - self.began.1) / passed * 1000.0).round() / 10.0
    }

    fn ticks() -> (f64, f64) {
        const STOLEN: usize = 7; // user, nice, system, idle, iowait, irq, softirq, steal; guests are within user
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).take(STOLEN + 1).filter_map(|text| text.parse().ok()).collect();
        (ticks.iter().sum(), ticks.get(STOLEN).copied().unwrap_or(0.0))
    }
}

/// The value below which this part of them lies, of values in their order.
pub(super) fn quantile<T: Copy + Default>(sorted: &[T], part: f64) -> T {
    let index = (sorted.len() as f64 * part) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

pub(super) fn print(figures: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        out_line!("{}", serde_json::to_string_pretty(figures)?);
        return Ok(());
    }
    lines("", figures);
    Ok(())
}

fn lines(prefix: &str, value: &Value) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| {
            lines(&if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") }, inner);
        }),
        other => out_line!("{prefix:<44} {other}"),
    }
}
