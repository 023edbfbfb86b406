//! Empty
