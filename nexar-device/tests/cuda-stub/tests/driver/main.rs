//! The stub behaves like a driver, seen through its shared library.

#![cfg(unix)]

mod contexts;
mod copies;
mod events;
mod faults;
mod loading;
mod memory;
mod streams;
mod support;
