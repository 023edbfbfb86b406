//! The stub behaves like a driver, seen through its shared library.

mod copies;
mod support;
