//! `frontdesk export` and `frontdesk import`: a whole store as a file.

use std::path::PathBuf;

use clap::Args;

use super::Target;
use crate::app;
use crate::config::Config;
use crate::print::{err_line, out_line};

#[derive(Args)]
pub(super) struct PortableArgs {
    /// File to write or read
    file: PathBuf,
    /// URL of a database that several servers share, as for `serve`; default: the database in the data folder
    #[arg(long)]
    store: Option<String>,
}

/// A store or a data folder that is named on the command line goes before those of the settings.
pub(super) fn settings(target: &Target, args: &PortableArgs) -> anyhow::Result<Config> {
    let mut config = super::settings(target)?;
    match &args.store {
        Some(url) => config.store.url.clone_from(url),
        None if target.data_dir.is_some() => config.store.url.clear(),
        None => {}
    }
    Ok(config)
}

pub(super) fn export(args: &PortableArgs, config: Config) -> anyhow::Result<()> {
    super::serve::keep_files_private();
    let (done, absent) = app::export(&config, &args.file, print_progress("exported"))?;
    if absent > 0 {
        err_line!("{absent} media files were deleted meanwhile or are lost; they were left out");
    }
    out_line!("exported {} rows to {} ({} bytes)", done.rows, args.file.display(), done.bytes);
    Ok(())
}

pub(super) fn import(args: &PortableArgs, config: Config) -> anyhow::Result<()> {
    super::serve::keep_files_private();
    let done = app::import(&config, &args.file, print_progress)?;
    out_line!("imported {} rows from {}", done.rows, args.file.display());
    Ok(())
}

/// Prints the progress of long work.
fn print_progress(what: &str) -> app::Report {
    let what = what.to_owned();
    Box::new(move |progress| err_line!("{what} {} rows, {} MiB so far", progress.rows, progress.bytes >> 20))
}
