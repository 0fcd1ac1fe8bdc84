//! The stream of `signal-cli`, which contains messages of unknown users, for `FUZZ_SECONDS` (two by default).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use frontdesk_core::DeskError;
use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, Receipt, TenantSource};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::outcall::{Call, HttpAnswer, OpenAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet, LateReceipt, ListenEnd, Part, Platform as _};
use frontdesk_core::port::store::StoreError;
use frontdesk_platforms::signal::Signal;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use futures_util::FutureExt as _;

const ME: &str = "+15550001";

/// A daemon whose stream is this, and which answers nothing else.
struct Daemon(Bytes);

impl Outcall for Daemon {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(std::future::ready(Err(OutcallError::NotSent("refused".into()))))
    }

    fn open<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        let body = body_of(self.0.clone());
        Box::pin(std::future::ready(Ok(OpenAnswer { status: 200, headers: Vec::new(), body })))
    }
}

#[derive(Default)]
struct Taken(Mutex<Vec<Intake>>);

impl Inlet for Taken {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        self.0.lock().unwrap().extend(intakes);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn changed(&self, _: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn gap(&self, _: Gap) {}

    fn save_cursor(&self, _: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn stream(input: &[u8]) -> Outcome {
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(Daemon(Bytes::copy_from_slice(input))),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let settings = [("url", "http://127.0.0.1:9"), ("account", ME)].map(|(name, value)| (name.into(), value.into()));
    let bot = Bot::new("phone", Some("home".into()), settings.into(), [].into());
    let (signal, taken) = (Signal::new(&kit), Taken::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _inside = runtime.enter();
    let ended = signal.listen(&bot, Part::WHOLE, None, &taken).now_or_never().expect("it waits for nothing");
    assert_eq!(ended, ListenEnd::Lost("signal-cli ended the stream".into()));
    let taken = taken.0.into_inner().unwrap();
    for intake in &taken {
        let (event, source) = (&intake.event, &intake.event.source);
        assert_eq!((&intake.tenant_source, source.platform.as_str()), (&TenantSource::Tenant("home".into()), "signal"));
        assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty()) && !source.chat_id.is_empty());
        assert!(intake.refused.is_some() || source.user_id_alt.as_deref() != Some(ME), "never our own");
        assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX);
        let fits = |it: &frontdesk_core::intake::RemoteFile| it.handle.expose().len() <= HANDLE_MAX_BYTES;
        assert!(intake.remote_media.iter().all(fits));
    }
    let shape = |it: &Intake| {
        (it.refused.is_some(), it.event.message_type.clone(), it.event.source.chat_type.clone(), it.addressed)
    };
    outcome((taken.len().min(4), taken.first().map(shape)))
}

fn seeds() -> Vec<Vec<u8>> {
    let of = |message: &str| {
        format!(
            "event:receive\ndata:{{\"envelope\":{{\"sourceNumber\":\"+15550002\",\"sourceUuid\":\"0b6d7c9e\",\"sourceName\":\"Ann\",\"timestamp\":9,{message}}},\"account\":\"{ME}\"}}\n\n"
        )
        .into_bytes()
    };
    vec![
        b":\n:\n".to_vec(),
        of(r#""dataMessage":{"timestamp":9,"message":"hi"}"#),
        of(
            r#""dataMessage":{"message":"\uFFFC x","mentions":[{"number":"+15550001","start":0,"length":1}],"groupInfo":{"groupId":"R3I=","groupName":"g"}}"#,
        ),
        of(
            r#""dataMessage":{"quote":{"id":3,"authorNumber":"+15550001","text":"q"},"attachments":[{"id":"a","contentType":"audio/aac","size":3}]}"#,
        ),
        of(r#""editMessage":{"targetSentTimestamp":5,"dataMessage":{"timestamp":9,"message":"b"}}"#),
        of(r#""dataMessage":{"sticker":{"emoji":"x"}}"#),
        format!("data:{{\"exception\":{{\"message\":\"m\"}},\"account\":\"{ME}\"}}\n\n").into_bytes(),
    ]
}

#[test]
fn the_stream_of_signal_cli() {
    let (target, settings) = (Target { name: "signal", run: stream, seeds }, Settings::from_env());
    println!("fuzz {}: seed {}, {} s", target.name, settings.seed, settings.time.as_secs());
    match fuzz(&target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}
