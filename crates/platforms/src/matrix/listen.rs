//! The listener of a bot: polls if it is a plain account, and does its errands beside that.

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Change, Ended, Inlet};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Client, Fault};
use super::errand::{ATTEMPTS_MAX, Errand, Place, pause};
use super::gather::Gathered;
use super::inspect::greet;
use super::patience::Patience;
use super::sync::{News, next_news};

/// Events that are stored in one commit.
const BATCH: usize = 64;

/// Why a listener ends.
pub(super) enum Stop {
    Fault(Fault),
    Store(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// An errand, how often it was tried, and the token up to which it reads.
struct Try {
    errand: Errand,
    until: String,
    attempts: u32,
    /// Those that reached the homeserver.
    counted: u32,
}

impl Try {
    fn new(errand: Errand, place: &mut Place) -> Self {
        place.skipped.remove(errand.room_id());
        Self { errand, until: place.since.clone().unwrap_or_default(), attempts: 0, counted: 0 }
    }
}

type Tried = (Try, Result<Vec<Errand>, Stop>);
type Running<'a> = FuturesUnordered<BoxFuture<'a, Tried>>;

impl Homeservers {
    pub(super) async fn listen_as(&self, account: &Account<'_>, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let mut client = Client::new(&*self.outcall, account);
        client.is_patient = true;
        if let Err(why) = self.clash_with_known(account.bot) {
            return Ended::Misconfigured(why);
        }
        if let Err(fault) = greet(&client).await {
            return ended(fault);
        }
        match self.run(&client, Place::read(cursor), inlet).await {
            Stop::Fault(fault) => ended(fault),
            Stop::Store(why) => Ended::Lost(format!("the events were not stored: {why}")),
        }
    }

    /// Goes on until something fails.
    async fn run(&self, client: &Client<'_>, mut place: Place, inlet: &dyn Inlet) -> Stop {
        let mut handed = self.errands.open(&client.account.bot.id);
        let mut running = Running::new();
        let left: Vec<Try> = place.errands.clone().into_iter().map(|errand| Try::new(errand, &mut place)).collect();
        running.extend(left.into_iter().map(|this| self.attempt(client, inlet, this)));
        let mut polling = poll(client, &place);
        loop {
            let done = tokio::select! {
                biased;
                Some(tried) = running.next() => self.tried(&mut place, tried, inlet).await,
                Some((errand, told)) = handed.recv() => {
                    let is_new = place.add(&errand);
                    let saved = save(&place, inlet).await;
                    if saved.is_ok() {
                        let _ = told.send(()); // who asked may be gone
                    }
                    saved.map(|()| if is_new { vec![Try::new(errand, &mut place)] } else { Vec::new() })
                }
                news = &mut polling => {
                    let taken = match news {
                        Ok(news) => self.take_news(client, &mut place, news, inlet).await,
                        Err(fault) => Err(fault.into()),
                    };
                    polling = poll(client, &place);
                    taken.map(|errands| errands.into_iter().map(|errand| Try::new(errand, &mut place)).collect())
                }
            };
            match done {
                Ok(next) => running.extend(next.into_iter().map(|next| self.attempt(client, inlet, next))),
                Err(stop) => return stop,
            }
        }
    }

    /// One attempt, after the pause that it needs.
    fn attempt<'a>(&'a self, client: &'a Client<'a>, inlet: &'a dyn Inlet, mut this: Try) -> BoxFuture<'a, Tried> {
        Box::pin(async move {
            if this.attempts > 0 {
                tokio::time::sleep(pause(this.attempts)).await;
            }
            this.attempts += 1;
            let patience = if this.counted + 1 < ATTEMPTS_MAX { Patience::later() } else { Patience::last() };
            let mut gathered = Gathered::default();
            let done = self.try_errand(client, &this.errand, &this.until, patience, &mut gathered).await;
            let done = match done {
                Ok(next) => store(gathered, inlet).await.map(|more| next.into_iter().chain(more).collect()),
                Err(fault) => Err(fault.into()),
            };
            (this, done)
        })
    }

    /// What follows from an attempt.
    async fn tried(&self, place: &mut Place, tried: Tried, inlet: &dyn Inlet) -> Result<Vec<Try>, Stop> {
        let (mut this, done) = tried;
        let fault = match done {
            Ok(next) => {
                place.remove(&this.errand);
                let more = unread_since(place, &this);
                let next: Vec<Errand> = next.into_iter().chain(more).filter(|it| place.add(it)).collect();
                save(place, inlet).await?;
                return Ok(next.into_iter().map(|errand| Try::new(errand, place)).collect());
            }
            Err(Stop::Fault(fault)) if !fault.is_token() => fault,
            Err(stop) => return Err(stop),
        };
        if !fault.is_elsewhere() {
            this.counted += 1;
        }
        if this.counted < ATTEMPTS_MAX {
            tracing::warn!(%fault, errand = ?this.errand, attempts = this.attempts, "an errand failed; trying again");
            return Ok(vec![this]);
        }
        inlet.gap(this.errand.loss(&fault, self.env.now_ms()));
        place.remove(&this.errand);
        save(place, inlet).await?;
        Ok(Vec::new())
    }
}

fn poll<'a>(client: &'a Client<'a>, place: &Place) -> BoxFuture<'a, Result<News, Fault>> {
    match client.account.mode {
        Mode::Sync => Box::pin(next_news(client, place.since.clone())),
        Mode::AppService => Box::pin(std::future::pending()),
    }
}

/// A room that was read up to a token has more since then if polls left it out in the meantime.
fn unread_since(place: &Place, this: &Try) -> Option<Errand> {
    let Errand::Behind { room_id, .. } = &this.errand else { return None };
    let is_more = place.skipped.contains(room_id);
    is_more.then(|| Errand::Behind { room_id: room_id.clone(), since: this.until.clone() })
}

fn ended(fault: Fault) -> Ended {
    match fault.is_token() {
        true => {
            Ended::Misconfigured(format!("{fault}; get a new token from the homeserver and add the bot again with it"))
        }
        false => Ended::Lost(fault.to_string()),
    }
}

pub(super) async fn save(place: &Place, inlet: &dyn Inlet) -> Result<(), Stop> {
    inlet.save_cursor(place.cursor()).await.map_err(|error| Stop::Store(error.to_string()))
}

/// A room that moves takes its routes with it, so what was said in the old one is stored first. Gives back the errands.
pub(super) async fn store(gathered: Gathered, inlet: &dyn Inlet) -> Result<Vec<Errand>, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Store(error.to_string());
    let is_move = |change: &Change| matches!(change, Change::ChatMoved { .. });
    let (moves, others): (Vec<Change>, Vec<Change>) = gathered.changes.into_iter().partition(is_move);
    for change in others {
        inlet.changed(change).await.map_err(|error| failed(&error))?;
    }
    let mut rest = gathered.intakes;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(BATCH));
        inlet.take(rest).await.map_err(|error| failed(&error))?;
        rest = later;
    }
    for change in moves {
        inlet.changed(change).await.map_err(|error| failed(&error))?;
    }
    for gap in gathered.gaps {
        inlet.gap(gap);
    }
    Ok(gathered.errands)
}
