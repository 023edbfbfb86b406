//! An in-memory network for tests (to come).
