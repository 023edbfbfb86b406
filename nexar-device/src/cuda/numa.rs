//! Threads near a device.

/// Runs `work` where the memory that it touches first is near the device with this PCI address: on a short-lived
/// thread that is bound to the CPUs of the device's NUMA node. Where there is only one node, or the system does
/// not tell, it simply runs.
pub(super) fn near<T: Send>(pci_bus_id: Option<&str>, work: impl Fn() -> T + Sync) -> T {
    #[cfg(target_os = "linux")]
    if let Some(done) = pci_bus_id.and_then(|id| linux::near(id, &work)) {
        return done;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pci_bus_id;
    work()
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_setaffinity};
    use std::{fs, ops::RangeInclusive, path::Path, thread};

    pub(super) fn near<T: Send>(pci_bus_id: &str, work: impl Fn() -> T + Sync) -> Option<T> {
        let cpus = cpus_near(Path::new("/sys"), pci_bus_id)?;
        let mut set = CpuSet::new();
        let known = |cpu: &usize| *cpu < CpuSet::MAX_CPU;
        for cpu in cpus.into_iter().flatten().take_while(known) {
            set.set(cpu);
        }
        thread::scope(|scope| {
            let bound = thread::Builder::new().name("nexar-cuda-numa".into());
            let bound = bound.spawn_scoped(scope, || {
                // Where the system does not let it, the memory is farther away, and works all the same.
                let _ = sched_setaffinity(None, &set);
                work()
            });
            bound.ok()?.join().ok()
        })
    }

    /// The CPUs of the device's node; none if there is only one node.
    fn cpus_near(sys: &Path, pci_bus_id: &str) -> Option<Vec<RangeInclusive<usize>>> {
        let read = |path: String| fs::read_to_string(sys.join(path)).ok();
        let nodes = parse(&read("devices/system/node/online".into())?)?;
        if nodes.into_iter().map(Iterator::count).sum::<usize>() < 2 {
            return None;
        }
        let id = pci_bus_id.to_ascii_lowercase();
        // -1 where the system does not know.
        let node = read(format!("bus/pci/devices/{id}/numa_node"))?;
        let node: u32 = node.trim().parse().ok()?;
        let cpus = parse(&read(format!("devices/system/node/node{node}/cpulist"))?)?;
        (!cpus.is_empty()).then_some(cpus)
    }

    /// Ranges such as `0-3,8,10-11`.
    fn parse(list: &str) -> Option<Vec<RangeInclusive<usize>>> {
        let parts = list.trim().split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Some(first.parse().ok()?..=last.parse().ok()?)
            })
            .collect()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn lists_of_numbers_are_read() {
            assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0..=3, 8..=8, 10..=11]));
            assert_eq!(parse("\n"), Some(vec![]));
            assert_eq!(parse("0-x"), None);
        }

        #[test]
        fn the_cpus_near_a_device_are_those_of_its_node() {
            let sys = std::env::temp_dir().join(format!("nexar-numa-{}", std::process::id()));
            let write = |path: &str, text: &str| {
                let path = sys.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("devices/system/node/online", "0-1\n");
            write("devices/system/node/node1/cpulist", "2-3,6\n");
            write("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
            write("bus/pci/devices/0000:af:00.0/numa_node", "-1\n");
            let cpus = |id| cpus_near(&sys, id);
            assert_eq!(cpus("0000:3B:00.0"), Some(vec![2..=3, 6..=6]));
            assert_eq!(cpus("0000:AF:00.0"), None);
            assert_eq!(cpus("0000:00:00.0"), None);
            write("devices/system/node/online", "0\n");
            assert_eq!(cpus("0000:3B:00.0"), None);
            fs::remove_dir_all(sys).unwrap();
        }

        #[test]
        fn work_near_an_unknown_device_is_done() {
            assert_eq!(super::super::near(Some("none"), || 7), 7);
            assert_eq!(super::super::near(None, || 8), 8);
        }
    }
}
