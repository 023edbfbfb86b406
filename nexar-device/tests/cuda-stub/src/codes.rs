//! The result codes of the driver.

use std::ffi::{CStr, c_int};

/// A `CUresult` that is not success.
pub(crate) type Code = c_int;

macro_rules! codes {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        $(#[allow(dead_code, reason = "some are only for tests to give")]
        pub(crate) const $constant: Code = $code;)*

        /// The name of a code, and what it means.
        pub(crate) fn describe(code: Code) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                $($code => Some(($name, $text)),)*
                _ => None,
            }
        }
    };
}

codes! {
    SUCCESS = 0, c"CUDA_SUCCESS", c"no error";
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"an argument is not allowed";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"not enough memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"cuInit has not been called";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"there is no device";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"there is no such device";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"no context, or not a context";
    ECC_UNCORRECTABLE = 214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"memory of the device is damaged";
    OPERATING_SYSTEM = 304, c"CUDA_ERROR_OPERATING_SYSTEM", c"the system refused a call";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"not a handle, or one of another context";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"nothing is there";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"work is under way";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"the device accessed an illegal address";
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"a kernel ran for too long";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"the context is gone";
    ASSERT = 710, c"CUDA_ERROR_ASSERT", c"an assertion failed on the device";
    HOST_MEMORY_ALREADY_REGISTERED = 712,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"the memory is pinned already";
    HOST_MEMORY_NOT_REGISTERED = 713,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"the memory was not registered";
    HARDWARE_STACK_ERROR = 714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"the device's stack broke";
    ILLEGAL_INSTRUCTION = 715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction ran";
    MISALIGNED_ADDRESS = 716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"an access was not aligned";
    INVALID_ADDRESS_SPACE = 717,
        c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"an access to a wrong address space";
    INVALID_PC = 718, c"CUDA_ERROR_INVALID_PC", c"the program counter left the program";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"a kernel failed";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"this is not supported";
    SYSTEM_DRIVER_MISMATCH = 803,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"library and kernel module do not match";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"an unknown error";
}

/// Whether the code breaks the context in which it occurs: all that is called in it afterwards gives it again.
pub(crate) fn is_sticky(code: Code) -> bool {
    matches!(
        code,
        ECC_UNCORRECTABLE
            | ILLEGAL_ADDRESS
            | LAUNCH_TIMEOUT
            | ASSERT
            | HARDWARE_STACK_ERROR
            | ILLEGAL_INSTRUCTION
            | MISALIGNED_ADDRESS
            | INVALID_ADDRESS_SPACE
            | INVALID_PC
            | LAUNCH_FAILED
    )
}
