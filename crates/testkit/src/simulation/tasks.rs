//! The tasks of one desk. They run in the order in which they were started, and only when they are told to: a desk that is
//! suspended does nothing, and one that crashes drops them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use frontdesk_core::port::BoxFuture;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Task {
    work: BoxFuture<'static, ()>,
    flag: Arc<Flag>,
}

/// Starts tasks, also from within one.
#[derive(Clone, Default)]
pub(super) struct Spawner(Arc<Mutex<Vec<Task>>>);

impl Spawner {
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        self.0.lock().unwrap().push(Task { work: Box::pin(work), flag });
    }
}

#[derive(Default)]
pub(super) struct Tasks {
    pub(super) spawner: Spawner,
    running: Vec<Task>,
}

impl Tasks {
    /// Runs all tasks that can continue. True: one did.
    pub(super) fn run(&mut self) -> bool {
        let mut has_run = false;
        loop {
            self.running.append(&mut self.spawner.0.lock().unwrap());
            let mut is_quiet = true;
            self.running.retain_mut(|task| {
                if !task.flag.0.swap(false, Ordering::SeqCst) {
                    return true;
                }
                is_quiet = false;
                let waker = Waker::from(task.flag.clone());
                task.work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
            });
            if is_quiet {
                return has_run;
            }
            has_run = true;
        }
    }
}
