//! Runs the fake server until standard input is closed. The only line that it prints is JSON with its `base_url` and its
//! credentials.

use std::io::{Write as _, copy, sink, stdin, stdout};

use frontdesk_testkit::fakes::twilio;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = twilio::FakeTwilio::new("+15559990000").serve().await?;
    let mut out = stdout();
    let line = serde_json::json!({ "base_url": server.base_url, "account_sid": twilio::ACCOUNT,
        "auth_token": twilio::TOKEN, "number": "+15559990000" });
    writeln!(out, "{line}")?;
    out.flush()?;
    tokio::task::spawn_blocking(|| copy(&mut stdin().lock(), &mut sink())).await??;
    Ok(())
}
