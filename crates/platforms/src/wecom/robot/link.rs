//! Passes actions to the socket, which one task reads and writes.
//!
//! An answer names only the id of the request, and all replies to one message have the same. So they go one after the other:
//! the next is written when the last was acknowledged.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frontdesk_core::port::platform::{Acted, Pace};
use frontdesk_wire::ActionResult;
use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::frame::{Frame, written};
use crate::shared::unanswered;
use crate::wecom::errors::{code_of, error_text, retry_after_ms};

/// Requests that wait for the task, for each robot.
pub(super) const QUEUE_MAX: usize = 64;
/// Queued replies to one message: they are sent one after another.
const BEHIND_MAX: usize = 32;
/// Requests without an answer, of each robot.
const OPEN_MAX: usize = 1_024;
/// Time limit until a request is written. Together with the next limit it is shorter than that of an action.
const TURN_TIME: Duration = Duration::from_secs(10);
/// Time limit for the answer after that.
const ANSWER_TIME: Duration = Duration::from_secs(10);

const WAITING: u8 = 0;
const WRITTEN: u8 = 1;
const ABANDONED: u8 = 2;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkError {
    /// Refused by the vendor, who did nothing.
    Refused {
        code: i64,
        message: String,
    },
    NotSent(String),
    /// It was sent, and may have been done.
    Lost(String),
}

impl LinkError {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { code, message } => format!("WeCom refused it: {}", error_text(*code, message)),
            Self::NotSent(why) => format!("it was not sent to WeCom: {why}"),
            Self::Lost(why) => format!("WeCom did not answer: {why}"),
        }
    }

    /// No user has seen anything of it.
    pub(super) fn undone(self) -> Self {
        match self {
            Self::Lost(why) => Self::NotSent(why),
            other => other,
        }
    }
}

impl From<LinkError> for Acted {
    fn from(error: LinkError) -> Self {
        let text = error.text();
        match error {
            LinkError::Refused { code, .. } => {
                let pace = Pace { retry_after_ms: retry_after_ms(code), ..Pace::default() };
                Self { pace, ..ActionResult::refused(code_of(code), text).into() }
            }
            LinkError::NotSent(_) => unanswered::result(false, text).into(),
            LinkError::Lost(_) => unanswered::result(true, text).into(),
        }
    }
}

/// Decides a race: either the request is written first, or its caller gives up first.
#[derive(Default)]
struct Progress {
    state: AtomicU8,
    written: Notify,
}

impl Progress {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::SeqCst) == state
    }

    fn change(&self, to: u8) -> bool {
        self.state.compare_exchange(WAITING, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// A caller that waits for an answer. If it is dropped early, an unwritten request is not written any more. The id of a
/// written one is not used again, because its late answer could be taken for the answer to the next request.
struct Asking<'a> {
    progress: Arc<Progress>,
    is_answered: bool,
    lost: &'a (dyn Fn() + Sync),
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_answered && !self.progress.change(ABANDONED) && self.progress.is(WRITTEN) {
            (self.lost)();
        }
    }
}

/// A frame on its way to the socket.
pub(super) struct Request {
    pub(super) req_id: String,
    pub(super) text: String,
    progress: Arc<Progress>,
    done: oneshot::Sender<Result<Frame, LinkError>>,
}

impl Request {
    fn may_be_written(&self) -> bool {
        let is_first = self.progress.change(WRITTEN);
        self.progress.written.notify_one();
        is_first
    }

    /// The caller may be gone.
    fn end(self, outcome: Result<Frame, LinkError>) {
        let _ = self.done.send(outcome);
    }
}

/// The open sockets of robots, by the id of the bot.
#[derive(Default)]
pub(super) struct Links(Mutex<HashMap<String, mpsc::Sender<Request>>>);

