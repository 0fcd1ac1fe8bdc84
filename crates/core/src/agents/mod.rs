//! Agents that speak to agents: addresses, who is there to hear, and who waits for an answer. Pure or in
//! memory; what must last is in the store.

pub mod address;
pub mod attendance;
pub mod under_way;
pub mod waiters;
