//! Requests to a running server, and output of the responses.

use anyhow::{Context as _, anyhow, bail};
use comfy_table::{Table, presets};
use frontdesk_wire::api::Problem;
use reqwest::Method;
use serde_json::Value;

use super::{Target, settings};
use crate::print::out_line;

pub(super) struct Remote {
    client: reqwest::Client,
    url: String,
    token: String,
    pub(super) json: bool,
}

impl Remote {
    /// From flags and environment, otherwise from the data folder.
    pub(super) fn find(target: &Target) -> anyhow::Result<Self> {
        let settings = settings(target)?;
        let from_folder = |name: &str, flag: &str| {
            let given = &settings.keys.admin_token_file;
            let file = match name == "admin.token" && !given.as_os_str().is_empty() {
                true => given.clone(),
                false => settings.data_dir.join(name),
            };
            std::fs::read_to_string(&file).map(|text| text.trim().to_owned()).with_context(|| {
                format!("cannot read {}; has `frontdesk serve` run here? (or pass {flag})", file.display())
            })
        };
        let url = target.url.clone().map_or_else(|| from_folder("url", "--url"), Ok)?;
        let token = target.admin_token.clone().map_or_else(|| from_folder("admin.token", "--admin-token"), Ok)?;
        #[allow(clippy::disallowed_methods)] // the operator's own server, at an address that the operator gave
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), token, json: target.json })
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> anyhow::Result<reqwest::Response> {
        let mut request = self.client.request(method, format!("{}/admin/v1{path}", self.url)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|_| {
            anyhow!("no server answers at {}; is `frontdesk serve` running? (use --url for another address)", self.url)
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        match response.json::<Problem>().await {
            Ok(problem) => bail!("{} ({})", problem.detail, problem.code),
            Err(_) => bail!("the server returned status {status}"),
        }
    }

    pub(super) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let bytes =
            self.send(method, path, body).await?.bytes().await.context("the server's response was incomplete")?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).context("the server's response is not JSON")
    }

    /// Prints a list as a table, or unchanged with `--json`.
    pub(super) fn show_list(&self, answer: &Value, list: &str, columns: &[&str]) -> anyhow::Result<()> {
        if self.json {
            return print_json(answer);
        }
        let rows = answer[list].as_array().cloned().unwrap_or_default();
        if rows.is_empty() {
            out_line!("none");
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(columns.iter().map(|name| name.to_uppercase()));
        for row in &rows {
            table.add_row(columns.iter().map(|column| plain(column, &row[*column])));
        }
        out_line!("{table}");
        Ok(())
    }

    /// Prints one object: one field per line, or JSON.
    pub(super) fn show(&self, answer: &Value) -> anyhow::Result<()> {
        match answer {
            Value::Object(fields) if !self.json => {
                for (name, value) in fields {
                    out_line!("{name}: {}", plain(name, value));
                }
                Ok(())
            }
            Value::Null => Ok(()),
            other => print_json(other),
        }
    }
}

pub(super) fn print_json(value: &Value) -> anyhow::Result<()> {
    out_line!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Strings without quotes, timestamps as dates, null as a dash.
fn plain(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) if text.is_empty() => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number)
            if name == "at" || name.ends_with("_at") || name.ends_with("_since") || name.ends_with("_until") =>
        {
            let at = number.as_i64().filter(|ms| *ms > 0).and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
            at.map_or_else(|| "-".into(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
        }
        other => other.to_string(),
    }
}

/// Percent-encodes one path segment, because ids of gateways may contain any character.
pub(super) fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}
