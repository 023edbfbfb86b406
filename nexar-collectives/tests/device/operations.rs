//! Every operation on device memory against the same one on slices.

use super::Devices;
use crate::common::{WORLDS, memory_world_with, on_all, share};
use nexar_collectives::{
    Communicator, DataType, DeviceAdapter, DeviceBuffer, Element, ReduceOp, Reduction, TimeLimits,
    bf16,
    compression::{Compression, TopK},
    f16,
    transport::Transport,
};
use std::fmt::Debug;

/// Elements whose values differ between neighbouring ranks and indices.
pub(crate) trait Numbered: Element + PartialEq + Debug {
    fn value(rank: usize, index: usize) -> Self;
}

macro_rules! numbered {
    ($($type:ty: $number:ident => $value:expr;)*) => {$(
        impl Numbered for $type {
            fn value(rank: usize, index: usize) -> Self {
                let $number = (index * 7 + rank * 31) % 251;
                $value
            }
        }
    )*};
}

numbered! {
    f32: number => number as f32 - 100.5;
    f64: number => number as f64 / 3.0;
    f16: number => f16::from_f32(number as f32 / 8.0);
    bf16: number => bf16::from_f32(number as f32 / 4.0 - 20.0);
    i8: number => number as i8;
    i16: number => number as i16 * 99;
    i32: number => number as i32 * -7_001;
    i64: number => (number as i64) << 33;
    u8: number => number as u8;
    u16: number => number as u16 * 3;
    u32: number => number as u32 * 90_001;
    u64: number => (number as u64) << 40;
    bool: number => number.is_multiple_of(3);
}

/// A rank and where its buffers are.
pub(crate) struct Rank<'a, T: Transport, D: DeviceAdapter> {
    pub(crate) comm: &'a Communicator<T, D>,
    pub(crate) devices: Devices<D>,
}

