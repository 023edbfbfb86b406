//! A simulated device for tests, and a conformance suite for adapters.
//!
//! In the feature `testing`, which belongs among the `dev-dependencies`:
//!
//! ```toml
//! [dev-dependencies]
//! nexar-device = { path = "../nexar/nexar-device", features = ["testing"] }
//! ```
//!
//! [`MemoryDevice`] stands in for an accelerator in tests of code that works on device memory.
//!
//! Whoever writes a [`DeviceAdapter`](crate::DeviceAdapter) implements [`Harness`] for it and calls
//! [`adapter_conformance!`](crate::adapter_conformance), which emits one `#[test]` for each case. One file with both
//! is all that it takes:
//!
//! ```
//! use nexar_device::{
//!     MemorySpace,
//!     testing::{Harness, MemoryDevice},
//! };
//!
//! struct Simulated;
//!
//! impl Harness for Simulated {
//!     type Adapter = MemoryDevice;
//!
//!     fn adapter(&self) -> MemoryDevice {
//!         MemoryDevice::builder().devices(2).build()
//!     }
//!
//!     fn spaces(&self) -> Vec<MemorySpace> {
//!         vec![MemorySpace::Device(0), MemorySpace::Device(1)]
//!     }
//!
//!     // What it can do beyond that gives cases more to look at.
//!     fn pause(&self, device: &MemoryDevice) -> Option<Box<dyn std::any::Any + Send>> {
//!         Some(Box::new(device.pause()))
//!     }
//! }
//!
//! nexar_device::adapter_conformance!(Simulated);
//! ```
//!
//! Every case runs once in each of the spaces, with an adapter of its own, on a thread without any async runtime: the
//! traits ask for none. A case that fails panics, as tests do. Nothing depends on how fast a device is: the time in
//! [`Limits`] only turns a hang into a failure.
//!
//! # What it covers
//!
//! | group | the adapter |
//! |---|---|
//! | memory | says what it can do and sticks to it; knows the space of its addresses, and refuses others; gives memory that is zero, aligned and nobody else's, of no bytes, too; refuses lengths that no memory has; frees what is dropped |
//! | host views | gives views of the memory itself that keep it alive, where it gives any |
//! | copies | copies every length around that of a slot between every offset, and touches nothing else; refuses what lies outside the region, the slot or the numbers, and frees the slot |
//! | fill, reductions | keeps both in the order of copies to the device, and says so where it has none |
//! | slots | has as many and as long ones as it says; gives every queue its first one at once; lets waiting queues take turns, wakes whoever polled last, and loses no slot and no wake-up when queues are dropped |
//! | order | keeps that of copies to the device; puts a queue's copies after the work of its stream and after the copies of queues that were dropped; opens without waiting |
//! | cancellation | carries out what is dropped; keeps region and slot until a copy is over, and no longer; survives operations and buffers that are dropped at each point |
//! | concurrency | moves the right bytes in both directions, by many queues on one thread and on several |
//! | buffers | carries [`DeviceBuffer`](crate::DeviceBuffer)s of every type, split and whole; bools are valid whatever the memory holds |
//!
//! `cargo test -- --list` has the names of the cases, and so has [`CASES`] at run time; `cargo test turns` runs those
//! with this word in the name. All begin by allocating and opening a byte; `copies_out_of_every_length` and
//! `copies_in_of_every_length` are the next to make pass.
//!
//! # What it does not cover, and how to skip
//!
//! Where an adapter or its harness lacks what a case needs, the case prints one line that says that it was skipped, for
//! each space. A case that cannot apply to an adapter is skipped with a reason by [`Harness::skip`], which is
//! printed, too. The more of [`Harness`] is given, the stricter the cases are: without [`Harness::pause`], a copy that
//! is over at once hides what would go wrong while it is under way.
//!
//! Speed, devices that fail, and memory that runs out are for tests of the adapter itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[doc(hidden)]
pub mod cases;
mod harness;
mod memory;
mod tools;

pub use harness::{Harness, Limits, Work};
pub use memory::{
    Held, MemoryDevice, MemoryDeviceBuilder, MemoryQueue, Paused, Slot, Transfer, Usage,
};

use crate::region::MemorySpace;
use std::{future::Future, io::Write, sync::Arc};
use tools::{Case, block_on};

/// What came of a case that did not fail.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    Done,
    /// The adapter or the harness lacks what it takes.
    Skipped(&'static str),
}

