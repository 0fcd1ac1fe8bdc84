//! `WeCom`, which people in China know as Enterprise `WeChat`. It has two ways in, and each is a platform of its own:
//!
//! * [`app`]: a self-built app of a company, by HTTP. On the wire it is `wecom_callback`.
//! * [`robot`]: an intelligent robot, by a socket that this server dials. On the wire it is `wecom`.

pub mod app;
pub mod crypt;
mod errors;
pub mod robot;