impl<T: Transport, D: DeviceAdapter> Rank<'_, T, D> {
    pub(crate) async fn buffer<E: Element>(&self, data: &[E]) -> DeviceBuffer<E, D> {
        let space = self.devices.space;
        DeviceBuffer::from_slice(&self.devices.adapter, space, data)
            .await
            .unwrap()
    }

    async fn expect<E: Numbered>(&self, found: &DeviceBuffer<E, D>, expected: &[E], what: &str) {
        let mut host = vec![E::default(); expected.len()];
        found.copy_to(&mut host).await.unwrap();
        let (rank, world) = (self.comm.rank(), self.comm.world_size());
        let bytes = (E::as_bytes(&host), E::as_bytes(expected));
        let differs = host.iter().zip(expected).position(|(a, b)| a != b);
        assert!(
            bytes.0 == bytes.1,
            "{what} of {} {} on rank {rank} of {world}: differs at {differs:?}",
            expected.len(),
            E::DATA_TYPE,
        );
    }

    fn values<E: Numbered>(&self, count: usize) -> Vec<E> {
        (0..count)
            .map(|index| E::value(self.comm.rank(), index))
            .collect()
    }

    /// Those that move elements.
    async fn moves<E: Numbered>(&self, count: usize) {
        let (comm, device) = (self.comm, self.comm.on_device());
        let (world, rank) = (comm.world_size(), comm.rank());
        let root = world - 1;
        let own = self.values::<E>(count);
        let long = self.values::<E>(count * world);
        let empty = vec![E::default(); count];
        let long_empty = vec![E::default(); count * world];
        let (own_buffer, long_buffer) = (self.buffer(&own).await, self.buffer(&long).await);

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.broadcast(&mut host, root).await.unwrap();
        device.broadcast(&mut buffer, root).await.unwrap();
        self.expect(&buffer, &host, "broadcast").await;

        let (mut host, mut buffer) = (long_empty.clone(), self.buffer(&long_empty).await);
        comm.all_gather(&own, &mut host).await.unwrap();
        device.all_gather(&own_buffer, &mut buffer).await.unwrap();
        self.expect(&buffer, &host, "all_gather").await;

        let (mut host, mut buffer) = (long.clone(), self.buffer(&long).await);
        comm.all_gather_in_place(&mut host).await.unwrap();
        device.all_gather_in_place(&mut buffer).await.unwrap();
        self.expect(&buffer, &host, "all_gather_in_place").await;

        let (mut host, mut buffer) = (long_empty.clone(), self.buffer(&long_empty).await);
        comm.gather(&own, &mut host, root).await.unwrap();
        device.gather(&own_buffer, &mut buffer, root).await.unwrap();
        self.expect(&buffer, &host, "gather").await;

        let (mut host, mut buffer) = (empty.clone(), self.buffer(&empty).await);
        comm.scatter(&long, &mut host, root).await.unwrap();
        device
            .scatter(&long_buffer, &mut buffer, root)
            .await
            .unwrap();
        self.expect(&buffer, &host, "scatter").await;

        let (mut host, mut buffer) = (long_empty.clone(), self.buffer(&long_empty).await);
        comm.all_to_all(&long, &mut host).await.unwrap();
        device.all_to_all(&long_buffer, &mut buffer).await.unwrap();
        self.expect(&buffer, &host, "all_to_all").await;

        let (mut host, mut buffer) = (long.clone(), self.buffer(&long).await);
        comm.all_to_all_in_place(&mut host).await.unwrap();
        device.all_to_all_in_place(&mut buffer).await.unwrap();
        self.expect(&buffer, &host, "all_to_all_in_place").await;

        let neighbors = [(rank + 1) % world, (rank + world - 1) % world];
        let input = self.values::<E>(2 * count);
        let (mut host, mut buffer) = (
            vec![E::default(); 2 * count],
            self.buffer(&vec![E::default(); 2 * count]).await,
        );
        let input_buffer = self.buffer(&input).await;
        comm.neighbor_all_to_all(&neighbors, &input, &mut host)
            .await
            .unwrap();
        device
            .neighbor_all_to_all(&neighbors, &input_buffer, &mut buffer)
            .await
            .unwrap();
        self.expect(&buffer, &host, "neighbor_all_to_all").await;
    }

    /// Those with blocks of different lengths.
    async fn uneven<E: Numbered>(&self, count: usize) {
        let (comm, device) = (self.comm, self.comm.on_device());
        let (world, rank) = (comm.world_size(), comm.rank());
        let counts: Vec<usize> = (0..world)
            .map(|rank| (count * rank) % 97 + rank % 2)
            .collect();
        let total = counts.iter().sum();
        let root = world / 2;
        let own = self.values::<E>(counts[rank]);
        let long = self.values::<E>(total);
        let (own_buffer, long_buffer) = (self.buffer(&own).await, self.buffer(&long).await);
        let empty = vec![E::default(); counts[rank]];
        let long_empty = vec![E::default(); total];

        let (mut host, mut buffer) = (long_empty.clone(), self.buffer(&long_empty).await);
        comm.all_gather_v(&own, &mut host, &counts).await.unwrap();
        device
            .all_gather_v(&own_buffer, &mut buffer, &counts)
            .await
            .unwrap();
        self.expect(&buffer, &host, "all_gather_v").await;

        let (mut host, mut buffer) = (long_empty.clone(), self.buffer(&long_empty).await);
        comm.gather_v(&own, &mut host, &counts, root).await.unwrap();
        device
            .gather_v(&own_buffer, &mut buffer, &counts, root)
            .await
            .unwrap();
        self.expect(&buffer, &host, "gather_v").await;

        let (mut host, mut buffer) = (empty.clone(), self.buffer(&empty).await);
        comm.scatter_v(&long, &counts, &mut host, root)
            .await
            .unwrap();
        device
            .scatter_v(&long_buffer, &counts, &mut buffer, root)
            .await
            .unwrap();
        self.expect(&buffer, &host, "scatter_v").await;

        // To rank j goes what i + j says, and from it comes the same.
        let both: Vec<usize> = (0..world).map(|to| (count + rank * to) % 53).collect();
        let input = self.values::<E>(both.iter().sum());
        let (mut host, mut buffer) = (
            vec![E::default(); input.len()],
            self.buffer(&vec![E::default(); input.len()]).await,
        );
        let input_buffer = self.buffer(&input).await;
        comm.all_to_all_v(&input, &both, &mut host, &both)
            .await
            .unwrap();
        device
            .all_to_all_v(&input_buffer, &both, &mut buffer, &both)
            .await
            .unwrap();
        self.expect(&buffer, &host, "all_to_all_v").await;

        let neighbors: Vec<usize> = (0..world).rev().collect();
        let both: Vec<usize> = both.into_iter().rev().collect();
        comm.neighbor_all_to_all_v(&neighbors, &input, &both, &mut host, &both)
            .await
            .unwrap();
        device
            .neighbor_all_to_all_v(&neighbors, &input_buffer, &both, &mut buffer, &both)
            .await
            .unwrap();
        self.expect(&buffer, &host, "neighbor_all_to_all_v").await;
    }

    /// Those that reduce.
    async fn reductions<E: Numbered>(&self, count: usize, op: ReduceOp) {
        let (comm, device) = (self.comm, self.comm.on_device());
        let (world, rank) = (comm.world_size(), comm.rank());
        let root = world / 2;
        let own = self.values::<E>(count);
        let long = self.values::<E>(count * world);
        let other = vec![E::value(9, 9); count];
        let (own_buffer, long_buffer) = (self.buffer(&own).await, self.buffer(&long).await);

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.all_reduce(&mut host, op).await.unwrap();
        device.all_reduce(&mut buffer, op).await.unwrap();
        self.expect(&buffer, &host, &format!("all_reduce {op}"))
            .await;

        let (mut host, mut buffer) = (other.clone(), self.buffer(&other).await);
        comm.all_reduce_into(&own, &mut host, op).await.unwrap();
        device
            .all_reduce_into(&own_buffer, &mut buffer, op)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("all_reduce_into {op}"))
            .await;

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.reduce(&mut host, op, root).await.unwrap();
        device.reduce(&mut buffer, op, root).await.unwrap();
        self.expect(&buffer, &host, &format!("reduce {op}")).await;

        let (mut host, mut buffer) = (other.clone(), self.buffer(&other).await);
        comm.reduce_into(&own, &mut host, op, root).await.unwrap();
        device
            .reduce_into(&own_buffer, &mut buffer, op, root)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("reduce_into {op}"))
            .await;

        let (mut host, mut buffer) = (other.clone(), self.buffer(&other).await);
        comm.reduce_scatter(&long, &mut host, op).await.unwrap();
        device
            .reduce_scatter(&long_buffer, &mut buffer, op)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("reduce_scatter {op}"))
            .await;

        let (mut host, mut buffer) = (long.clone(), self.buffer(&long).await);
        comm.reduce_scatter_in_place(&mut host, op).await.unwrap();
        device
            .reduce_scatter_in_place(&mut buffer, op)
            .await
            .unwrap();
        let mut found = vec![E::default(); long.len()];
        buffer.copy_to(&mut found).await.unwrap();
        let block = rank * count..(rank + 1) * count;
        assert_eq!(
            found[block.clone()],
            host[block],
            "reduce_scatter_in_place {op}"
        );

        let counts: Vec<usize> = (0..world).map(|rank| (count + rank * 5) % 61).collect();
        let input = self.values::<E>(counts.iter().sum());
        let input_buffer = self.buffer(&input).await;
        let empty = vec![E::default(); counts[rank]];
        let (mut host, mut buffer) = (empty.clone(), self.buffer(&empty).await);
        comm.reduce_scatter_v(&input, &mut host, &counts, op)
            .await
            .unwrap();
        device
            .reduce_scatter_v(&input_buffer, &mut buffer, &counts, op)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("reduce_scatter_v {op}"))
            .await;

        if op == ReduceOp::Average {
            return;
        }
        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.scan(&mut host, op).await.unwrap();
        device.scan(&mut buffer, op).await.unwrap();
        self.expect(&buffer, &host, &format!("scan {op}")).await;

        let (mut host, mut buffer) = (other.clone(), self.buffer(&other).await);
        comm.scan_into(&own, &mut host, op).await.unwrap();
        device
            .scan_into(&own_buffer, &mut buffer, op)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("scan_into {op}"))
            .await;

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.exclusive_scan(&mut host, op).await.unwrap();
        device.exclusive_scan(&mut buffer, op).await.unwrap();
        self.expect(&buffer, &host, &format!("exclusive_scan {op}"))
            .await;

        let (mut host, mut buffer) = (other.clone(), self.buffer(&other).await);
        comm.exclusive_scan_into(&own, &mut host, op).await.unwrap();
        device
            .exclusive_scan_into(&own_buffer, &mut buffer, op)
            .await
            .unwrap();
        self.expect(&buffer, &host, &format!("exclusive_scan_into {op}"))
            .await;
    }

    /// Those that are made of others, or take a function.
    async fn special(&self, count: usize) {
        let (comm, device) = (self.comm, self.comm.on_device());
        let own = self.values::<f32>(count);
        let long = self.values::<f32>(count * comm.world_size());

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.all_reduce_scaled(&mut host, 0.25).await.unwrap();
        device.all_reduce_scaled(&mut buffer, 0.25).await.unwrap();
        self.expect(&buffer, &host, "all_reduce_scaled").await;

        let places: Vec<u64> = (0..count)
            .map(|at| (at * 10 + comm.rank()) as u64)
            .collect();
        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        let (mut where_host, mut where_buffer) = (places.clone(), self.buffer(&places).await);
        comm.all_reduce_max_location(&mut host, &mut where_host)
            .await
            .unwrap();
        device
            .all_reduce_max_location(&mut buffer, &mut where_buffer)
            .await
            .unwrap();
        self.expect(&buffer, &host, "values").await;
        self.expect(&where_buffer, &where_host, "locations").await;
        comm.all_reduce_min_location(&mut host, &mut where_host)
            .await
            .unwrap();
        device
            .all_reduce_min_location(&mut buffer, &mut where_buffer)
            .await
            .unwrap();
        self.expect(&where_buffer, &where_host, "locations").await;

        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        let mut first = Compression::new(TopK::new(0.5).unwrap());
        let mut second = Compression::new(TopK::new(0.5).unwrap());
        comm.all_reduce_compressed(&mut host, ReduceOp::Sum, &mut first)
            .await
            .unwrap();
        device
            .all_reduce_compressed(&mut buffer, ReduceOp::Sum, &mut second)
            .await
            .unwrap();
        self.expect(&buffer, &host, "all_reduce_compressed").await;

        let mut hosts = [
            own.clone(),
            Vec::new(),
            long.clone(),
            own.clone(),
            own.clone(),
        ];
        let mut buffers = Vec::new();
        for host in &hosts {
            buffers.push(self.buffer(host).await);
        }
        comm.all_reduce_many(&mut hosts, ReduceOp::Sum)
            .await
            .unwrap();
        device
            .all_reduce_many(&mut buffers, ReduceOp::Sum)
            .await
            .unwrap();
        for (buffer, host) in buffers.iter().zip(&hosts) {
            self.expect(buffer, host, "all_reduce_many").await;
        }

        let ordered = Reduction::ordered("minus", |a: &f32, b: &f32| a - b);
        let (mut host, mut buffer) = (own.clone(), self.buffer(&own).await);
        comm.all_reduce_with(&mut host, &ordered).await.unwrap();
        device.all_reduce_with(&mut buffer, &ordered).await.unwrap();
        self.expect(&buffer, &host, "all_reduce_with").await;
        comm.reduce_with(&mut host, &ordered, 0).await.unwrap();
        device.reduce_with(&mut buffer, &ordered, 0).await.unwrap();
        self.expect(&buffer, &host, "reduce_with").await;
        comm.scan_with(&mut host, &ordered).await.unwrap();
        device.scan_with(&mut buffer, &ordered).await.unwrap();
        self.expect(&buffer, &host, "scan_with").await;
        comm.exclusive_scan_with(&mut host, &ordered).await.unwrap();
        device
            .exclusive_scan_with(&mut buffer, &ordered)
            .await
            .unwrap();
        self.expect(&buffer, &host, "exclusive_scan_with").await;
        let long_buffer = self.buffer(&long).await;
        comm.reduce_scatter_with(&long, &mut host, &ordered)
            .await
            .unwrap();
        device
            .reduce_scatter_with(&long_buffer, &mut buffer, &ordered)
            .await
            .unwrap();
        self.expect(&buffer, &host, "reduce_scatter_with").await;
    }
}

