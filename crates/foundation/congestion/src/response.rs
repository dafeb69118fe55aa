//! The window, or rate, that TCP holds at a rate of loss: formulas of papers.
//!
//! Each packet is lost by itself with probability `loss`, 0 to 1; windows are means, in packets.

/// Mathis et al., ACM CCR 27(3), 1997: `sqrt(3/(2·b·p))`, with one ACK for `packets_an_ack` packets. One where each packet counts
/// (RFC 3465), as in Linux: `1.22/sqrt(p)`.
pub fn mathis_window(loss: f64, packets_an_ack: f64) -> f64 {
    (1.5 / (packets_an_ack * loss)).sqrt()
}

/// Padhye et al., SIGCOMM 1998, Eq. 32, which includes timeouts; as RFC 5348 §3.1 without the receiver's window. Packets a second,
/// given the round trip and the retransmission timeout in seconds.
pub fn padhye_rate(loss: f64, rtt_s: f64, timeout_s: f64, packets_an_ack: f64) -> f64 {
    let b = packets_an_ack;
    let fast = rtt_s * (2.0 * b * loss / 3.0).sqrt();
    let slow = timeout_s * (3.0 * (3.0 * b * loss / 8.0).sqrt()).min(1.0) * loss * (1.0 + 32.0 * loss * loss);
    1.0 / (fast + slow)
}

/// [`padhye_rate`] as a window, with the timeout of Linux on a steady path: a round trip and 200 ms.
pub fn padhye_window(loss: f64, rtt_s: f64) -> f64 {
    padhye_rate(loss, rtt_s, rtt_s + 0.2, 1.0) * rtt_s
}

/// RFC 3649 §5: `0.12/p^0.835` below 10⁻³, standard TCP's beyond.
pub fn rfc3649_window(loss: f64) -> f64 {
    if loss > 1e-3 { mathis_window(loss, 1.0) } else { 0.12 / loss.powf(0.835) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, wanted: f64, within: f64) {
        assert!((value / wanted - 1.0).abs() < within, "{value}, not {wanted}");
    }

    #[test]
    fn mathis() {
        near(mathis_window(1e-4, 1.0), 122.5, 1e-3);
        near(mathis_window(1e-4, 2.0), 86.6, 1e-3);
        // RFC 3649 §2: 83,333 segments bear a loss in 5·10⁹ packets.
        near(mathis_window(1.0 / 5e9, 1.0), 83_333.0, 0.05);
    }

    /// RFC 5348 §4.3's formula by hand: p = 0.01, R = 100 ms, t_RTO = 400 ms, b = 1.
    #[test]
    fn padhye() {
        // 0.1·sqrt(0.02/3) = 8.165e-3; 0.4·3·sqrt(0.00375) = 0.073485·0.01·1.0032 = 7.372e-4.
        near(padhye_rate(0.01, 0.1, 0.4, 1.0), 1.0 / 8.902e-3, 1e-3);
        // Without timeouts it is Mathis'.
        near(padhye_window(1e-8, 0.1), mathis_window(1e-8, 1.0), 1e-2);
        assert!(padhye_window(0.3, 0.1) < 1.0);
    }

    /// RFC 3649, Table 3 and 4.
    #[test]
    fn highspeed() {
        near(rfc3649_window(1e-7), 83_981.0, 0.01);
        near(rfc3649_window(1e-10), 26_864_653.0, 0.01);
        near(rfc3649_window(1e-2), 12.2, 0.01);
    }
}
