//! Runs the fake server until standard input is closed. The only line that it prints is JSON with its URLs and its credentials.

use std::io::{Write as _, copy, sink, stdin, stdout};

use frontdesk_testkit::fakes::wecom;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = wecom::FakeWeCom::new().serve().await?;
    let mut out = stdout();
    let line = serde_json::json!({ "base_url": server.base_url, "socket_url": server.socket_url, "corp_id": wecom::CORP,
        "agent_id": wecom::AGENT, "secret": wecom::SECRET, "token": wecom::TOKEN, "aes_key": wecom::AES_KEY,
        "bot_id": wecom::ROBOT, "bot_secret": wecom::ROBOT_SECRET });
    writeln!(out, "{line}")?;
    out.flush()?;
    tokio::task::spawn_blocking(|| copy(&mut stdin().lock(), &mut sink())).await??;
    Ok(())
}
