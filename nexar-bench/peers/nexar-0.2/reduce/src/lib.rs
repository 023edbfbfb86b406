//! Sums of two buffers in three ways: by a plain loop, by nexar-device, and by the crate nexar 0.2.0 from the
//! registry.
#![warn(missing_docs)]

use nexar_core::{DataType, ReduceOp};
use std::error::Error;

type Result = std::result::Result<(), Box<dyn Error + Send + Sync>>;

/// Two buffers of `bytes` bytes, aligned for every element type.
#[derive(Debug)]
pub struct Buffers {
    dtype: DataType,
    acc: Vec<f32>,
    incoming: Vec<f32>,
}

impl Buffers {
    /// Buffers whose sum neither overflows nor meets subnormal numbers, however often it is formed.
    ///
    /// # Errors
    ///
    /// There are no data for the type.
    pub fn new(dtype: DataType, bytes: usize) -> std::result::Result<Self, String> {
        let (one, small) = match dtype {
            DataType::F32 | DataType::I32 => (0x3f80_0000, 0x3580_0000),
            DataType::F16 => (0x3c00_3c00, 0x1400_1400),
            DataType::Bf16 => (0x3f80_3f80, 0x3580_3580),
            other => return Err(format!("no data of type {other}")),
        };
        let filled = |bits| vec![f32::from_bits(bits); bytes / size_of::<f32>()];
        Ok(Buffers {
            dtype,
            acc: filled(one),
            incoming: filled(small),
        })
    }

    /// The plain loop over f32, whatever the type of the data.
    pub fn plain(&mut self) {
        for (a, b) in self.acc.iter_mut().zip(&self.incoming) {
            *a += *b;
        }
    }

    /// The plain loop over i32, whatever the type of the data.
    pub fn plain_i32(&mut self) {
        for (a, b) in self.acc.iter_mut().zip(&self.incoming) {
            *a = f32::from_bits(a.to_bits().wrapping_add(b.to_bits()));
        }
    }

    /// [`nexar_device::reduce::reduce`].
    ///
    /// # Errors
    ///
    /// It refuses.
    pub fn ours(&mut self) -> Result {
        let incoming = bytes(&self.incoming);
        // SAFETY: the bytes of initialised numbers, for which every bit pattern is valid.
        let acc = unsafe { self.acc.align_to_mut::<u8>().1 };
        nexar_device::reduce::reduce(self.dtype, ReduceOp::Sum, acc, incoming)?;
        Ok(())
    }

    /// `nexar::reduce::reduce_ptr`, through which its collectives on the CPU go.
    ///
    /// # Errors
    ///
    /// It refuses, or does not know the type.
    pub fn theirs(&mut self) -> Result {
        let dtype = match self.dtype {
            DataType::F32 => nexar::DataType::F32,
            DataType::I32 => nexar::DataType::I32,
            DataType::F16 => nexar::DataType::F16,
            DataType::Bf16 => nexar::DataType::BF16,
            other => return Err(format!("nexar 0.2.0 has no type for {other}").into()),
        };
        let incoming = bytes(&self.incoming);
        let count = incoming.len() / self.dtype.size();
        let acc = self.acc.as_mut_ptr() as u64;
        // SAFETY: both hold `count` elements of the type.
        unsafe { nexar::reduce::reduce_ptr(acc, incoming, count, dtype, nexar::ReduceOp::Sum)? };
        Ok(())
    }
}

fn bytes(numbers: &[f32]) -> &[u8] {
    // SAFETY: the bytes of initialised numbers.
    unsafe { numbers.align_to::<u8>().1 }
}
