//! `log`: the format of the logs, which go to stderr, and their setup.

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::print::err_line;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    Text,
    Json,
}

pub(crate) fn begin(form: LogForm) {
    let filter = EnvFilter::try_from_env("FRONTDESK_LOG_FILTER").unwrap_or_else(|_| EnvFilter::new("info"));
    // If stderr is closed, reporting that would panic in the code that logs, and the server could not be stopped.
    let builder = tracing_subscriber::fmt().log_internal_errors(false);
    let builder = builder.with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match form {
        LogForm::Json => builder.json().try_init(),
        LogForm::Text => builder.with_ansi(colours()).with_target(false).try_init(),
    };
    if let Err(error) = begun {
        err_line!("frontdesk: logging could not be started: {error}");
    }
}

fn colours() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
