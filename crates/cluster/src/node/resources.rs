//! Capacity, and what pods may have of it.
//!
//! Pure. Upstream: MachineInfo of pkg/kubelet/nodestatus/setters.go,
//! pkg/kubelet/cadvisor/util.go.

use kubelet_model::quantity::{Quantity, canonical};
use serde_json::Value;

use super::facts::{Machine, NodeFacts, Reserved};
use super::fields::{self, Fields};
use super::settings::NodeSettings;

/// Begins the names of huge pages; the size of a page follows.
const HUGE_PAGES: &str = "hugepages-";

/// Writes capacity and allocatable into a status. What others advertise stays.
pub(super) fn set(status: &mut Fields, settings: &NodeSettings, facts: &NodeFacts) {
    let capacity = fields::map(status, "capacity");
    match &facts.machine {
        Ok(machine) => set_capacity(capacity, settings, machine, facts),
        Err(_) => {
            put(capacity, "cpu", "0".to_owned());
            put(capacity, "memory", "0".to_owned());
            put(capacity, "pods", count(settings.max_pods.into()));
        }
    }
    let capacity = capacity.clone();
    let allocatable = fields::map(status, "allocatable");
    allocatable.retain(|name, _| capacity.contains_key(name) || !is_extended(name));
    for (name, amount) in &capacity {
        let amount = amount.as_str().unwrap_or_default();
        put(allocatable, name, less(name, amount, facts.reserved));
    }
    if facts.machine.is_ok() {
        for (name, amount) in &facts.devices.allocatable {
            put(allocatable, name, count(*amount));
        }
    }
    let mut memory = units(allocatable.get("memory"));
    let huge = capacity.iter().filter(|(name, _)| is_huge_pages(name));
    let taken: i64 = huge.map(|(_, amount)| units(Some(amount))).fold(0, i64::saturating_add);
    if taken != 0 {
        memory = memory.saturating_sub(taken).max(0);
        put(allocatable, "memory", Quantity::bytes_text(memory));
    }
}

fn set_capacity(
    capacity: &mut Fields,
    settings: &NodeSettings,
    machine: &Machine,
    facts: &NodeFacts,
) {
    put(capacity, "cpu", Quantity::milli_text(i64::from(machine.cores) * 1000));
    put(capacity, "memory", bytes(machine.memory_bytes));
    for huge in &machine.huge_pages {
        let name = format!("{HUGE_PAGES}{}", bytes(huge.page_bytes));
        put(capacity, &name, bytes(huge.page_bytes.saturating_mul(huge.pages)));
    }
    let pods = match settings.pods_per_core {
        0 => settings.max_pods,
        each => machine.cores.saturating_mul(each).min(settings.max_pods),
    };
    put(capacity, "pods", count(pods.into()));
    if let (true, Some(size)) = (settings.isolates_local_storage, facts.ephemeral_storage_bytes) {
        put(capacity, "ephemeral-storage", bytes(size));
    }
    for (name, amount) in &facts.devices.capacity {
        put(capacity, name, count(*amount));
    }
    // Zero rather than absent: a plugin had it, and it is no resource of the cluster.
    for name in &facts.devices.removed {
        put(capacity, name, "0".to_owned());
    }
}

/// What is left of a capacity; never below zero.
fn less(name: &str, amount: &str, reserved: Reserved) -> String {
    let Some(quantity) = Quantity::parse(amount) else { return amount.to_owned() };
    let Reserved { cpu_milli, memory_bytes, ephemeral_storage_bytes } = reserved;
    match name {
        "cpu" if cpu_milli > 0 => {
            Quantity::milli_text(quantity.milli().saturating_sub(signed(cpu_milli)).max(0))
        }
        "memory" if memory_bytes > 0 => rest(quantity, memory_bytes),
        "ephemeral-storage" if ephemeral_storage_bytes > 0 => {
            rest(quantity, ephemeral_storage_bytes)
        }
        _ if quantity.is_negative() => "0".to_owned(),
        _ => amount.to_owned(),
    }
}

fn rest(quantity: Quantity, taken: u64) -> String {
    Quantity::bytes_text(quantity.units().saturating_sub(signed(taken)).max(0))
}

/// Writes an amount; one that is the same in other words stays as it is.
pub(super) fn put(list: &mut Fields, name: &str, amount: String) {
    if !same(list.get(name), &amount) {
        list.insert(name.to_owned(), amount.into());
    }
}

/// Is it this amount, in whatever words?
pub(super) fn same(old: Option<&Value>, new: &str) -> bool {
    let old = old.and_then(Value::as_str).and_then(Quantity::parse);
    old.is_some() && old == Quantity::parse(new)
}

/// Is this a resource of huge pages?
pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Is this a resource that Kubernetes itself knows nothing about?
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

fn units(amount: Option<&Value>) -> i64 {
    amount.and_then(Value::as_str).and_then(Quantity::parse).map_or(0, Quantity::units)
}

