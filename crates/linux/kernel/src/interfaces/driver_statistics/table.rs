//! The table, a driver after the other. It holds what was seen in a source; a counter that is in none of these lists is unknown.
//!
//! What is not in it on purpose:
//! - i40e's `rx_dropped`: packets for which the ring was full before Linux 6.7, other discards since; `port.rx_dropped`
//!   (before) and `port.rx_discards` (since) do not change their meaning.
//! - a veth's full ring: it is in no driver counter, but in `tx_dropped` of the *other* end (`rtnl_link_stats64`).
//! - ena's dropped packets: only in `rx_dropped` and `tx_dropped` of `rtnl_link_stats64`.
//! - counters of bytes and of time.

use super::Meaning::{
    self, ChecksumError, CrcError, DeviceMemoryFull, DriverDrop, FilterDrop, LengthError, NoMemory, PauseReceived,
    PauseSent, ProviderLimit, ReceiveError, RefillFailed, RingFull, RingWasEmpty, TransmitDrop, TransmitError,
    TransmitQueueFull, XdpDrop, XdpError,
};
use super::Row;

const IXGBE: &str = "drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c ixgbe_gstrings_stats";
const IXGBE_UPDATE: &str = "drivers/net/ethernet/intel/ixgbe/ixgbe_main.c ixgbe_update_stats";
const I40E: &str = "drivers/net/ethernet/intel/i40e/i40e_ethtool.c i40e_gstrings_stats";
const I40E_NET: &str = "drivers/net/ethernet/intel/i40e/i40e_ethtool.c i40e_gstrings_net_stats";
const I40E_MISC: &str = "drivers/net/ethernet/intel/i40e/i40e_ethtool.c i40e_gstrings_misc_stats";
const I40E_NETDEV: &str = "drivers/net/ethernet/intel/i40e/i40e_main.c i40e_get_netdev_stats_struct";
const ICE: &str = "drivers/net/ethernet/intel/ice/ice_ethtool.c ice_gstrings_pf_stats";
const ICE_VSI: &str = "drivers/net/ethernet/intel/ice/ice_ethtool.c ice_gstrings_vsi_stats";
const IGB: &str = "drivers/net/ethernet/intel/igb/igb_ethtool.c igb_gstrings_stats";
const IGB_UPDATE: &str = "drivers/net/ethernet/intel/igb/igb_main.c igb_update_stats";
const IGB_QUEUES: &str = "drivers/net/ethernet/intel/igb/igb_ethtool.c igb_get_strings";
const E1000E: &str = "drivers/net/ethernet/intel/e1000e/ethtool.c e1000_gstrings_stats";
const MLX4: &str = "drivers/net/ethernet/mellanox/mlx4/en_port.c mlx4_en_DUMP_ETH_STATS";
const MLX4_STRINGS: &str = "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c mlx4_en_get_strings";
const MLX4_MAIN: &str = "drivers/net/ethernet/mellanox/mlx4/en_ethtool.c main_strings";
const MLX5: &str = "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst counter tables";
const BNXT_PORT: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_port_stats_arr";
const BNXT_RX: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_ring_rx_stats_str";
const BNXT_TX: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_ring_tx_stats_str";
const BNXT_TOTALS: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_ring_err_stats_arr";
const BNXT_GET: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt.c bnxt_get_ring_stats";
const BNXT_EXT: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_port_stats_ext_arr";
const BNXT_SW: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_get_strings";
const BNXT_OLD: &str = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c bnxt_sw_func_stats";
const ENA_RX: &str = "drivers/net/ethernet/amazon/ena/ena_ethtool.c ena_stats_rx_strings";
const ENA_TX: &str = "drivers/net/ethernet/amazon/ena/ena_ethtool.c ena_stats_tx_strings";
const ENA_LIMITS: &str = "drivers/net/ethernet/amazon/ena/ena_ethtool.c ena_stats_eni_strings";
const ENA_CHECK: &str = "drivers/net/ethernet/amazon/ena/ena_netdev.c check_for_empty_rx_ring";
const ENA_CSUM: &str = "drivers/net/ethernet/amazon/ena/ena_netdev.c ena_rx_checksum";
const VIRTIO_RX: &str = "drivers/net/virtio_net.c virtnet_rq_stats_desc";
const VIRTIO_XDP: &str = "drivers/net/virtio_net.c receive_small_xdp";
const VIRTIO_TX: &str = "drivers/net/virtio_net.c virtnet_sq_stats_desc";
const VMXNET3_RX: &str = "drivers/net/vmxnet3/vmxnet3_ethtool.c vmxnet3_rq_dev_stats";
const VMXNET3_RX_DRIVER: &str = "drivers/net/vmxnet3/vmxnet3_ethtool.c vmxnet3_rq_driver_stats";
const VMXNET3_TX: &str = "drivers/net/vmxnet3/vmxnet3_ethtool.c vmxnet3_tq_dev_stats";
const VMXNET3_TX_DRIVER: &str = "drivers/net/vmxnet3/vmxnet3_ethtool.c vmxnet3_tq_driver_stats";
const VETH: &str = "drivers/net/veth.c veth_xdp_rcv_skb";
const VETH_RQ: &str = "drivers/net/veth.c veth_rq_stats_desc";
const VETH_TQ: &str = "drivers/net/veth.c veth_tq_stats_desc";

