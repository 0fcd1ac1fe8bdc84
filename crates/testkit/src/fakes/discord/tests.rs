//! The fake as a whole, without sockets.
