//! Tests of the renderer.