impl Links {
    fn all(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Request>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_open(&self, bot: &str) -> bool {
        self.all().contains_key(bot)
    }

    /// The socket of this bot can be written to until the guard is dropped.
    pub(super) fn open(&self, bot: &str) -> (Open<'_>, mpsc::Receiver<Request>) {
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        self.all().insert(bot.to_owned(), sender.clone());
        (Open { links: self, bot: bot.to_owned(), sender }, requests)
    }

    /// The answer to a request with an id of its own.
    pub(super) async fn ask(&self, bot: &str, cmd: &str, req_id: &str, body: &Value) -> Result<Frame, LinkError> {
        self.ask_as(bot, cmd, req_id, body, &|| {}).await
    }

    /// The answer to a request. `lost` is called if it was written and no answer came, also if the caller is gone.
    pub(super) async fn ask_as(
        &self,
        bot: &str,
        cmd: &str,
        req_id: &str,
        body: &Value,
        lost: &(dyn Fn() + Sync),
    ) -> Result<Frame, LinkError> {
        let not_sent = |why: &str| LinkError::NotSent(why.to_owned());
        let Some(sender) = self.all().get(bot).cloned() else {
            let why = "the socket of the robot is not open at this server; connect the agent to the server that has the \
                       connection of the robot, or see `bot check`";
            return Err(not_sent(why));
        };
        let (done, mut answer) = oneshot::channel();
        let progress = Arc::new(Progress::default());
        let text = written(cmd, req_id, body);
        let request = Request { req_id: req_id.to_owned(), text, progress: progress.clone(), done };
        sender.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => not_sent("too many messages wait for the socket of the robot"),
            TrySendError::Closed(_) => not_sent("the socket was closed"),
        })?;
        let mut asking = Asking { progress: progress.clone(), is_answered: false, lost };
        let early = timeout(TURN_TIME, async {
            tokio::select! {
                biased;
                ended = &mut answer => Some(ended),
                () = progress.written.notified() => None,
            }
        });
        let ended = match early.await {
            Ok(Some(ended)) => Some(ended),
            Ok(None) => timeout(ANSWER_TIME, answer).await.ok(),
            Err(_) => None,
        };
        if let Some(Ok(outcome)) = ended {
            asking.is_answered = !matches!(outcome, Err(LinkError::Lost(_)));
            return outcome;
        }
        let why = if ended.is_some() { "the socket was closed" } else { "it took too long" };
        Err(if progress.change(ABANDONED) { not_sent(why) } else { LinkError::Lost(why.to_owned()) })
    }
}

pub(super) struct Open<'a> {
    links: &'a Links,
    bot: String,
    sender: mpsc::Sender<Request>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut all = self.links.all();
        // Another task may have opened the next one.
        if all.get(&self.bot).is_some_and(|known| known.same_channel(&self.sender)) {
            all.remove(&self.bot);
        }
    }
}

/// What was written and waits for its answer, and what waits for that.
#[derive(Default)]
pub(super) struct Outbox(HashMap<String, VecDeque<Request>>);

impl Outbox {
    /// The text to write now, if it is the next one.
    pub(super) fn push(&mut self, request: Request) -> Option<String> {
        if !self.0.contains_key(&request.req_id) {
            self.forget_abandoned();
        }
        let total: usize = self.0.len();
        let queue = self.0.entry(request.req_id.clone()).or_default();
        if queue.len() >= BEHIND_MAX || total >= OPEN_MAX {
            request.end(Err(LinkError::NotSent("too many messages wait for an answer of WeCom".into())));
            return None;
        }
        let is_first = queue.is_empty();
        let text = (is_first && request.may_be_written()).then(|| request.text.clone());
        if !is_first || text.is_some() {
            queue.push_back(request);
        }
        text
    }

    /// Ends what was answered. Returns what is written next.
    pub(super) fn answered(&mut self, frame: Frame) -> Option<String> {
        let req_id = frame.req_id.clone();
        let queue = self.0.get_mut(&req_id)?;
        if let Some(first) = queue.pop_front() {
            first.end(match frame.errcode {
                Some(0) => Ok(frame),
                Some(code) => Err(LinkError::Refused { code, message: frame.errmsg }),
                None => Err(LinkError::Lost("its answer has no errcode".into())),
            });
        }
        while let Some(next) = queue.front() {
            if next.may_be_written() {
                return Some(next.text.clone());
            }
            queue.pop_front();
        }
        self.0.remove(&req_id);
        None
    }

    /// Written requests whose callers are gone. Their ids are not used again.
    pub(super) fn forget_abandoned(&mut self) {
        self.0.retain(|_, queue| queue.iter().any(|request| !request.done.is_closed()));
    }

