//! Carries out a task of a listener.

use std::collections::BTreeSet;

use frontdesk_core::port::platform::Change;

use super::Homeservers;
use super::account::{Mode, server_of};
use super::client::{Client, Fault};
use super::deadline::Deadline;
use super::gather::{Gathered, Origin};
use super::inspect::token_checked;
use super::room_state::{predecessor, successor};
use super::task::Task;

impl Homeservers {
    /// One attempt. Another task may come out of it. `until` is the token of the latest poll.
    pub(super) async fn try_task(
        &self,
        client: &Client<'_>,
        task: &Task,
        until: &str,
        deadline: Deadline,
        into: &mut Gathered,
    ) -> Result<Option<Task>, Fault> {
        match task {
            Task::Invited { room_id, inviter, is_direct } => {
                let is_in = deadline.must(self.invited(client, room_id, inviter, *is_direct)).await?;
                if is_in {
                    // The members of an upgraded room that is not public are invited to the new one.
                    into.changes.extend(deadline.must(moved_from(client, room_id)).await?);
                }
                let is_pushed = client.account.mode == Mode::AppService;
                Ok((is_in && is_pushed).then(|| Task::Earlier { room_id: room_id.clone() }))
            }
            Task::Earlier { room_id } => {
                let events = self.earlier(client, room_id, deadline, into).await?;
                self.gather(client, room_id, &events, Origin::Asked, deadline, into).await?;
                Ok(None)
            }
            Task::Moved { room_id, to, sender } => {
                deadline.must(self.follow(client, room_id, to, sender, into)).await?;
                Ok(None)
            }
            Task::Tell { room_id } => {
                deadline.must(self.send_encryption_notice(client, room_id)).await?;
                Ok(None)
            }
            Task::Behind { room_id, since } => {
                let events = self.missed(client, room_id, since, until, deadline, into).await?;
                self.gather(client, room_id, &events, Origin::Asked, deadline, into).await?;
                Ok(None)
            }
        }
    }

    /// The room was upgraded: its users continue in another one. The new room must name the old one as its predecessor,
    /// so that the rights of a room cannot be passed to any other one.
    async fn follow(
        &self,
        client: &Client<'_>,
        room_id: &str,
        to: &str,
        sender: &str,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let bot = &client.account.bot.id;
        if successor(client, room_id).await?.as_deref() != Some(to) {
            tracing::warn!(
                bot = bot.as_str(),
                room_id,
                to,
                sender,
                "a room upgrade that the room does not state was ignored"
            );
            return Ok(());
        }
        // Our homeserver may know no user of the new room, so the servers to ask are named.
        let via: BTreeSet<&str> = [to, sender, room_id].into_iter().filter_map(server_of).collect();
        match token_checked(client, client.join(to, &via).await).await {
            Ok(_) => {}
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(fault) => {
                into.gaps.push(
                    Task::Moved { room_id: room_id.into(), to: to.into(), sender: sender.into() }
                        .loss(&fault, self.env.now_ms()),
                );
                return Ok(());
            }
        }
        into.changes.extend(moved_from(client, to).await?);
        Ok(())
    }
}

/// The room replaces another one, and both say so.
async fn moved_from(client: &Client<'_>, room_id: &str) -> Result<Option<Change>, Fault> {
    let Some(from) = predecessor(client, room_id).await? else { return Ok(None) };
    let is_stated = successor(client, &from).await?.as_deref() == Some(room_id);
    Ok(is_stated.then(|| Change::ChatMoved { from: from.into(), to: room_id.into() }))
}
