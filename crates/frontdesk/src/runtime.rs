//! The asynchronous runtime of the process.

/// The store has its own threads, so few workers are enough.
pub(crate) fn build(at_least: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(at_least, usize::from);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(cores.max(at_least)).enable_all().build()?)
}