    /// The socket is gone.
    pub(super) fn lose(&mut self, why: &str) {
        for request in self.0.drain().flat_map(|(_, queue)| queue) {
            let is_unsent = request.may_be_written();
            request.end(Err(if is_unsent { LinkError::NotSent(why.into()) } else { LinkError::Lost(why.into()) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<Result<Frame, LinkError>>;

    fn request(req_id: &str, text: &str) -> (Request, Answer) {
        let (done, answer) = oneshot::channel();
        (Request { req_id: req_id.into(), text: text.into(), progress: Arc::default(), done }, answer)
    }

    fn ack(req_id: &str, errcode: i64) -> Frame {
        Frame {
            cmd: String::new(),
            req_id: req_id.into(),
            body: Value::Null,
            errcode: Some(errcode),
            errmsg: "m".into(),
        }
    }

    #[test]
    fn replies_to_one_message_go_one_after_the_other() {
        let mut outbox = Outbox::default();
        let ((one, mut first), (two, mut second), (other, _third)) =
            (request("r", "1"), request("r", "2"), request("s", "3"));
        assert_eq!(outbox.push(one).as_deref(), Some("1"));
        assert_eq!(outbox.push(two), None);
        assert_eq!(outbox.push(other).as_deref(), Some("3"));
        assert_eq!(outbox.answered(ack("x", 0)), None, "nobody asked");
        assert_eq!(outbox.answered(ack("r", 0)).as_deref(), Some("2"));
        assert!(first.try_recv().unwrap().is_ok() && second.try_recv().is_err());
        assert_eq!(outbox.answered(ack("r", 45_009)), None);
        assert!(matches!(second.try_recv().unwrap(), Err(LinkError::Refused { code: 45_009, .. })));
        assert_eq!(outbox.0.len(), 1);
    }

    #[test]
    fn what_nobody_waits_for_is_not_written() {
        let mut outbox = Outbox::default();
        let ((one, first), (two, second), (three, _third)) = (request("r", "1"), request("r", "2"), request("r", "3"));
        outbox.push(one);
        assert!(two.progress.change(ABANDONED));
        outbox.push(two);
        outbox.push(three);
        drop((first, second));
        assert_eq!(outbox.answered(ack("r", 0)).as_deref(), Some("3"), "a late answer is still that of the first");
        let (gone, answer) = request("t", "4");
        outbox.push(gone);
        drop(answer);
        outbox.forget_abandoned();
        assert_eq!(outbox.0.len(), 1);
    }

    #[test]
    fn a_lost_socket_makes_only_what_was_written_unknown() {
        let mut outbox = Outbox::default();
        let ((one, mut first), (two, mut second)) = (request("r", "1"), request("r", "2"));
        outbox.push(one);
        outbox.push(two);
        outbox.lose("gone");
        assert_eq!(first.try_recv().unwrap(), Err(LinkError::Lost("gone".into())));
        assert_eq!(second.try_recv().unwrap(), Err(LinkError::NotSent("gone".into())));
    }

    #[test]
    fn it_is_bounded() {
        let mut outbox = Outbox::default();
        let mut answers = Vec::new();
        for number in 0..=BEHIND_MAX {
            let (request, answer) = request("r", &number.to_string());
            outbox.push(request);
            answers.push(answer);
        }
        assert!(matches!(answers[BEHIND_MAX].try_recv().unwrap(), Err(LinkError::NotSent(_))));
        for number in 0..2 * OPEN_MAX {
            let (request, answer) = request(&format!("n{number}"), "x");
            outbox.push(request);
            answers.push(answer);
        }
        assert!(outbox.0.len() <= OPEN_MAX + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_unknown_and_without_a_socket_is_not() {
        let links = Links::default();
        let ask = async |req_id: &str| links.ask("b", "ping", req_id, &Value::Null).await.unwrap_err();
        assert!(matches!(ask("0").await, LinkError::NotSent(why) if why.contains("not open")));
        let (open, mut requests) = links.open("b");
        assert!(matches!(ask("1").await, LinkError::NotSent(why) if why == "it took too long"), "nobody wrote it");
        let first = requests.recv().await.unwrap();
        assert!(!first.may_be_written(), "and nobody will");
        let write = async {
            let request = requests.recv().await.unwrap();
            assert!(request.may_be_written());
            tokio::time::sleep(Duration::from_mins(1)).await;
        };
        let (error, ()) = tokio::join!(ask("2"), write);
        assert_eq!(error, LinkError::Lost("it took too long".into()));
        drop(open);
        assert!(!links.is_open("b"));
    }

    #[test]
    fn an_answer_without_content_makes_it_unknown() {
        let mut outbox = Outbox::default();
        let (one, mut first) = request("r", "1");
        outbox.push(one);
        outbox.answered(Frame { errcode: None, ..ack("r", 0) });
        assert!(matches!(first.try_recv().unwrap(), Err(LinkError::Lost(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_an_answer_begins_when_the_request_is_written() {
        let links = Links::default();
        let (_open, mut requests) = links.open("b");
        let write = async {
            let request = requests.recv().await.unwrap();
            tokio::time::sleep(Duration::from_secs(9)).await;
            assert!(request.may_be_written());
            tokio::time::sleep(Duration::from_secs(9)).await;
            request.end(Ok(ack("1", 0)));
        };
        let (answer, ()) = tokio::join!(links.ask("b", "ping", "1", &Value::Null), write);
        assert!(answer.is_ok(), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_takes_back_what_was_not_written_and_gives_up_the_id_of_what_was() {
        let links = Links::default();
        let (_open, mut requests) = links.open("b");
        for is_written in [false, true] {
            let lost = AtomicU8::new(0);
            let note = || lost.store(1, Ordering::SeqCst);
            let asking = links.ask_as("b", "ping", "1", &Value::Null, &note);
            let leaving = timeout(Duration::from_secs(1), asking);
            let write = async {
                let request = requests.recv().await.unwrap();
                assert!(!is_written || request.may_be_written());
                request
            };
            let (left, request) = tokio::join!(leaving, write);
            assert!(left.is_err() && !request.may_be_written());
            assert_eq!(lost.load(Ordering::SeqCst), u8::from(is_written));
        }
    }
}
