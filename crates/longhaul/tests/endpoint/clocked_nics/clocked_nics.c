// SPDX-License-Identifier: GPL-2.0
/*
 * Two virtual NICs on one cable, clocked0 and clocked1, for tests in a guest: each has a clock of its own that counts from when the kernel
 * booted, too fast or too slow, and stamps with it every packet that it sends and receives. As a NIC that moderates its interrupts does, each
 * keeps what it received for a time before the kernel gets it.
 *
 * /sys/module/clocked_nics/parameters/stamps_received: whether each stamps what it receives.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/net_tstamp.h>
#include <linux/netdevice.h>
#include <linux/ptp_clock_kernel.h>

static unsigned int hold_us = 500;
module_param(hold_us, uint, 0444);
MODULE_PARM_DESC(hold_us, "how long a NIC keeps what it received, microseconds");

static int stamps_received[2];
module_param_array(stamps_received, int, NULL, 0444);

struct nic {
	unsigned int number;
	struct net_device *peer;
	struct hwtstamp_config config;
	struct ptp_clock_info info;
	struct ptp_clock *clock;
	int drift_ppm;
	struct sk_buff_head kept;
	struct hrtimer timer;
};

static struct net_device *nics[2];

static u64 clock_ns(const struct nic *nic)
{
	s64 ns = ktime_get_ns();

	return ns + div_s64(ns, 1000000) * nic->drift_ppm;
}

static int read_clock(struct ptp_clock_info *info, struct timespec64 *now, struct ptp_system_timestamp *system)
{
	ptp_read_system_prets(system);
	*now = ns_to_timespec64(clock_ns(container_of(info, struct nic, info)));
	ptp_read_system_postts(system);
	return 0;
}

static int set_clock(struct ptp_clock_info *info, const struct timespec64 *now)
{
	return -EOPNOTSUPP;
}

static int move_clock(struct ptp_clock_info *info, s64 by)
{
	return -EOPNOTSUPP;
}

static int drive_clock(struct ptp_clock_info *info, long scaled_ppm)
{
	return -EOPNOTSUPP;
}

static enum hrtimer_restart interrupt(struct hrtimer *timer)
{
	struct nic *nic = container_of(timer, struct nic, timer);
	struct sk_buff *packet;

	while ((packet = skb_dequeue(&nic->kept)))
		netif_rx(packet);
	return HRTIMER_NORESTART;
}

static netdev_tx_t transmit(struct sk_buff *packet, struct net_device *device)
{
	struct nic *own = netdev_priv(device);
	struct nic *other = netdev_priv(own->peer);
	struct sk_buff *copy;

	skb_tx_timestamp(packet);
	if (skb_shinfo(packet)->tx_flags & SKBTX_HW_TSTAMP && own->config.tx_type == HWTSTAMP_TX_ON) {
		struct skb_shared_hwtstamps stamp = { .hwtstamp = ns_to_ktime(clock_ns(own)) };

		skb_shinfo(packet)->tx_flags |= SKBTX_IN_PROGRESS;
		skb_tstamp_tx(packet, &stamp);
	}
	copy = netif_running(own->peer) ? skb_copy(packet, GFP_ATOMIC) : NULL;
	dev_consume_skb_any(packet);
	if (!copy)
		return NETDEV_TX_OK;
	copy->tstamp = 0;
	skb_shinfo(copy)->tx_flags = 0;
	copy->protocol = eth_type_trans(copy, own->peer);
	copy->ip_summed = CHECKSUM_UNNECESSARY;
	if (other->config.rx_filter == HWTSTAMP_FILTER_ALL)
		skb_hwtstamps(copy)->hwtstamp = ns_to_ktime(clock_ns(other));
	skb_queue_tail(&other->kept, copy);
	if (!hrtimer_active(&other->timer))
		hrtimer_start(&other->timer, ns_to_ktime((u64)hold_us * NSEC_PER_USEC), HRTIMER_MODE_REL_SOFT);
	return NETDEV_TX_OK;
}

static int settings(struct net_device *device, struct ifreq *request, int command)
{
	struct nic *nic = netdev_priv(device);

	if (command == SIOCSHWTSTAMP && copy_from_user(&nic->config, request->ifr_data, sizeof(nic->config)))
		return -EFAULT;
	stamps_received[nic->number] = nic->config.rx_filter == HWTSTAMP_FILTER_ALL;
	if (command != SIOCSHWTSTAMP && command != SIOCGHWTSTAMP)
		return -EOPNOTSUPP;
	return copy_to_user(request->ifr_data, &nic->config, sizeof(nic->config)) ? -EFAULT : 0;
}

static int stamps(struct net_device *device, struct ethtool_ts_info *info)
{
	struct nic *nic = netdev_priv(device);

	info->so_timestamping = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
				SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
	info->phc_index = ptp_clock_index(nic->clock);
	info->tx_types = BIT(HWTSTAMP_TX_OFF) | BIT(HWTSTAMP_TX_ON);
	info->rx_filters = BIT(HWTSTAMP_FILTER_NONE) | BIT(HWTSTAMP_FILTER_ALL);
	return 0;
}

static const struct net_device_ops operations = {
	.ndo_start_xmit = transmit,
	.ndo_eth_ioctl = settings,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static const struct ethtool_ops tool = {
	.get_link = ethtool_op_get_link,
	.get_ts_info = stamps,
};

static struct net_device *create(unsigned int number, int drift_ppm)
{
	struct net_device *device = alloc_etherdev(sizeof(struct nic));
	struct nic *nic;

	if (!device)
		return NULL;
	nic = netdev_priv(device);
	snprintf(device->name, sizeof(device->name), "clocked%u", number);
	device->netdev_ops = &operations;
	device->ethtool_ops = &tool;
	eth_hw_addr_random(device);
	nic->number = number;
	nic->drift_ppm = drift_ppm;
	skb_queue_head_init(&nic->kept);
	hrtimer_init(&nic->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	nic->timer.function = interrupt;
	nic->info = (struct ptp_clock_info){
		.owner = THIS_MODULE,
		.name = "clocked",
		.adjfine = drive_clock,
		.adjtime = move_clock,
		.settime64 = set_clock,
		.gettimex64 = read_clock,
	};
	nic->clock = ptp_clock_register(&nic->info, NULL);
	if (IS_ERR_OR_NULL(nic->clock) || register_netdev(device)) {
		free_netdev(device);
		return NULL;
	}
	return device;
}

static int __init clocked_nics_init(void)
{
	nics[0] = create(0, 50);
	nics[1] = create(1, -30);
	if (!nics[0] || !nics[1])
		return -ENOMEM;
	((struct nic *)netdev_priv(nics[0]))->peer = nics[1];
	((struct nic *)netdev_priv(nics[1]))->peer = nics[0];
	return 0;
}
module_init(clocked_nics_init);
MODULE_DESCRIPTION("Virtual NICs with clocks");
MODULE_LICENSE("GPL");
