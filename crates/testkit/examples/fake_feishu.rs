//! Runs the fake Feishu server until standard input is closed. The only line that it prints is JSON with its `base_url`.

use std::io::{Write as _, copy, sink, stdin, stdout};

use frontdesk_testkit::fakes::feishu::FakeFeishu;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = FakeFeishu::new().serve().await?;
    let mut out = stdout();
    writeln!(out, "{}", serde_json::json!({"base_url": server.base_url}))?;
    out.flush()?;
    tokio::task::spawn_blocking(|| copy(&mut stdin().lock(), &mut sink())).await??;
    Ok(())
}