const fn row(driver: &'static str, pattern: &'static str, meaning: Meaning, source: &'static str) -> Row {
    Row { driver, pattern, meaning, source, part_of: None }
}

/// Also counted by `whole`.
const fn part(row: Row, whole: &'static str) -> Row {
    Row { part_of: Some(whole), ..row }
}

/// Every counter whose meaning is known.
pub const ROWS: &[Row] = &[
    row("ixgbe", "rx_missed_errors", DeviceMemoryFull, IXGBE_UPDATE),
    row("ixgbe", "rx_no_dma_resources", RingFull, IXGBE_UPDATE),
    row("ixgbe", "rx_no_buffer_count", RingWasEmpty, IXGBE),
    row("ixgbe", "rx_crc_errors", CrcError, IXGBE_UPDATE),
    row("ixgbe", "rx_long_length_errors", LengthError, IXGBE),
    row("ixgbe", "rx_short_length_errors", LengthError, IXGBE),
    row("ixgbe", "rx_csum_offload_errors", ChecksumError, IXGBE),
    row("ixgbe", "alloc_rx_page_failed", RefillFailed, IXGBE),
    row("ixgbe", "alloc_rx_buff_failed", RefillFailed, IXGBE),
    row("ixgbe", "tx_restart_queue", TransmitQueueFull, IXGBE),
    row("ixgbe", "tx_busy", TransmitQueueFull, IXGBE),
    row("ixgbe", "rx_flow_control_xoff", PauseReceived, IXGBE),
    row("ixgbe", "tx_flow_control_xoff", PauseSent, IXGBE),
    row("i40e", "port.rx_discards", RingFull, I40E),
    part(row("i40e", "rx_missed_errors", RingFull, I40E_NETDEV), "port.rx_discards"),
    row("i40e", "port.rx_dropped", RingFull, I40E),
    row("i40e", "port.rx_crc_errors", CrcError, I40E),
    part(row("i40e", "rx_crc_errors", CrcError, I40E_NET), "port.rx_crc_errors"),
    row("i40e", "port.rx_length_errors", LengthError, I40E),
    part(row("i40e", "rx_length_errors", LengthError, I40E_NET), "port.rx_length_errors"),
    row("i40e", "port.rx_undersize", LengthError, I40E),
    row("i40e", "port.rx_fragments", LengthError, I40E),
    row("i40e", "port.rx_oversize", LengthError, I40E),
    row("i40e", "port.rx_jabber", LengthError, I40E),
    row("i40e", "port.rx_csum_bad", ChecksumError, I40E),
    row("i40e", "rx_alloc_fail", RefillFailed, I40E_MISC),
    row("i40e", "rx_pg_alloc_fail", RefillFailed, I40E_MISC),
    row("i40e", "tx_busy", TransmitQueueFull, I40E_MISC),
    row("i40e", "port.tx_dropped_link_down", TransmitDrop, I40E),
    row("i40e", "port.tx_errors", TransmitDrop, I40E),
    row("i40e", "port.link_xoff_rx", PauseReceived, I40E),
    row("i40e", "port.link_xoff_tx", PauseSent, I40E),
    row("ice", "rx_dropped.nic", RingFull, ICE),
    part(row("ice", "rx_dropped", RingFull, ICE_VSI), "rx_dropped.nic"),
    row("ice", "rx_crc_errors.nic", CrcError, ICE),
    row("ice", "rx_undersize.nic", LengthError, ICE),
    row("ice", "rx_fragments.nic", LengthError, ICE),
    row("ice", "rx_oversize.nic", LengthError, ICE),
    row("ice", "rx_jabber.nic", LengthError, ICE),
    row("ice", "rx_csum_bad.nic", ChecksumError, ICE),
    row("ice", "rx_alloc_fail", RefillFailed, ICE_VSI),
    row("ice", "rx_pg_alloc_fail", RefillFailed, ICE_VSI),
    row("ice", "tx_busy", TransmitQueueFull, ICE_VSI),
    row("ice", "tx_errors", TransmitDrop, ICE_VSI),
    row("ice", "tx_dropped_link_down.nic", TransmitDrop, ICE),
    row("ice", "link_xoff_rx.nic", PauseReceived, ICE),
    row("ice", "link_xoff_tx.nic", PauseSent, ICE),
    row("igb", "rx_fifo_errors", RingFull, IGB_UPDATE),
    part(row("igb", "rx_queue_*_drops", RingFull, IGB_UPDATE), "rx_fifo_errors"),
    row("igb", "rx_missed_errors", DeviceMemoryFull, IGB),
    row("igb", "rx_no_buffer_count", RingWasEmpty, IGB),
    row("igb", "rx_crc_errors", CrcError, IGB),
    row("igb", "rx_align_errors", ReceiveError, IGB),
    row("igb", "rx_long_length_errors", LengthError, IGB),
    row("igb", "rx_short_length_errors", LengthError, IGB),
    row("igb", "rx_queue_*_csum_err", ChecksumError, IGB_QUEUES),
    row("igb", "rx_queue_*_alloc_failed", RefillFailed, IGB_QUEUES),
    row("igb", "tx_aborted_errors", TransmitError, IGB),
    row("igb", "tx_carrier_errors", TransmitError, IGB),
    row("igb", "tx_window_errors", TransmitError, IGB),
    row("igb", "rx_flow_control_xoff", PauseReceived, IGB),
    row("igb", "tx_flow_control_xoff", PauseSent, IGB),
    row("e1000e", "rx_missed_errors", DeviceMemoryFull, E1000E),
    row("e1000e", "rx_no_buffer_count", RingWasEmpty, E1000E),
    row("e1000e", "rx_crc_errors", CrcError, E1000E),
    row("e1000e", "rx_align_errors", ReceiveError, E1000E),
    row("e1000e", "rx_length_errors", LengthError, E1000E),
    part(row("e1000e", "rx_long_length_errors", LengthError, E1000E), "rx_length_errors"),
    part(row("e1000e", "rx_short_length_errors", LengthError, E1000E), "rx_length_errors"),
    row("e1000e", "rx_csum_offload_errors", ChecksumError, E1000E),
    row("e1000e", "alloc_rx_buff_failed", RefillFailed, E1000E),
    row("e1000e", "tx_dropped", TransmitDrop, E1000E),
    row("e1000e", "tx_aborted_errors", TransmitError, E1000E),
    row("e1000e", "tx_carrier_errors", TransmitError, E1000E),
    row("e1000e", "tx_window_errors", TransmitError, E1000E),
    row("e1000e", "tx_restart_queue", TransmitQueueFull, E1000E),
    row("e1000e", "rx_flow_control_xoff", PauseReceived, E1000E),
    row("e1000e", "tx_flow_control_xoff", PauseSent, E1000E),
    row("mlx4_en", "rx_fifo_errors", DeviceMemoryFull, MLX4),
    part(row("mlx4_en", "rx_over_errors", DeviceMemoryFull, MLX4), "rx_fifo_errors"),
    part(row("mlx4_en", "rx_missed_errors", DeviceMemoryFull, MLX4), "rx_fifo_errors"),
    row("mlx4_en", "rx_dropped", DriverDrop, MLX4),
    part(row("mlx4_en", "rx*_dropped", NoMemory, MLX4_STRINGS), "rx_dropped"),
    row("mlx4_en", "rx*_xdp_drop", XdpDrop, MLX4_STRINGS),
    row("mlx4_en", "rx*_xdp_tx_full", XdpError, MLX4_STRINGS),
    row("mlx4_en", "rx*_xdp_redirect_fail", XdpError, MLX4_STRINGS),
    row("mlx4_en", "rx_crc_errors", CrcError, MLX4),
    row("mlx4_en", "rx_length_errors", LengthError, MLX4),
    row("mlx4_en", "tx_dropped", TransmitDrop, MLX4),
    row("mlx4_en", "queue_stopped", TransmitQueueFull, MLX4),
    row("mlx4_en", "rx_alloc_failed", RefillFailed, MLX4_MAIN),
    row("mlx5_core", "rx_out_of_buffer", RingFull, MLX5),
    row("mlx5_core", "rx_discards_phy", DeviceMemoryFull, MLX5),
    part(row("mlx5_core", "rx_prio*_discards", DeviceMemoryFull, MLX5), "rx_discards_phy"),
    row("mlx5_core", "rx_prio*_buf_discard", DeviceMemoryFull, MLX5),
    row("mlx5_core", "rx_prio*_cong_discard", DeviceMemoryFull, MLX5),
    row("mlx5_core", "outbound_pci_buffer_overflow", DeviceMemoryFull, MLX5),
    row("mlx5_core", "dev_internal_queue_oob", DeviceMemoryFull, MLX5),
    row("mlx5_core", "rx_steer_missed_packets", FilterDrop, MLX5),
    row("mlx5_core", "rx_if_down_packets", FilterDrop, MLX5),
    row("mlx5_core", "rx_oversize_pkts_buffer", LengthError, MLX5),
    row("mlx5_core", "rx_oversize_pkts_sw_drop", LengthError, MLX5),
    part(row("mlx5_core", "rx*_oversize_pkts_sw_drop", LengthError, MLX5), "rx_oversize_pkts_sw_drop"),
    row("mlx5_core", "rx_buff_alloc_err", RefillFailed, MLX5),
    part(row("mlx5_core", "rx*_buff_alloc_err", RefillFailed, MLX5), "rx_buff_alloc_err"),
    row("mlx5_core", "rx_wqe_err", ReceiveError, MLX5),
    part(row("mlx5_core", "rx*_wqe_err", ReceiveError, MLX5), "rx_wqe_err"),
    row("mlx5_core", "rx_crc_errors_phy", CrcError, MLX5),
    row("mlx5_core", "rx_in_range_len_errors_phy", LengthError, MLX5),
    row("mlx5_core", "rx_out_of_range_len_phy", LengthError, MLX5),
    row("mlx5_core", "rx_oversize_pkts_phy", LengthError, MLX5),
    row("mlx5_core", "rx_undersize_pkts_phy", LengthError, MLX5),
    row("mlx5_core", "rx_fragments_phy", LengthError, MLX5),
    row("mlx5_core", "rx_jabbers_phy", LengthError, MLX5),
    row("mlx5_core", "rx_symbol_err_phy", ReceiveError, MLX5),
    row("mlx5_core", "rx_xdp_drop", XdpDrop, MLX5),
    part(row("mlx5_core", "rx*_xdp_drop", XdpDrop, MLX5), "rx_xdp_drop"),
    row("mlx5_core", "rx_xdp_tx_full", XdpError, MLX5),
    part(row("mlx5_core", "rx*_xdp_tx_full", XdpError, MLX5), "rx_xdp_tx_full"),
    row("mlx5_core", "rx_xdp_tx_err", XdpError, MLX5),
    part(row("mlx5_core", "rx*_xdp_tx_err", XdpError, MLX5), "rx_xdp_tx_err"),
    row("mlx5_core", "tx_xdp_full", XdpError, MLX5),
    part(row("mlx5_core", "tx*_xdp_full", XdpError, MLX5), "tx_xdp_full"),
    row("mlx5_core", "tx_xdp_err", XdpError, MLX5),
    part(row("mlx5_core", "tx*_xdp_err", XdpError, MLX5), "tx_xdp_err"),
    row("mlx5_core", "tx_discards_phy", TransmitDrop, MLX5),
    row("mlx5_core", "tx_errors_phy", TransmitDrop, MLX5),
    row("mlx5_core", "tx_queue_dropped", TransmitDrop, MLX5),
    part(row("mlx5_core", "tx*_dropped", TransmitDrop, MLX5), "tx_queue_dropped"),
    row("mlx5_core", "tx_queue_stopped", TransmitQueueFull, MLX5),
    part(row("mlx5_core", "tx*_stopped", TransmitQueueFull, MLX5), "tx_queue_stopped"),
    row("mlx5_core", "rx_pause_ctrl_phy", PauseReceived, MLX5),
    part(row("mlx5_core", "rx_global_pause", PauseReceived, MLX5), "rx_pause_ctrl_phy"),
    row("mlx5_core", "tx_pause_ctrl_phy", PauseSent, MLX5),
    part(row("mlx5_core", "tx_global_pause", PauseSent, MLX5), "tx_pause_ctrl_phy"),
    row("mlx5_core", "rx_prio*_pause", PauseReceived, MLX5),
    row("mlx5_core", "tx_prio*_pause", PauseSent, MLX5),
    row("bnxt_en", "rx_total_ring_discards", RingFull, BNXT_TOTALS),
    part(row("bnxt_en", "[*]: rx_discards", RingFull, BNXT_GET), "rx_total_ring_discards"),
    part(row("bnxt_en", "rx_total_discard_pkts", RingFull, BNXT_OLD), "rx_total_ring_discards"),
    row("bnxt_en", "rx_stat_discard", DeviceMemoryFull, BNXT_PORT),
    part(row("bnxt_en", "rx_discard_packets_cos*", DeviceMemoryFull, BNXT_EXT), "rx_stat_discard"),
    row("bnxt_en", "rx_total_oom_discards", NoMemory, BNXT_TOTALS),
    row("bnxt_en", "rx_total_netpoll_discards", DriverDrop, BNXT_TOTALS),
    row("bnxt_en", "rx_filter_miss", FilterDrop, BNXT_EXT),
    row("bnxt_en", "[*]: rx_errors", ReceiveError, BNXT_RX),
    row("bnxt_en", "rx_total_buf_errors", ReceiveError, BNXT_TOTALS),
    part(row("bnxt_en", "[*]: rx_buf_errors", ReceiveError, BNXT_SW), "rx_total_buf_errors"),
    row("bnxt_en", "rx_fcs_err_frames", CrcError, BNXT_PORT),
    row("bnxt_en", "rx_align_err_frames", ReceiveError, BNXT_PORT),
    row("bnxt_en", "rx_ovrsz_frames", LengthError, BNXT_PORT),
    row("bnxt_en", "rx_jbr_frames", LengthError, BNXT_PORT),
    row("bnxt_en", "rx_mtu_err_frames", LengthError, BNXT_PORT),
    row("bnxt_en", "rx_undrsz_frames", LengthError, BNXT_PORT),
    row("bnxt_en", "rx_runt_frames", LengthError, BNXT_PORT),
    row("bnxt_en", "rx_total_l4_csum_errors", ChecksumError, BNXT_TOTALS),
    part(row("bnxt_en", "[*]: rx_l4_csum_errors", ChecksumError, BNXT_SW), "rx_total_l4_csum_errors"),
    row("bnxt_en", "tx_total_ring_discards", TransmitDrop, BNXT_TOTALS),
    part(row("bnxt_en", "[*]: tx_discards", TransmitDrop, BNXT_TX), "tx_total_ring_discards"),
    row("bnxt_en", "[*]: tx_errors", TransmitDrop, BNXT_GET),
    row("bnxt_en", "tx_stat_discard", TransmitDrop, BNXT_PORT),
    row("bnxt_en", "tx_err", TransmitError, BNXT_PORT),
    row("bnxt_en", "tx_fifo_underruns", TransmitError, BNXT_PORT),
    row("bnxt_en", "rx_pause_frames", PauseReceived, BNXT_PORT),
    row("bnxt_en", "tx_pause_frames", PauseSent, BNXT_PORT),
    row("ena", "bw_in_allowance_exceeded", ProviderLimit, ENA_LIMITS),
    row("ena", "bw_out_allowance_exceeded", ProviderLimit, ENA_LIMITS),
    row("ena", "pps_allowance_exceeded", ProviderLimit, ENA_LIMITS),
    row("ena", "conntrack_allowance_exceeded", ProviderLimit, ENA_LIMITS),
    row("ena", "linklocal_allowance_exceeded", ProviderLimit, ENA_LIMITS),
    row("ena", "queue_*_rx_skb_alloc_fail", NoMemory, ENA_RX),
    row("ena", "queue_*_rx_page_alloc_fail", RefillFailed, ENA_RX),
    row("ena", "queue_*_rx_refil_partial", RefillFailed, ENA_RX),
    row("ena", "queue_*_rx_empty_rx_ring", RefillFailed, ENA_CHECK),
    row("ena", "queue_*_rx_dma_mapping_err", RefillFailed, ENA_RX),
    row("ena", "queue_*_rx_bad_desc_num", ReceiveError, ENA_RX),
    row("ena", "queue_*_rx_bad_req_id", ReceiveError, ENA_RX),
    row("ena", "queue_*_rx_csum_bad", ChecksumError, ENA_CSUM),
    row("ena", "queue_*_rx_bad_csum", ChecksumError, ENA_CSUM),
    row("ena", "queue_*_rx_xdp_drop", XdpDrop, ENA_RX),
    row("ena", "queue_*_rx_xdp_aborted", XdpError, ENA_RX),
    row("ena", "queue_*_rx_xdp_invalid", XdpError, ENA_RX),
    row("ena", "queue_*_tx_queue_stop", TransmitQueueFull, ENA_TX),
    row("ena", "queue_*_tx_dma_mapping_err", TransmitDrop, ENA_TX),
    row("ena", "queue_*_tx_linearize_failed", TransmitDrop, ENA_TX),
    row("ena", "queue_*_tx_prepare_ctx_err", TransmitDrop, ENA_TX),
    row("ena", "queue_*_tx_missed_tx", TransmitError, ENA_TX),
    row("virtio_net", "rx_drops", DriverDrop, VIRTIO_RX),
    part(row("virtio_net", "rx*_drops", DriverDrop, VIRTIO_RX), "rx_drops"),
    part(row("virtio_net", "rx_queue_*_drops", DriverDrop, VIRTIO_RX), "rx_drops"),
    part(row("virtio_net", "rx_xdp_drops", XdpDrop, VIRTIO_XDP), "rx_drops"),
    part(row("virtio_net", "rx*_xdp_drops", XdpDrop, VIRTIO_XDP), "rx_drops"),
    part(row("virtio_net", "rx_queue_*_xdp_drops", XdpDrop, VIRTIO_XDP), "rx_drops"),
    row("virtio_net", "tx_xdp_tx_drops", XdpError, VIRTIO_TX),
    part(row("virtio_net", "tx*_xdp_tx_drops", XdpError, VIRTIO_TX), "tx_xdp_tx_drops"),
    part(row("virtio_net", "tx_queue_*_xdp_tx_drops", XdpError, VIRTIO_TX), "tx_xdp_tx_drops"),
    row("virtio_net", "tx_tx_timeouts", TransmitError, VIRTIO_TX),
    part(row("virtio_net", "tx*_tx_timeouts", TransmitError, VIRTIO_TX), "tx_tx_timeouts"),
    part(row("virtio_net", "tx_queue_*_tx_timeouts", TransmitError, VIRTIO_TX), "tx_tx_timeouts"),
    row("vmxnet3", "  pkts rx OOB", RingFull, VMXNET3_RX),
    row("vmxnet3", "  pkts rx err", ReceiveError, VMXNET3_RX),
    row("vmxnet3", "  drv dropped rx total", DriverDrop, VMXNET3_RX_DRIVER),
    part(row("vmxnet3", "     err", ReceiveError, VMXNET3_RX_DRIVER), "  drv dropped rx total"),
    part(row("vmxnet3", "     fcs", CrcError, VMXNET3_RX_DRIVER), "  drv dropped rx total"),
    row("vmxnet3", "  rx buf alloc fail", RefillFailed, VMXNET3_RX_DRIVER),
    row("vmxnet3", "  pkts tx err", TransmitDrop, VMXNET3_TX),
    row("vmxnet3", "  pkts tx discard", TransmitDrop, VMXNET3_TX),
    row("vmxnet3", "  drv dropped tx total", TransmitDrop, VMXNET3_TX_DRIVER),
    part(row("vmxnet3", "     too many frags", TransmitDrop, VMXNET3_TX_DRIVER), "  drv dropped tx total"),
    part(row("vmxnet3", "     giant hdr", TransmitDrop, VMXNET3_TX_DRIVER), "  drv dropped tx total"),
    part(row("vmxnet3", "     hdr err", TransmitDrop, VMXNET3_TX_DRIVER), "  drv dropped tx total"),
    part(row("vmxnet3", "     tso", TransmitDrop, VMXNET3_TX_DRIVER), "  drv dropped tx total"),
    row("vmxnet3", "  ring full", TransmitQueueFull, VMXNET3_TX_DRIVER),
    row("veth", "rx_queue_*_drops", DriverDrop, VETH),
    row("veth", "rx_queue_*_xdp_drops", XdpDrop, VETH_RQ),
    row("veth", "rx_queue_*_xdp_tx_errors", XdpError, VETH_RQ),
    row("veth", "tx_queue_*_xdp_xmit_errors", XdpError, VETH_TQ),
];
