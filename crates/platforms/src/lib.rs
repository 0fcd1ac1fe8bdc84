//! One folder a platform. A platform verifies, strips credentials, normalizes and acts; it decides
//! nothing about who may have what, and never sees another platform.

pub mod chat;