/// Runs one case in all spaces.
#[doc(hidden)]
pub fn run<H: Harness, F: Future<Output = Outcome>>(
    name: &str,
    harness: H,
    case: impl Fn(Case<H>) -> F,
) {
    if let Some(reason) = harness.skip(name) {
        return print_skipped(name, None, &reason);
    }
    let harness = Arc::new(harness);
    let limit = harness.limits().case_time;
    for space in harness.spaces() {
        eprintln!("{name} in {space}");
        match block_on(case(Case::new(&harness, space)), limit) {
            Some(Outcome::Done) => {}
            Some(Outcome::Skipped(reason)) => print_skipped(name, Some(space), reason),
            None => panic!("{name} is not done after {limit:?} in {space}"),
        }
    }
}

/// Prints a line that is seen although the test succeeds: the output of the macros would be captured.
fn print_skipped(name: &str, space: Option<MemorySpace>, reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().filter(|test| test.ends_with(name));
    let space = space
        .map(|space| format!(" in {space}"))
        .unwrap_or_default();
    let line = format!("{} skipped{space}: {reason}\n", test.unwrap_or(name));
    // Nobody may be there to read it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Emits the conformance suite for an adapter: one `#[test]` for each case.
///
/// The argument is an expression of a type that implements [`Harness`](crate::testing::Harness); each test
/// evaluates it once.
#[macro_export]
macro_rules! adapter_conformance {
    ($harness:expr) => {
        $crate::__adapter_cases! { __adapter_tests, $harness }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __adapter_tests {
    ([$harness:expr] $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testing::run(stringify!($case), $harness, $crate::testing::cases::$case);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __adapter_cases {
    ($emit:ident, $($arguments:tt)*) => {
        $crate::$emit! {
            [$($arguments)*]
            // Memory.
            capabilities_do_not_change
            addresses_lie_in_their_space
            an_unknown_space_is_an_error
            new_memory_is_zero
            memory_is_aligned
            memory_of_no_bytes
            a_length_that_no_memory_has_is_an_error
            regions_do_not_overlap
            dropped_memory_is_free
            a_host_view_is_the_memory
            // Copies.
            copies_out_of_every_length
            copies_in_of_every_length
            copies_of_a_part
            out_of_range_is_an_error_and_frees_the_slot
            fill_sets_the_bytes
            reductions_on_the_device
            reductions_are_those_of_the_host
            // Slots.
            slots_are_as_long_and_as_many_as_they_say
            the_first_slot_comes_at_once
            slots_are_lent_again_and_again
            the_last_task_that_polled_is_woken
            a_queue_that_has_given_its_slots_back_is_woken
            waiting_queues_take_turns
            a_dropped_queue_passes_its_turn_on
            // Order.
            copies_in_keep_their_order
            a_complete_copy_is_there_for_the_next
            copies_out_come_after_the_work_of_the_stream
            copies_in_come_after_the_work_of_the_stream
            copies_come_after_those_of_dropped_queues
            // Cancellation.
            a_dropped_transfer_is_carried_out
            a_dropped_queue_keeps_the_region_until_its_copies_are_over
            a_dropped_transfer_keeps_its_slot_until_it_is_over
            a_queue_that_is_dropped_unused_frees_the_region
            an_operation_that_is_dropped_anywhere_loses_nothing
            a_dropped_buffer_keeps_the_memory_until_its_copies_are_over
            // Concurrency.
            opposite_directions_at_once
            many_queues_on_one_thread
            parts_of_one_region_by_many_threads
            buffers_by_many_threads
            // Buffers.
            buffers_of_every_type
            bools_are_valid_whatever_the_memory_holds
            new_buffers_are_zero
            buffers_are_split
            buffers_check_lengths
        }
    };
}

/// The names of all cases.
pub const CASES: &[&str] = crate::__adapter_cases! { __adapter_case_names, };

#[doc(hidden)]
#[macro_export]
macro_rules! __adapter_case_names {
    ([] $($case:ident)*) => { &[$(stringify!($case)),*] };
}

/// Runs the case of this name like its test; panics if it fails, or if there is no such case.
///
/// For the tests of a suite or of a wrapper; adapters use [`adapter_conformance!`](crate::adapter_conformance).
pub fn run_case<H: Harness>(name: &str, harness: H) {
    crate::__adapter_cases! { __adapter_run_case, name, harness }
}

#[doc(hidden)]
#[macro_export]
macro_rules! __adapter_run_case {
    ([$name:ident, $harness:ident] $($case:ident)*) => {
        match $name {
            $(stringify!($case) => run($name, $harness, cases::$case),)*
            _ => panic!("no case is called {}", $name),
        }
    };
}
