//! Answers that may be large count against the budget of their tenant until they were read.

use axum::Json as Reply;
use axum::body::HttpBody as _;
use axum::response::{IntoResponse as _, Response};
use frontdesk_wire::agents::{Class, Fault};
use frontdesk_wire::{Code, TenantId};
use serde::Serialize;

use super::error::Refusal;
use super::flow::{Budgets, PAGE_KIB, Spent, holding, shrunk};

/// Budget in KiB for a response with one skill or one data row.
pub(crate) const ROW_KIB: usize = 2 * PAGE_KIB;
/// Budget for a list. Few lists are larger, so most queries of a tenant do not wait for each other.
pub(crate) const ROWS_KIB: usize = 4 * PAGE_KIB;
/// Answers of one tenant that are made at the same time, if their size is known only afterwards. Each of them may exceed
/// its budget until then.
const MAKING_MAX: usize = 4;

/// The budget of each tenant, in KiB.
pub struct Answers {
    unread: Budgets,
    making: Budgets,
}

/// The tenant has too many answers that are being made or not read, and that did not change while this one waited.
pub(crate) struct Unread;

impl Unread {
    const TEXT: &str =
        "this tenant has too many responses that are being made or are unread; read them, then try again";
}

impl From<Unread> for Refusal {
    fn from(_: Unread) -> Self {
        Self::new(Code::RateLimited, Unread::TEXT)
    }
}

impl From<Unread> for Fault {
    fn from(_: Unread) -> Self {
        Self::new(Class::RateLimitedError, Unread::TEXT)
    }
}

/// For an answer that is being made.
pub(crate) struct Reserved {
    spent: Spent,
    _making: Spent,
}

impl Answers {
    pub(crate) fn new(each_kib: usize) -> Self {
        Self { unread: Budgets::new(each_kib), making: Budgets::new(MAKING_MAX) }
    }

    /// For an answer that takes no more than that.
    pub(crate) async fn take(&self, tenant: &TenantId, kib: usize) -> Result<Spent, Unread> {
        self.unread.take(tenant, kib).await.ok_or(Unread)
    }

    /// For an answer whose size is not known. `kib`: what nearly all answers of its kind need.
    pub(crate) async fn reserve(&self, tenant: &TenantId, kib: usize) -> Result<Reserved, Unread> {
        // In this order: one that is being made may need more, which those that wait for their turn must not hold.
        let making = self.making.take(tenant, 1).await.ok_or(Unread)?;
        let spent = self.unread.take(tenant, kib).await.ok_or(Unread)?;
        Ok(Reserved { spent, _making: making })
    }

    /// The budget for the answer that was made.
    pub(crate) async fn fit(&self, tenant: &TenantId, reserved: Reserved, bytes: usize) -> Result<Spent, Unread> {
        let Reserved { mut spent, _making } = reserved;
        let more = (bytes / 1024 + 1).saturating_sub(spent.num_permits());
        if more > 0 {
            let more = self.unread.at_most(more, &spent);
            spent.merge(self.unread.take(tenant, more).await.ok_or(Unread)?);
        }
        Ok(shrunk(spent, bytes))
    }

    /// Makes an answer once there is budget for it. `kib` as in [`Self::reserve`].
    pub(crate) async fn answer<T: Serialize, E: From<Unread>>(
        &self,
        tenant: &TenantId,
        kib: usize,
        made: impl Future<Output = Result<T, E>>,
    ) -> Result<Response, E> {
        let reserved = self.reserve(tenant, kib).await?;
        let response = Reply(made.await?).into_response();
        let bytes = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
        Ok(holding(response, self.fit(tenant, reserved, bytes).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    #[tokio::test(start_paused = true)]
    async fn answers_larger_than_their_share_are_made_a_few_at_a_time() {
        let (answers, tenant) = (Answers::new(64), TenantId::from("a"));
        let made = AtomicUsize::new(0);
        // Each reserves 1 KiB and takes 48, so the second one waits for the first, with what it made.
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(answers.answer(&tenant, 1, async {
                made.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Unread>("x".repeat(48 << 10))
            }));
        }
        let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
        let mut unread = Vec::new();
        for one in &mut all {
            if let Poll::Ready(response) = futures_util::poll!(one.as_mut()) {
                unread.push(response);
            }
        }
        assert_eq!(unread.len(), 1);
        assert!(made.load(Ordering::Relaxed) <= 1 + MAKING_MAX, "{made:?} were made");
        let other = TenantId::from("b");
        assert!(answers.answer(&other, 1, async { Ok::<_, Unread>("y") }).await.is_ok(), "other tenants do not wait");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_finds_no_budget_is_dropped() {
        let (answers, tenant) = (Answers::new(8), TenantId::from("a"));
        let unread = answers.take(&tenant, 6).await.ok().unwrap();
        let large = answers.answer(&tenant, 1, async { Ok::<_, Unread>("x".repeat(6 << 10)) }).await;
        assert!(large.is_err());
        assert!(answers.answer(&tenant, 1, async { Ok::<_, Unread>("x") }).await.is_ok());
        drop(unread);
        assert!(answers.answer(&tenant, 1, async { Ok::<_, Unread>("x".repeat(6 << 10)) }).await.is_ok());
    }
}
