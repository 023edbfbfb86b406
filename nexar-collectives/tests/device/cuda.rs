//! CUDA, on the stub driver.
