//! Runs the fake Telegram server until standard input is closed. The only line that it prints is JSON with its `base_url`.

use std::io::Write as _;

use frontdesk_testkit::fakes::telegram::FakeTelegram;
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = FakeTelegram::new().serve().await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::json!({"base_url": server.base_url}))?;
    out.flush()?;
    let mut input = tokio::io::stdin();
    let mut buffer = [0u8; 1024];
    while input.read(&mut buffer).await? > 0 {}
    // Reading standard input holds a thread of the runtime; the process does not wait for it.
    std::process::exit(0)
}
