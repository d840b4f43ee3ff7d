//! Tables of tests.

use super::*;

#[test]
fn directories_of_containers() {
    let table = [
        ("abc", "abc", true),
        ("cri-containerd-abc.scope", "abc", true),
        ("crio-abc.scope", "abc", true),
        ("xabc", "abc", false),
        ("abc-conmon", "abc", false),
        ("cri-containerd-abc.scope", "", false),
    ];
    for (directory, id, expected) in table {
        assert_eq!(is_of(directory, id), expected, "{directory} {id}");
    }
}

fn using(working_set: Option<u64>, available: Option<u64>) -> ContainerSample {
    let memory = Memory { working_set, available, ..Memory::default() };
    let cpu = Cpu { core_nanos: working_set, ..Cpu::default() };
    ContainerSample { memory: Some(memory), cpu: Some(cpu), ..ContainerSample::default() }
}

#[test]
fn sums_know_what_their_parts_know() {
    assert_eq!((sum_cpu(&[]), sum_memory(&[]), sum_swap(&[])), (None, None, None));
    let both = [using(Some(3), Some(7)), using(Some(4), Some(1))];
    let sum = sum_memory(&both).unwrap_or_default();
    assert_eq!((sum.working_set, sum.available, sum.rss), (Some(7), Some(8), None));
    assert_eq!(sum_cpu(&both).unwrap_or_default().core_nanos, Some(7));
    let unlimited = [using(Some(3), Some(7)), using(Some(4), None)];
    assert_eq!(sum_memory(&unlimited).unwrap_or_default().available, None);
    assert_eq!(sum_cpu(&[using(None, None)]).unwrap_or_default().nano_cores, None);
}

#[test]
fn ephemeral_storage_is_that_of_the_node() {
    let used = |bytes| Fs { used: Some(bytes), inodes_used: Some(1), ..Fs::default() };
    let volume = |bytes, ephemeral| VolumeStats {
        name: String::new(),
        fs: used(bytes),
        claim: None,
        abnormal: None,
        ephemeral,
    };
    let container = ContainerSample {
        rootfs: Some(used(1)),
        logs: Some(used(10)),
        ..ContainerSample::default()
    };
    let room = Fs { capacity: Some(99), used: Some(98), ..Fs::default() };
    let volumes = [volume(100, true), volume(1000, false)];
    let sum = ephemeral_storage(&room, &[container], &volumes, &[used(10_000)]);
    assert_eq!((sum.used, sum.inodes_used, sum.capacity), (Some(10_111), Some(4), Some(99)));
    let none = ephemeral_storage(&room, &[], &[], &[]);
    assert_eq!((none.used, none.capacity), (None, Some(99)), "nobody measured anything");
}

#[test]
fn the_group_goes_before_the_runtime() {
    let now = Timestamp::UNIX_EPOCH;
    let count = |value| Some(v1::UInt64Value { value });
    let cpu = v1::CpuUsage {
        timestamp: 1,
        usage_core_nano_seconds: count(5),
        usage_nano_cores: count(6),
        ..Default::default()
    };
    let stats = v1::ContainerStats { cpu: Some(cpu), ..Default::default() };
    let group = GroupUsage { cpu_nanos: Some(50), ..GroupUsage::default() };
    let unknown = GroupUsage::default();
    let mut sampler = Sampler::default();
    let mut of = |group, stats| container("c", "id", None, group, stats, now, &mut sampler);
    let both = of(Some(&group), Some(&stats)).unwrap_or_default();
    assert_eq!(both.cpu.unwrap_or_default().core_nanos, Some(50));
    let runtime = of(Some(&unknown), Some(&stats)).unwrap_or_default();
    let cpu = runtime.cpu.unwrap_or_default();
    assert_eq!((cpu.core_nanos, cpu.nano_cores), (Some(5), Some(6)));
    assert_eq!((runtime.memory, runtime.swap), (None, None));
    assert!(of(None, None).is_none(), "nobody knows it");
}
