//! What a test sets and reads: settings, counters, faults.

use crate::{
    abi,
    codes::Code,
    context,
    driver::{State, lock, wake_worker},
};
use std::{
    collections::HashMap,
    ffi::{CStr, c_char, c_int},
    time::Duration,
};

/// What can be set.
pub(crate) const SETTINGS: &[&str] = &[
    "devices",
    "memory",
    "hold",
    "bandwidth_out",
    "bandwidth_in",
    "delay_us",
    "delay_max_us",
    "seed",
];

/// What is counted, beside calls.
pub(crate) const COUNTERS: &[&str] = &[
    "synchronizing_calls",
    "pageable_copies",
    "copies_out",
    "copies_in",
    "bytes_out",
    "bytes_in",
    "live_device_buffers",
    "live_device_bytes",
    "live_pinned",
    "live_pinned_bytes",
    "live_streams",
    "live_events",
    "retained_contexts",
    "write_combined",
    "illegal_accesses",
    "freed_in_use",
];

/// A counter of calls is this and the name of the call.
pub(crate) const CALLS_PREFIX: &str = "calls:";

/// Calls that wait for the device, or may.
const SYNCHRONIZING: &[&str] = &[
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
];

pub(crate) struct Settings {
    pub(crate) devices: u64,
    /// Bytes of each device.
    pub(crate) memory: u64,
    /// If not 0, workers do nothing.
    pub(crate) hold: u64,
    /// Bytes per second, 0 for no limit.
    pub(crate) bandwidth_out: u64,
    pub(crate) bandwidth_in: u64,
    delay_us: u64,
    delay_max_us: u64,
    random: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 2,
            memory: 16 << 30,
            hold: 0,
            bandwidth_out: 0,
            bandwidth_in: 0,
            delay_us: 0,
            delay_max_us: 0,
            random: 1,
        }
    }
}

impl Settings {
    fn set(&mut self, key: &str, value: u64) -> bool {
        let setting = match key {
            "devices" => &mut self.devices,
            "memory" => &mut self.memory,
            "hold" => &mut self.hold,
            "bandwidth_out" => &mut self.bandwidth_out,
            "bandwidth_in" => &mut self.bandwidth_in,
            "delay_us" => &mut self.delay_us,
            "delay_max_us" => &mut self.delay_max_us,
            "seed" => &mut self.random,
            _ => return false,
        };
        *setting = value;
        true
    }

    /// How long the next copy takes beside its transfer.
    pub(crate) fn delay(&mut self) -> Duration {
        let more = match self.delay_max_us {
            0 => 0,
            u64::MAX => self.next_random(),
            most => self.next_random() % (most + 1),
        };
        Duration::from_micros(self.delay_us.saturating_add(more))
    }

    /// From 0 to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next_random() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Splitmix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    values: HashMap<&'static str, u64>,
    calls: HashMap<&'static str, u64>,
}

impl Counters {
    pub(crate) fn add(&mut self, counter: &'static str, count: u64) {
        *self.values.entry(counter).or_default() += count;
    }

    pub(crate) fn subtract(&mut self, counter: &'static str, count: u64) {
        let value = self.values.entry(counter).or_default();
        *value = value.saturating_sub(count);
    }

    pub(crate) fn count_call(&mut self, call: &'static str) {
        *self.calls.entry(call).or_default() += 1;
        if SYNCHRONIZING.contains(&call) {
            self.add("synchronizing_calls", 1);
        }
    }
}

fn counter(state: &State, key: &str) -> Option<u64> {
    if key == "retained_contexts" {
        return Some(context::retained(state));
    }
    let counters = &state.counters;
    let (map, name) = match key.strip_prefix(CALLS_PREFIX) {
        Some(call) if abi::CALLS.contains(&call) => (&counters.calls, call),
        None if COUNTERS.contains(&key) => (&counters.values, key),
        _ => return None,
    };
    Some(map.get(name).copied().unwrap_or(0))
}

/// Calls and copies that are to fail.
#[derive(Default)]
pub(crate) struct Faults {
    calls: Vec<Fault>,
    copies: Vec<Code>,
}

struct Fault {
    call: &'static str,
    /// Calls up to the one that fails.
    left: u64,
    code: Code,
}

impl Faults {
    /// The code with which this call fails.
    pub(crate) fn strike(&mut self, call: &str) -> Option<Code> {
        let own = self.calls.iter_mut().filter(|fault| fault.call == call);
        own.for_each(|fault| fault.left = fault.left.saturating_sub(1));
        let mut faults = self.calls.iter();
        let due = faults.position(|fault| fault.call == call && fault.left == 0)?;
        Some(self.calls.remove(due).code)
    }

    /// The code with which this copy or fill breaks its context.
    pub(crate) fn strike_async(&mut self) -> Option<Code> {
        match self.copies.is_empty() {
            true => None,
            false => Some(self.copies.remove(0)),
        }
    }
}

const OK: c_int = 0;
const UNKNOWN_NAME: c_int = 1;

/// # Safety
///
/// `name` points to a string.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().unwrap_or_default()
}

/// # Safety
///
/// `key` points to a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn nexar_stub_set(key: *const c_char, value: u64) -> c_int {
    let mut state = lock();
    // SAFETY: the caller's.
    if !state.settings.set(unsafe { text(key) }, value) {
        return UNKNOWN_NAME;
    }
    // They may have held back.
    if state.ops.next_due().is_some() {
        wake_worker(&mut state);
    }
    OK
}

/// # Safety
///
/// `key` points to a string, `value` to a place for the counter.
#[unsafe(no_mangle)]
unsafe extern "C" fn nexar_stub_counter(key: *const c_char, value: *mut u64) -> c_int {
    // SAFETY: the caller's.
    match counter(&lock(), unsafe { text(key) }) {
        Some(count) => {
            // SAFETY: the caller's.
            unsafe { value.write(count) };
            OK
        }
        None => UNKNOWN_NAME,
    }
}

/// # Safety
///
/// `call` points to a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn nexar_stub_fail(call: *const c_char, nth: u64, code: c_int) -> c_int {
    // SAFETY: the caller's.
    let call = unsafe { text(call) };
    let Some(call) = abi::CALLS.iter().find(|known| **known == call) else {
        return UNKNOWN_NAME;
    };
    let left = nth;
    lock().faults.calls.push(Fault { call, left, code });
    OK
}

#[unsafe(no_mangle)]
extern "C" fn nexar_stub_fail_async(code: c_int) {
    lock().faults.copies.push(code);
}
