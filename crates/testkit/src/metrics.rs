//! Reads metrics as monitoring does: from their text.

use frontdesk_core::meters::Meters;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The value of a series, such as `listener_ends_total{why="lost"}`. `None`: it does not exist.
pub fn metric(meters: &Meters, series: &str) -> Option<u64> {
    let mut registry = Registry::default();
    meters.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}
