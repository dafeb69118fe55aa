//! Codes of the caveats of the set-up of a host: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// A TCP buffer is smaller than what is in flight on a long path.
    TCP_BUFFER_SMALL = "tcp_buffer_small";
    /// A program without root gets a UDP buffer that one scheduling tick fills.
    UDP_BUFFER_SMALL = "udp_buffer_small";
    /// CPUs may run below their full speed when packets arrive.
    CPU_GOVERNOR = "cpu_governor";
    /// Reading the clock costs a microsecond or more.
    CLOCKSOURCE_SLOW = "clocksource_slow";
    /// TCP window scaling is off: at most 64 KiB are in flight.
    WINDOW_SCALING_OFF = "window_scaling_off";
    /// The receive ring of a NIC is smaller than its driver allows.
    RING_SMALL = "ring_small";
    /// The PCIe link of a NIC is slower than its network link.
    PCIE_BELOW_LINK = "pcie_below_link";
    /// The PCIe link of a NIC runs with fewer lanes or a lower speed than it can.
    PCIE_NARROWED = "pcie_narrowed";
    /// GRO is off: each received packet passes the stack by itself.
    GRO_OFF = "gro_off";
    /// GSO is off: each sent packet passes the stack by itself.
    GSO_OFF = "gso_off";
    /// One CPU receives all interrupts of a NIC.
    INTERRUPTS_ON_ONE_CPU = "interrupts_on_one_cpu";
    /// The interrupts of a NIC run on a CPU of another NUMA node.
    NUMA_NODE = "numa_node";
}
