//! `frontdesk serve`: one line on stdout when ready, logs on stderr, graceful shutdown.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::Frontdesk;
use crate::config::Config;
use crate::logging;
use crate::print::err_line;

/// Files that this process creates from now on are accessible to their owner only.
pub(super) fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

pub(super) async fn serve(config: &Config) -> anyhow::Result<()> {
    keep_files_private();
    logging::begin(config.log);
    let desk = Frontdesk::open(config).await?;
    crate::print::try_out(format_args!("frontdesk ready {}\n", desk.url));
    if let Some(link) = desk.chat_link() {
        err_line!("chat: {link}");
    }
    tokio::spawn(stop_on_signal(desk.app.drain.leaving().clone()));
    desk.serve().await;
    Ok(())
}

/// The first signal stops gracefully, the second immediately. Neither loses accepted messages.
pub(super) async fn stop_on_signal(stop: CancellationToken) {
    let (Ok(mut term), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return tracing::error!("installing the signal handlers failed; stop the process with SIGKILL");
    };
    for already_asked in [false, true] {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        if already_asked {
            std::process::exit(0);
        }
        tracing::info!("shutdown started; a second signal stops immediately");
        stop.cancel();
    }
}
