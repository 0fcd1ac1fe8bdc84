//! Fake servers of vendors. Client libraries that others wrote drive them too (`tests/vendors`), so that they cannot drift
//! to fit our own code.

pub mod discord;
pub mod feishu;
mod serving;
pub mod slack;
pub mod telegram;
pub mod twilio;
pub mod wecom;
pub mod whatsapp;

pub use serving::faults::Fault;
