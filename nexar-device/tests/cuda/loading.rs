//! What is missing is named.

use crate::support::{Bench, benches, stub_bench};
use nexar_cuda_stub::Stub;
use nexar_device::cuda::{CudaAdapter, CudaError};
use std::{env, fs, path::Path, process::Command};

fn load(path: impl AsRef<Path>) -> CudaError {
    // SAFETY: what is no driver has no functions to call.
    let builder = unsafe { CudaAdapter::builder().driver_path(path.as_ref()) };
    builder.build().expect_err("this is no driver")
}

#[test]
fn a_library_that_is_not_there() {
    let error = load("/nowhere/libcuda.so");
    let CudaError::LibraryNotFound { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(tried.len(), 1);
    assert_eq!(tried[0].library, Path::new("/nowhere/libcuda.so"));
    assert!(!tried[0].reason.contains("libcuda"), "{error}");
    let words = error.to_string();
    let beginning = "the CUDA driver library cannot be loaded; tried /nowhere/libcuda.so (";
    let end = "); install the NVIDIA driver, or set NEXAR_CUDA_DRIVER to the path of its library";
    assert!(
        words.starts_with(beginning) && words.ends_with(end),
        "{words}"
    );
}

#[test]
fn a_file_that_is_no_library() {
    let path = env::temp_dir().join(format!("nexar-no-library-{}.so", std::process::id()));
    fs::write(&path, "this is text").unwrap();
    let error = load(&path);
    fs::remove_file(&path).unwrap();
    let CudaError::LibraryNotFound { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(tried[0].library, path);
    assert!(!tried[0].reason.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_without_the_functions_of_a_driver() {
    let error = load("libm.so.6");
    assert!(matches!(
        &error,
        CudaError::SymbolMissing {
            symbol: "cuGetErrorName",
            ..
        }
    ));
    let expected = "libm.so.6 has no symbol cuGetErrorName; it takes the library of a CUDA driver for \
                    CUDA 11.0 or later";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_driver_without_a_device() {
    let stub = Stub::new();
    stub.set("devices", 0);
    let error = load(stub.path());
    assert!(matches!(&error, CudaError::NoDevice { library } if library == stub.path()));
    assert!(error.to_string().contains("finds no device"), "{error}");
}

#[test]
fn a_driver_that_does_not_start() {
    let stub = Stub::new();
    stub.fail("cuInit", 1, 803);
    let error = load(stub.path());
    assert!(matches!(
        &error,
        CudaError::Driver {
            call: "cuInit",
            code: 803,
            ..
        }
    ));
}

#[test]
fn slots_that_cannot_be() {
    for bytes in [0, 8, 100, (1 << 30) + 16] {
        let error = CudaAdapter::builder().slot_len(bytes).build().unwrap_err();
        assert!(matches!(error, CudaError::SlotLength { bytes: found } if found == bytes));
        let expected = format!(
            "staging slots of {bytes} bytes cannot be: take a multiple of 16 from 16 to 1073741824"
        );
        assert_eq!(error.to_string(), expected);
    }
    for slots in [0, 4097] {
        let error = CudaAdapter::builder().slots(slots).build().unwrap_err();
        assert!(matches!(error, CudaError::Slots { slots: found } if found == slots));
    }
}

/// The child of the test below.
#[test]
fn child_with_a_variable() {
    if env::var_os("NEXAR_CUDA_TEST_CHILD").is_some() {
        println!(
            "the child says: {:?}",
            CudaAdapter::new().map(|a| a.device_count())
        );
    }
}

#[test]
fn the_environment_names_the_library() {
    let stub = Stub::new();
    let run = |path: &Path| {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "loading::child_with_a_variable", "--nocapture"])
            .env("NEXAR_CUDA_TEST_CHILD", "1")
            .env("NEXAR_CUDA_DRIVER", path)
            .output();
        String::from_utf8(child.unwrap().stdout).unwrap()
    };
    let said = run(Path::new("/nowhere/else.so"));
    assert!(
        said.contains("cannot be loaded") && said.contains("/nowhere/else.so"),
        "{said}"
    );
    let said = run(stub.path());
    assert!(said.contains("the child says: Ok("), "{said}");
}

#[test]
fn a_driver_tells_what_it_has() {
    for Bench { adapter, .. } in benches(1, |builder| builder) {
        assert!(adapter.device_count() >= 1);
        assert!(!adapter.device_name(0).unwrap().is_empty());
        assert!(adapter.driver_version().unwrap() >= (11, 0));
        let count = adapter.device_count();
        let error = adapter.device_name(count).unwrap_err();
        assert!(
            matches!(error, CudaError::NoSuchDevice { ordinal, count: c } if ordinal == count && c == count)
        );
    }
    let two = stub_bench(2, |builder| builder);
    assert_eq!(two.adapter.device_count(), 2);
    two.finish();
}
