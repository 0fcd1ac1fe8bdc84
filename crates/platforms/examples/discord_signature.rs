//! Judges signed requests on stdin as the interactions endpoint does, apart from their age: one JSON object a line in,
//! `{"key","timestamp","signature","body"}` with the body in base64, `true` or `false` a line out. The comparison with the
//! vendor's own libraries drives it (`tests/vendors/discord_signatures.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_platforms::discord::signature::verify;
use serde_json::Value;

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let text = |name: &str| request[name].as_str();
        let body = STANDARD.decode(text("body").unwrap_or_default()).map_err(io::Error::other)?;
        let verdict = verify(text("key").unwrap_or_default(), text("timestamp"), text("signature"), &body);
        writeln!(out, "{}", verdict.is_ok())?;
    }
    out.flush()
}
