//! A streamed reply that arrives in arbitrary pieces.
#![no_main]

#[allow(dead_code, reason = "each target uses a part")]
#[path = "../../nexar-core/tests/decoders/mod.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoders::rpc_items(data));
