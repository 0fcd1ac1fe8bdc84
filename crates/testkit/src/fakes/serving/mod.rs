//! What the servers around the fakes have in common.

pub(in crate::fakes) mod call;
pub(in crate::fakes) mod clock;
pub(in crate::fakes) mod faults;
pub(in crate::fakes) mod http;
pub(in crate::fakes) mod multipart;
