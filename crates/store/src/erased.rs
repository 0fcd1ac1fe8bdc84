//! Type-erased results, so that passing work to a thread and waiting for it is compiled once, not once per type.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use frontdesk_core::port::store::{StoreError, Stored};

pub(crate) type Erased = Box<dyn Any + Send>;

pub(crate) fn erase<T: Send + 'static>(value: T) -> Erased {
    Box::new(value)
}

/// Restores the type of an erased value.
pub(crate) fn typed<T: 'static>(value: Erased) -> Result<T, StoreError> {
    value.downcast().map(|value| *value).map_err(|_| {
        StoreError::Unknown("an operation of the store returned a result of another type (a bug in Frontdesk)".into())
    })
}

/// Converts a future of an erased value into one of its type.
pub(crate) fn answer<T: Send + 'static>(erased: Stored<'_, Erased>) -> Stored<'_, T> {
    Box::pin(Answer { erased, _type: PhantomData })
}

struct Answer<'a, T> {
    erased: Stored<'a, Erased>,
    _type: PhantomData<fn() -> T>,
}

impl<T: 'static> Future for Answer<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(self.erased.as_mut().poll(context)).and_then(typed))
    }
}
