//! Judges signed requests on stdin as the doors for Slack do: one JSON object a line in,
//! `{"key","now_s","headers":[[name,value]],"body"}` with the body in base64, `true` or `false` a line out. The comparison with
//! the vendor's own library drives it (`tests/vendors/slack_signatures.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_platforms::slack::signature::verify;
use frontdesk_wire::Secret;
use serde_json::Value;

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let body = STANDARD.decode(request["body"].as_str().unwrap_or_default()).map_err(io::Error::other)?;
        let headers: Vec<(String, String)> = serde_json::from_value(request["headers"].clone())?;
        let key = Secret::new(request["key"].as_str().unwrap_or_default());
        let verdict = verify(&key, &headers, &body, request["now_s"].as_u64().unwrap_or_default());
        writeln!(out, "{}", verdict.is_ok())?;
    }
    out.flush()
}
