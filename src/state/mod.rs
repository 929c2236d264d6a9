//! Desired and observed pods, the objects they refer to, and events: plain data.

pub(crate) mod objects;
pub(crate) mod pods;
