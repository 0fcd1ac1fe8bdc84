//! The listener of Discord against the fake: what it takes, what it saves, what it reports.
#![allow(clippy::unwrap_used, reason = "tests")]

mod backfill;
mod certificates;
mod scene;
mod sessions;
mod shards;
