//! The controls that longhaul brings, and the source of each.

use std::fmt;
use std::str::FromStr;

use crate::parameter::{self, Parameter};

/// A congestion control that longhaul brings as BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is its own name")]
pub enum Algorithm {
    Cubic,
    Highspeed,
    Scalable,
    Bic,
    Htcp,
    Hybla,
    Illinois,
    Westwood,
    Yeah,
    Vegas,
    Fast,
    Compound,
    Bbr3,
}

/// The source of parameters and rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Variant {
    /// The paper that describes the control.
    #[default]
    Paper,
    /// The Linux module of that name, for comparison.
    Linux,
}

/// The facts about a control.
struct Description {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    summary: &'static str,
    /// `None` where Linux has no such module.
    linux_differs: Option<&'static str>,
}

/// There is no such control.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no congestion control `{name}`: there are {}", all_names())]
pub struct UnknownAlgorithm {
    /// What was asked for.
    pub name: String,
}

fn all_names() -> String {
    Algorithm::ALL.map(Algorithm::name).join(", ")
}

impl Algorithm {
    /// All: CUBIC, then the others in the order of DataTAG and the NLR paper, then BBRv3.
    pub const ALL: [Self; 13] = [
        Self::Cubic,
        Self::Highspeed,
        Self::Scalable,
        Self::Bic,
        Self::Htcp,
        Self::Hybla,
        Self::Illinois,
        Self::Westwood,
        Self::Yeah,
        Self::Vegas,
        Self::Fast,
        Self::Compound,
        Self::Bbr3,
    ];