fn bytes(amount: u64) -> String {
    Quantity::bytes_text(signed(amount))
}

/// A number as upstream writes it: thousands have suffixes.
fn count(amount: u64) -> String {
    let text = amount.to_string();
    canonical(&text).unwrap_or(text)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::facts::HugePages;
    use crate::node::test_parts::{facts, settings};

    fn lists(before: Value, settings: &NodeSettings, facts: &NodeFacts) -> Value {
        let mut status = before;
        set(fields::as_map(&mut status), settings, facts);
        status
    }

    #[test]
    fn amounts_of_a_plain_machine() {
        let after = lists(json!({}), &settings(), &facts());
        let expected = json!({
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "3900m", "memory": "8092Mi", "pods": "110",
                "ephemeral-storage": "90Gi"},
        });
        assert_eq!(after, expected);
        assert_eq!(lists(after.clone(), &settings(), &facts()), expected, "and again");
    }

    #[test]
    fn huge_pages_are_taken_from_memory() {
        let mut facts = facts();
        let machine = facts.machine.as_mut().expect("a machine");
        machine.huge_pages = vec![
            HugePages { page_bytes: 2 << 20, pages: 512 },
            HugePages { page_bytes: 1 << 30, pages: 0 },
        ];
        let after = lists(json!({}), &settings(), &facts);
        assert_eq!(after["capacity"]["hugepages-2Mi"], "1Gi");
        assert_eq!(after["allocatable"]["hugepages-2Mi"], "1Gi");
        assert_eq!(after["capacity"]["hugepages-1Gi"], "0");
        assert_eq!(after["allocatable"]["memory"], "7068Mi");
    }

    #[test]
    fn pods_are_limited_by_cores() {
        for (per_core, max, expected) in [(0, 110, "110"), (10, 110, "40"), (50, 110, "110")] {
            let mut settings = settings();
            (settings.pods_per_core, settings.max_pods) = (per_core, max);
            assert_eq!(lists(json!({}), &settings, &facts())["capacity"]["pods"], expected);
        }
        let mut settings = settings();
        settings.max_pods = 2000;
        assert_eq!(lists(json!({}), &settings, &facts())["capacity"]["pods"], "2k");
    }

    #[test]
    fn more_reserved_than_there_is_leaves_nothing() {
        let mut facts = facts();
        facts.reserved =
            Reserved { cpu_milli: 9000, memory_bytes: 9 << 30, ephemeral_storage_bytes: u64::MAX };
        let after = lists(json!({}), &settings(), &facts);
        for name in ["cpu", "memory", "ephemeral-storage"] {
            assert_eq!(after["allocatable"][name], "0", "{name}");
        }
    }

    #[test]
    fn devices_and_what_others_advertise() {
        let mut facts = facts();
        facts.devices.capacity = vec![("a.com/gpu".into(), 4)];
        facts.devices.allocatable = vec![("a.com/gpu".into(), 3)];
        facts.devices.removed = vec!["a.com/fpga".into()];
        let before = json!({
            "capacity": {"b.com/odd": "1500m", "a.com/fpga": "2"},
            "allocatable": {"b.com/odd": "1", "a.com/fpga": "2", "c.com/gone": "1",
                "odd.kubernetes.io/x": "1"},
        });
        let after = lists(before, &settings(), &facts);
        assert_eq!(after["capacity"]["a.com/gpu"], "4");
        assert_eq!(after["allocatable"]["a.com/gpu"], "3");
        assert_eq!(after["capacity"]["a.com/fpga"], "0");
        assert_eq!(after["allocatable"]["a.com/fpga"], "0");
        assert_eq!(after["allocatable"]["b.com/odd"], "1500m");
        assert!(after["allocatable"].get("c.com/gone").is_none(), "{after}");
        assert_eq!(after["allocatable"]["odd.kubernetes.io/x"], "1", "not an extended one");
    }

    #[test]
    fn the_same_in_other_words_is_no_change() {
        let before = json!({"capacity": {"memory": "8192Mi", "cpu": "4000m"}});
        let after = lists(before, &settings(), &facts());
        assert_eq!(after["capacity"]["memory"], "8192Mi");
        assert_eq!(after["capacity"]["cpu"], "4000m");
        assert_eq!(after["allocatable"]["cpu"], "3900m");
    }

    #[test]
    fn a_machine_that_cannot_be_read_has_no_cores() {
        let mut facts = facts();
        facts.machine = Err("no /proc".to_owned());
        let after = lists(json!({}), &settings(), &facts);
        assert_eq!(after["capacity"], json!({"cpu": "0", "memory": "0", "pods": "110"}));
    }

    #[test]
    fn local_storage_is_told_only_if_it_is_isolated() {
        let mut settings = settings();
        settings.isolates_local_storage = false;
        let after = lists(json!({}), &settings, &facts());
        assert!(after["capacity"].get("ephemeral-storage").is_none(), "{after}");
    }
}
