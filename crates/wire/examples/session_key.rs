//! Prints the session key of every source on stdin: one JSON object a line in, one JSON string a line out.
//! The comparison with the real gateway drives it (`tests/hermes/session_keys.py`).

use std::io::{self, BufRead as _, BufWriter, Write as _};

use frontdesk_wire::{Source, build_session_key};
use serde_json::{Map, Value};

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let mut fields: Map<String, Value> = serde_json::from_str(&line?)?;
        fields.retain(|_, value| !value.is_null()); // to the gateway, null and absent are one
        let source: Source = serde_json::from_value(Value::Object(fields))?;
        writeln!(out, "{}", Value::from(build_session_key(&source).as_str()))?;
    }
    out.flush()
}