/// Every operation for every world, with lengths around those of a page.
pub(crate) async fn every_operation<D: DeviceAdapter>(
    devices: impl Fn(usize) -> Devices<D>,
    page: usize,
) {
    for world in WORLDS {
        let devices: Vec<Devices<D>> = (0..world).map(&devices).collect();
        let adapters: Vec<D> = devices
            .iter()
            .map(|devices| devices.adapter.clone())
            .collect();
        let (_network, _, ranks) = memory_world_with(&adapters, TimeLimits::default()).await;
        on_all(&share(ranks), |comm| {
            let devices = devices[comm.rank()].clone();
            async move {
                let comm = &*comm;
                let rank = Rank { comm, devices };
                for count in [0, 1, 13, page / 4, page + 3] {
                    rank.moves::<u32>(count).await;
                    rank.uneven::<i16>(count).await;
                    rank.special(count).await;
                    rank.reductions::<f32>(count, ReduceOp::Sum).await;
                    rank.reductions::<f32>(count, ReduceOp::Average).await;
                    rank.reductions::<bf16>(count, ReduceOp::Sum).await;
                }
                rank.moves::<bool>(page + 1).await;
                rank.moves::<f64>(37).await;
                rank.reductions::<f16>(page / 2, ReduceOp::Average).await;
                rank.reductions::<i8>(2 * page + 1, ReduceOp::Average).await;
                rank.reductions::<u64>(page / 3, ReduceOp::Average).await;
                rank.reductions::<i64>(29, ReduceOp::Max).await;
                rank.reductions::<u16>(page, ReduceOp::BitXor).await;
                rank.reductions::<bool>(3 * page, ReduceOp::LogicalOr).await;
                rank.reductions::<f16>(77, ReduceOp::Min).await;
                rank.reductions::<i32>(5 * page, ReduceOp::Sum).await;
                rank.reductions::<u8>(7, ReduceOp::Product).await;
                assert_eq!(DataType::ALL.len(), 13);
            }
        })
        .await;
    }
}
