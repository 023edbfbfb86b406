//! The stub as tests see it.

use crate::control::{CALLS_PREFIX, COUNTERS, SETTINGS};
use libloading::Library;
use std::{
    env,
    ffi::{CString, c_char, c_int},
    fmt, fs, io,
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// A driver of its own, with a state of its own; see the [crate](crate).
///
/// The file at [`path`](Self::path) is deleted when this is dropped. The library itself stays loaded until
/// the process ends, since threads of it may still run; idle ones end after a second.
pub struct Stub {
    path: PathBuf,
    library: ManuallyDrop<Library>,
}

impl Stub {
    /// Makes a driver: a private copy of the library, which is loaded.
    ///
    /// # Panics
    ///
    /// If the library has not been built beside the running test, or cannot be copied or loaded.
    #[allow(clippy::new_without_default, reason = "it makes a file and loads it")]
    pub fn new() -> Stub {
        let path = copy_library().unwrap_or_else(|error| fail(&error));
        // SAFETY: it is the library of this crate, which does nothing when it is loaded.
        match unsafe { Library::new(&path) } {
            Ok(library) => Stub {
                path,
                library: ManuallyDrop::new(library),
            },
            Err(error) => {
                let _ = fs::remove_file(&path);
                fail(&format!("{} does not load: {error}", path.display()))
            }
        }
    }

    /// The library, to be loaded as a driver. Whoever loads it in this process shares its state with this stub.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes a setting, for what is enqueued from now on.
    ///
    /// # Panics
    ///
    /// If there is no such setting; the message has the known ones.
    pub fn set(&self, key: &str, value: u64) {
        let name = c_string(key);
        // SAFETY: this is its type, and `name` is a string.
        let known = unsafe {
            type Set = unsafe extern "C" fn(*const c_char, u64) -> c_int;
            self.function::<Set>("nexar_stub_set")(name.as_ptr(), value)
        };
        if known != 0 {
            fail(&format!("no setting {key:?}; known: {SETTINGS:?}"));
        }
    }

    /// The value of a counter.
    ///
    /// # Panics
    ///
    /// If there is no such counter; the message has the known ones.
    pub fn counter(&self, key: &str) -> u64 {
        let name = c_string(key);
        let mut value = 0;
        // SAFETY: this is its type, `name` is a string, and there is room for the value.
        let known = unsafe {
            type Counter = unsafe extern "C" fn(*const c_char, *mut u64) -> c_int;
            self.function::<Counter>("nexar_stub_counter")(name.as_ptr(), &mut value)
        };
        if known != 0 {
            let calls = "and the name of a function of the driver";
            fail(&format!(
                "no counter {key:?}; known: {COUNTERS:?}, or {CALLS_PREFIX:?} {calls}"
            ));
        }
        value
    }

    /// Lets the `nth` call of this function from now on (1 is the next one) do nothing and return the code. A code that
    /// breaks a context (700, say) breaks the calling thread's.
    ///
    /// # Panics
    ///
    /// If there is no such function, or `nth` is 0.
    pub fn fail(&self, call: &str, nth: u64, code: i32) {
        if nth == 0 {
            fail("calls are counted from 1 on");
        }
        let name = c_string(call);
        // SAFETY: this is its type, and `name` is a string.
        let known = unsafe {
            type Fail = unsafe extern "C" fn(*const c_char, u64, c_int) -> c_int;
            self.function::<Fail>("nexar_stub_fail")(name.as_ptr(), nth, code)
        };
        if known != 0 {
            let known = crate::abi::CALLS;
            fail(&format!("no function {call:?}; known: {known:?}"));
        }
    }

    /// Lets the next copy or fill that is about to move its bytes, one that is under way already or a new one,
    /// break its context with the code instead: all calls in that context fail with it afterwards. Several of these are
    /// used up one after the other.
    pub fn fail_async(&self, code: i32) {
        // SAFETY: this is its type.
        unsafe {
            type FailAsync = extern "C" fn(c_int);
            self.function::<FailAsync>("nexar_stub_fail_async")(code);
        }
    }

    /// # Safety
    ///
    /// `T` is the type of the function.
    unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller's.
        match unsafe { self.library.get::<T>(name) } {
            Ok(function) => *function,
            Err(error) => fail(&format!("{name} is missing: {error}")),
        }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        f.debug_struct("Stub").field("path", path).finish()
    }
}

#[allow(clippy::panic, reason = "it is for tests, which fail so")]
#[track_caller]
fn fail(what: &str) -> ! {
    panic!("CUDA stub: {what}")
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A copy of the library that nobody else uses: what is loaded from one file has one state.
fn copy_library() -> Result<PathBuf, String> {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let built = built_library()?;
    loop {
        let copy = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("nexar-cuda-stub-{}-{copy}.so", process::id());
        let path = env::temp_dir().join(name);
        let said = |error: io::Error| format!("{} cannot be written: {error}", path.display());
        let mut file = match fs::File::create_new(&path) {
            // Of a process that had this number before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created.map_err(said)?,
        };
        let copied = fs::File::open(&built).and_then(|mut from| io::copy(&mut from, &mut file));
        return match copied {
            Ok(_) => Ok(path),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(said(error))
            }
        };
    }
}

/// The library as cargo has built it: beside the tests, or a folder above for examples and programs.
fn built_library() -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let name = format!(
        "{}nexar_cuda_stub{}",
        env::consts::DLL_PREFIX,
        env::consts::DLL_SUFFIX
    );
    let folders = program.ancestors().skip(1).take(2);
    let candidates = folders.flat_map(|f| [f.join(&name), f.join("deps").join(&name)]);
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        format!(
            "{name} is neither beside {} nor in the folder above or its `deps`; cargo builds it with the tests of \
             crates that have nexar-cuda-stub as a dependency for tests",
            program.display()
        )
    })
}
