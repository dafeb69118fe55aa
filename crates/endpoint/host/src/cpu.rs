//! Processors: model, cores, memory nodes, frequency.
//!
//! Source: `Documentation/ABI/testing/sysfs-devices-system-cpu`, `Documentation/admin-guide/pm/cpufreq.rst`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use longhaul_kernel::sysfs::{self, number_list};
use serde::{Deserialize, Serialize};

use super::{Reasons, read_line};

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// The processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// The model's name.
    pub model: Option<String>,
    /// Logical CPUs that are online.
    pub online_cpus: Vec<u32>,
    /// Logical CPUs that the scheduler does not use (`isolcpus`).
    pub isolated_cpus: Vec<u32>,
    /// Cores; fewer than CPUs where a core runs two threads.
    pub cores: Option<u32>,
    /// Memory nodes and their CPUs.
    pub numa_nodes: Vec<NumaNode>,
    /// Frequency governors in use; more than one where CPUs differ; empty where the kernel does not set frequencies.
    pub governors: Vec<String>,
    /// The highest frequency of any CPU, as its driver allows it now.
    pub max_frequency_hz: Option<u64>,
    /// The lowest frequency at which any CPU runs now.
    pub least_current_frequency_hz: Option<u64>,
    /// The driver that puts idle CPUs to sleep: `intel_idle`, `acpi_idle`.
    pub idle_driver: Option<String>,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its CPUs.
    pub cpus: Vec<u32>,
}

fn read_cpu_file(cpu: u32, file: &str) -> Option<String> {
    sysfs::read(&Path::new(CPUS).join(format!("cpu{cpu}")).join(file)).ok()
}

pub(super) fn read(reasons: &mut Reasons) -> Cpu {
    let online_cpus = read_line(&format!("{CPUS}/online"), reasons).map(|text| number_list(&text)).unwrap_or_default();
    let model = reasons.keep("/proc/cpuinfo", fs::read_to_string("/proc/cpuinfo")).as_deref().and_then(model_name);
    let cores: BTreeSet<(Option<String>, String)> = online_cpus
        .iter()
        .filter_map(|cpu| {
            let package = read_cpu_file(*cpu, "topology/physical_package_id");
            Some((package, read_cpu_file(*cpu, "topology/core_id")?))
        })
        .collect();
    let frequency = |file: &'static str| {
        let khz = |cpu: &u32| read_cpu_file(*cpu, file)?.parse::<u64>().ok();
        online_cpus.iter().filter_map(khz).map(|khz| khz.saturating_mul(1_000)).collect::<Vec<_>>()
    };
    let governors: BTreeSet<String> =
        online_cpus.iter().filter_map(|cpu| read_cpu_file(*cpu, "cpufreq/scaling_governor")).collect();
    if governors.is_empty() {
        reasons.note(
            format!("{CPUS}/cpu*/cpufreq"),
            "the kernel does not set CPU frequencies here (a virtual machine, or the firmware sets them)",
        );
    }
    Cpu {
        model,
        isolated_cpus: fs::read_to_string(format!("{CPUS}/isolated"))
            .map(|text| number_list(&text))
            .unwrap_or_default(),
        cores: (!cores.is_empty()).then_some(cores.len() as u32),
        numa_nodes: numa_nodes(),
        governors: governors.into_iter().collect(),
        max_frequency_hz: frequency("cpufreq/scaling_max_freq").into_iter().max(),
        least_current_frequency_hz: frequency("cpufreq/scaling_cur_freq").into_iter().min(),
        idle_driver: fs::read_to_string(format!("{CPUS}/cpuidle/current_driver"))
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|driver| driver != "none"),
        online_cpus,
    }
}

fn numa_nodes() -> Vec<NumaNode> {
    let online = fs::read_to_string(format!("{NODES}/online")).unwrap_or_default();
    let node = |node| {
        let cpus = fs::read_to_string(format!("{NODES}/node{node}/cpulist")).ok()?;
        Some(NumaNode { node, cpus: number_list(&cpus) })
    };
    number_list(&online).into_iter().filter_map(node).collect()
}

/// `model name` on x86; `cpu model`, `Model`, `cpu` elsewhere. Arm has no such line.
fn model_name(cpuinfo: &str) -> Option<String> {
    ["model name", "cpu model", "Model", "cpu"].iter().find_map(|wanted| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    })
}

/// The hypervisor, as far as it can be told: the firmware's product name where the CPU reports a hypervisor.
pub(super) fn virtualization() -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|t| !t.is_empty());
    if let Some(kind) = read("/sys/hypervisor/type") {
        return Some(kind);
    }
    let flagged = read("/proc/cpuinfo").is_some_and(|text| has_hypervisor_flag(&text));
    let product = read("/sys/class/dmi/id/product_name").or_else(|| read("/sys/class/dmi/id/sys_vendor"));
    match (flagged, product) {
        (true, Some(product)) => Some(product),
        (true, None) => Some("hypervisor".into()),
        // Product names of virtual machines whose CPU does not report it (systemd-detect-virt(1) has the same list).
        (false, Some(product)) => ["KVM", "QEMU", "VMware", "VirtualBox", "Virtual Machine", "Google Compute"]
            .iter()
            .any(|known| product.contains(known))
            .then_some(product),
        (false, None) => None,
    }
}

/// CPUID leaf 1, ECX bit 31, which hypervisors set.
fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// The memory node next to a device; `None` where the firmware does not report it (−1).
pub(super) fn node_of(device: &Path) -> Option<u32> {
    sysfs::read_number(&device.join("numa_node")).ok().and_then(|node| u32::try_from(node).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_model_is_found() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(model_name(x86).as_deref(), Some("AMD EPYC"));
        assert_eq!(model_name("processor : 0\nBogoMIPS : 50.00\n"), None);
        assert!(has_hypervisor_flag("flags\t\t: fpu vme hypervisor lahf_lm\n"));
        assert!(!has_hypervisor_flag("flags\t\t: fpu vme\n"));
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpu = super::read(&mut Reasons::default());
        assert!(!cpu.online_cpus.is_empty());
        assert!(cpu.cores.is_none_or(|cores| cores as usize <= cpu.online_cpus.len()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~\\n\\t]{0,200}") {
            let _ = (model_name(&text), has_hypervisor_flag(&text));
        }
    }
}
