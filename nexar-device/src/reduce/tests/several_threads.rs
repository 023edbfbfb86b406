//! On several threads the results and the errors are those of one.

use super::*;

/// Elements for which every type takes several threads where there are idle CPUs, with a rest.
const ELEMENTS: usize = (8 << 20) + 13;

fn bytes(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn assert_alike(what: &str, before: &[u8], f: impl Fn(&mut [u8]), g: impl Fn(&mut [u8])) {
    let (mut one, mut many) = (before.to_vec(), before.to_vec());
    f(&mut one);
    g(&mut many);
    assert!(one == many, "{what}");
}

#[test]
fn sums_and_canonical_nan() {
    for dtype in [DataType::U8, DataType::Bf16, DataType::F32] {
        let (acc, incoming) = (
            bytes(ELEMENTS * dtype.size(), 1),
            bytes(ELEMENTS * dtype.size(), 2),
        );
        assert_alike(
            dtype.name(),
            &acc,
            |acc| {
                reduce(dtype, ReduceOp::Sum, acc, &incoming).unwrap();
                canonicalize_nan(dtype, acc).unwrap();
            },
            |acc| {
                parallel::reduce(dtype, ReduceOp::Sum, acc, &incoming).unwrap();
                parallel::canonicalize_nan(dtype, acc).unwrap();
            },
        );
    }
}

#[test]
fn accumulators() {
    let (dtype, wide, op) = (DataType::F16, Accumulator::F32, ReduceOp::Average);
    let (a, b) = (bytes(ELEMENTS * 2, 3), bytes(ELEMENTS * 2, 4));
    let c = bytes(ELEMENTS * 2, 5);
    assert_alike(
        "accumulators",
        &a,
        |out| {
            let (mut acc, mut other) = (vec![0; ELEMENTS * 4], vec![0; ELEMENTS * 4]);
            widen(dtype, wide, &mut acc, out).unwrap();
            accumulate(dtype, wide, op, &mut acc, &b).unwrap();
            widen(dtype, wide, &mut other, &c).unwrap();
            combine(wide, op, &mut acc, &other).unwrap();
            finish(dtype, wide, op, 3, out, &acc).unwrap();
            canonicalize_nan(dtype, out).unwrap();
        },
        |out| {
            let (mut acc, mut other) = (vec![0; ELEMENTS * 4], vec![0; ELEMENTS * 4]);
            parallel::widen(dtype, wide, &mut acc, out).unwrap();
            parallel::accumulate(dtype, wide, op, &mut acc, &b).unwrap();
            parallel::widen(dtype, wide, &mut other, &c).unwrap();
            parallel::combine(wide, op, &mut acc, &other).unwrap();
            parallel::finish(dtype, wide, op, 3, out, &acc).unwrap();
            parallel::canonicalize_nan(dtype, out).unwrap();
        },
    );
}

#[test]
fn quotients_casts_fills_and_copies() {
    let (f32s, f64s) = (DataType::F32, DataType::F64);
    let source = bytes(ELEMENTS * 4, 6);
    assert_alike(
        "quotients",
        &source,
        |buffer| finish_in_place(f32s, ReduceOp::Average, 3, buffer).unwrap(),
        |buffer| parallel::finish_in_place(f32s, ReduceOp::Average, 3, buffer).unwrap(),
    );
    assert_alike(
        "casts",
        &vec![0; ELEMENTS * 8],
        |out| cast(f32s, f64s, out, &source).unwrap(),
        |out| parallel::cast(f32s, f64s, out, &source).unwrap(),
    );
    assert_alike(
        "fills",
        &source,
        |buffer| fill(f32s, buffer, &[1, 2, 3, 4]).unwrap(),
        |buffer| parallel::fill(f32s, buffer, &[1, 2, 3, 4]).unwrap(),
    );
    assert_alike("bools", &source, normalize_bool, parallel::normalize_bool);
    assert_alike(
        "copies of bools",
        &vec![7; source.len()],
        |out| copy_bool(out, &source).unwrap(),
        |out| parallel::copy_bool(out, &source).unwrap(),
    );
    assert_alike(
        "copies",
        &vec![7; source.len()],
        |out| out.copy_from_slice(&source),
        |out| parallel::copy(out, &source).unwrap(),
    );
}

#[test]
fn errors_are_the_same_and_change_nothing() {
    let (mut acc, f16s) = (vec![7; 16 << 20], DataType::F16);
    let (wide, op, other) = (Accumulator::F32, ReduceOp::Average, vec![1; 6]);
    let length = acc.len();
    let acc_ = &mut acc[..];
    let unequal = ReduceError::Length {
        acc: length,
        other: 6,
    };
    assert_eq!(parallel::reduce(f16s, op, acc_, &other), Err(unequal));
    assert_eq!(parallel::widen(f16s, wide, acc_, &other), Err(unequal));
    assert_eq!(
        parallel::accumulate(f16s, wide, op, acc_, &other),
        Err(unequal)
    );
    assert_eq!(parallel::cast(f16s, f16s, acc_, &other), Err(unequal));
    assert_eq!(parallel::copy_bool(acc_, &other), Err(unequal));
    assert_eq!(parallel::copy(acc_, &other), Err(unequal));
    assert!(parallel::combine(wide, op, acc_, &other).is_err());
    assert!(parallel::finish(f16s, wide, op, 2, acc_, &other).is_err());
    assert!(parallel::finish_in_place(f16s, op, 0, acc_).is_err());
    assert!(parallel::canonicalize_nan(f16s, &mut acc_[1..]).is_err());
    assert!(parallel::fill(f16s, acc_, &other).is_err());
    assert!(acc.iter().all(|byte| *byte == 7));
}
