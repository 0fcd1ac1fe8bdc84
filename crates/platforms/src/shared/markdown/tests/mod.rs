//! Tests of the renderer: exact outputs, properties of random inputs, and judges that know nothing of the renderer.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod fuzz;
mod goldens;
mod html_judge;
mod judge;
mod markdown_v2_judge;
mod properties;
