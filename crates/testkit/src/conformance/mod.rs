//! What every implementation of the contracts must do, ours and an adopter's. Each function panics with the
//! rule that was broken.

pub mod agent_connector;