    /// Such as `scalable`: the name of its Linux module, of its C source, and after `lh_` in the kernel.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// Such as `Scalable TCP`.
    pub fn title(self) -> &'static str {
        self.description().title
    }

    /// The paper or RFC.
    pub fn source(self) -> &'static str {
        self.description().source
    }

    /// What it does, in a sentence.
    pub fn summary(self) -> &'static str {
        self.description().summary
    }

    /// How the Linux module differs from the paper; `None` where there is no such module.
    pub fn linux_differs(self) -> Option<&'static str> {
        self.description().linux_differs
    }

    /// Whether it has the parameters and rules of a Linux module, too. Linux has no FAST and no Compound, its CUBIC is in every kernel, and
    /// its `bbr` is BBRv1, another control.
    pub fn has_linux_variant(self) -> bool {
        !matches!(self, Self::Cubic | Self::Fast | Self::Compound | Self::Bbr3)
    }

    /// Whether it paces at a rate that it measures, and so needs the kernel's samples of it, with each ACK (`cong_control`).
    pub fn measures_rate(self) -> bool {
        self == Self::Bbr3
    }

    /// Its parameters, in the order of the C source.
    pub fn parameters(self) -> &'static [Parameter] {
        match self {
            Self::Cubic => parameter::CUBIC,
            Self::Highspeed => parameter::HIGHSPEED,
            Self::Scalable => parameter::SCALABLE,
            Self::Bic => parameter::BIC,
            Self::Htcp => parameter::HTCP,
            Self::Hybla => parameter::HYBLA,
            Self::Illinois => parameter::ILLINOIS,
            Self::Westwood => parameter::WESTWOOD,
            Self::Yeah => parameter::YEAH,
            Self::Vegas => parameter::VEGAS,
            Self::Fast => parameter::FAST,
            Self::Compound => parameter::COMPOUND,
            Self::Bbr3 => parameter::BBR3,
        }
    }

    /// The name under which programs select it: `lh_scalable`, and `lh_scalable_l` with Linux's parameters, so that both
    /// can be loaded. At most 15 characters, the limit of the kernel.
    pub fn kernel_name(self, variant: Variant) -> String {
        match variant {
            Variant::Paper => format!("lh_{}", self.name()),
            Variant::Linux => format!("lh_{}_l", self.name()),
        }
    }

    /// The control and variant with this name in the kernel.
    pub fn of_kernel_name(name: &str) -> Option<(Self, Variant)> {
        let all = Self::ALL.into_iter().flat_map(|algorithm| [Variant::Paper, Variant::Linux].map(|v| (algorithm, v)));
        all.into_iter().find(|(algorithm, variant)| algorithm.kernel_name(*variant) == name)
    }

    fn description(self) -> Description {
        match self {
            Self::Cubic => Description {
                name: "cubic",
                title: "CUBIC",
                source: "RFC 9438 (L. Xu et al., 2023)",
                summary: "a cubic function of the time since the last loss; slow start ends by HyStart++",
                linux_differs: Some(
                    "the kernel's own cubic has an older HyStart, and its time does not stand still while the application limits the flow",
                ),
            },
            Self::Highspeed => Description {
                name: "highspeed",
                title: "HighSpeed TCP",
                source: "RFC 3649 (S. Floyd, 2003)",
                summary: "standard TCP up to 38 packets, then an increase and a decrease that depend on the window",
                linux_differs: Some(
                    "takes the next row of the table, adds per ACK, decreases by the window of its last growth",
                ),
            },
            Self::Scalable => Description {
                name: "scalable",
                title: "Scalable TCP",
                source: "T. Kelly, ACM CCR 33(2), 2003",
                summary: "each acknowledged packet adds 0.01, a loss removes 1/8 of the window",
                linux_differs: Some("uses the increase of standard TCP up to 100 packets, removes 1/8 of any window"),
            },
            Self::Bic => Description {
                name: "bic",
                title: "BIC TCP",
                source: "L. Xu, K. Harfoush, I. Rhee, INFOCOM 2004",
                summary: "binary search between the windows before and after the last loss",
                linux_differs: Some(
                    "searches by quarters, keeps 0.8 at a loss, Smax 16, probes slowly beyond the maximum, divides by the ACK ratio",
                ),
            },
            Self::Htcp => Description {
                name: "htcp",
                title: "H-TCP",
                source: "draft-leith-tcp-htcp-06 (D. Leith, R. Shorten, 2008)",
                summary: "the increase grows with the time since the last loss, the decrease follows the queue's share of the RTT",
                linux_differs: Some(
                    "increases by whole packets, adapts the decrease only from an RTT of 10 ms on, drops fractions, counts jiffies",
                ),
            },
            Self::Hybla => Description {
                name: "hybla",
                title: "TCP Hybla",
                source: "C. Caini, R. Firrincieli, IJSCN 22(5), 2004",
                summary: "grows as fast as a flow with an RTT of 25 ms",
                linux_differs: Some("begins with a window of RTT/25 ms packets, at most 65,535, adds per ACK"),
            },
            Self::Illinois => Description {
                name: "illinois",
                title: "TCP-Illinois",
                source: "S. Liu, T. Başar, R. Srikant, Performance Evaluation 65, 2008",
                summary: "backs off at a loss; queueing delay decides by how much, and how fast the window grows",
                linux_differs: Some(
                    "increases by at least 0.3, adapts from 15 packets on, increases fully after 5 round trips of low delay",
                ),
            },
            Self::Westwood => Description {
                name: "westwood",
                title: "TCP Westwood+",
                source: "L. Grieco, S. Mascolo, ACM CCR 34(2), 2004",
                summary: "a loss sets the window to the measured rate times the least RTT",
                linux_differs: Some(
                    "keeps 7/8 of the estimate and smooths twice, samples of 50 ms at least, forgets the RTT after a timeout",
                ),
            },
            Self::Yeah => Description {
                name: "yeah",
                title: "YeAH-TCP",
                source: "A. Baiocchi, A. Castellani, F. Vacirca, PFLDnet 2007",
                summary: "Scalable TCP while queues are short, otherwise Reno that drains its own queue",
                linux_differs: Some(
                    "never forgets the least RTT of a flow that is not idle, nor restores its state after a spurious loss",
                ),
            },
            Self::Vegas => Description {
                name: "vegas",
                title: "TCP Vegas",
                source: "L. Brakmo, L. Peterson, IEEE JSAC 13(8), 1995",
                summary: "keeps two to four packets of its own in queues",
                linux_differs: Some(
                    "slow start doubles each round trip, a loss halves the window, packets in queues are counted a base RTT",
                ),
            },
            Self::Fast => Description {
                name: "fast",
                title: "FAST TCP",
                source: "D. Wei, C. Jin, S. Low, S. Hegde, IEEE/ACM ToN 14(6), 2006",
                summary: "keeps 200 packets of its own in queues; its steps are as large as the distance from that",
                linux_differs: None,
            },
            Self::Compound => Description {
                name: "compound",
                title: "Compound TCP",
                source: "draft-sridharan-tcpm-ctcp-02 (2008)",
                summary: "the window of Reno plus one that grows while delay is low",
                linux_differs: None,
            },
            Self::Bbr3 => Description {
                name: "bbr3",
                title: "BBRv3",
                source: "draft-ietf-ccwg-bbr-06 (N. Cardwell, I. Swett, J. Beshay, 2026)",
                summary: "paces at the rate that the path delivers; more than 2 % of loss while it probes bounds what is in flight",
                linux_differs: Some(
                    "the kernel's own bbr is BBRv1: it does not respond to loss, and ProbeRTT leaves four packets in flight",
                ),
            },
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// `scalable`, or `lh_scalable`.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let bare = name.strip_prefix("lh_").unwrap_or(name);
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == bare);
        found.ok_or_else(|| UnknownAlgorithm { name: name.into() })
    }
}

impl Variant {
    /// `paper` or `linux`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Linux => "linux",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_read_back() {
        for algorithm in Algorithm::ALL {
            for variant in [Variant::Paper, Variant::Linux] {
                let name = algorithm.kernel_name(variant);
                assert!(name.len() <= 15, "{name}");
                assert_eq!(Algorithm::of_kernel_name(&name), Some((algorithm, variant)));
            }
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(algorithm.kernel_name(Variant::Paper).parse(), Ok(algorithm));
        }
        assert_eq!(Algorithm::of_kernel_name("cubic"), None);
        let error = "renoo".parse::<Algorithm>().unwrap_err().to_string();
        assert!(error.contains("`renoo`") && error.contains("scalable, bic"), "{error}");
    }
}
