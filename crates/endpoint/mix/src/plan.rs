//! A mix as bytes: its frames, and the choice of the n-th.

use longhaul_wire::checksum::Sum;
use longhaul_wire::probe::Probe;

use crate::draw::{Alias, Random, draw};
use crate::frames::frame;
use crate::kind::Kind;
use crate::spec::{FCS_BYTES, MixSpec, Sizes, Span};
use crate::target::Target;

/// The most templates of a plan: they fit a CPU's cache, and are more than a receiver can tell apart.
pub const MOST_TEMPLATES: usize = 4096;
/// Templates of each class and span, with different addresses and (in a span) sizes. Eight have each framing of IPX
/// as unicast and as broadcast.
const VARIANTS: usize = 8;

/// A frame of the mix, before it is numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The index of its class in the mix.
    pub class: usize,
    /// Whether it is numbered before it is sent ([`Numbering`]).
    pub numbered: bool,
    /// The frame without FCS.
    pub bytes: Vec<u8>,
}

/// The frames of a mix, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The mix.
    pub spec: MixSpec,
    /// The seed of all random choices.
    pub seed: u64,
    /// The receiver of the numbered stream; `None` where the mix has none.
    pub target: Option<Target>,
    /// At most [`MOST_TEMPLATES`].
    pub templates: Vec<Template>,
    /// The choice among the templates.
    pub alias: Alias,
    mean_bytes: f64,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A class has frames for a target, and there is none.
    #[error("class `{class}` is for a target, and there is none")]
    NoTarget {
        /// The class.
        class: String,
    },
    /// A class has frames for a target of the other address family.
    #[error("class `{class}` needs an {family} target")]
    OtherFamily {
        /// The class.
        class: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
}

impl Plan {
    /// The frames of `spec`. The same `seed` makes the same frames, in the same order.
    ///
    /// # Errors
    /// [`PlanError::NoTarget`], [`PlanError::OtherFamily`].
    pub fn new(spec: MixSpec, seed: u64, target: Option<Target>) -> Result<Self, PlanError> {
        for class in spec.classes.iter().filter(|class| class.kind.takes_target() && class.weight > 0.0) {
            let (name, Some(target)) = (class.name.clone(), target) else {
                return Err(PlanError::NoTarget { class: class.name.clone() });
            };
            if let Some(ipv4) = class.kind.target_family().filter(|ipv4| *ipv4 != target.address.is_ipv4()) {
                return Err(PlanError::OtherFamily { class: name, family: if ipv4 { "IPv4" } else { "IPv6" } });
            }
        }
        let own = [Span { from: 0, to: 0, weight: 1.0 }];
        let mut templates = Vec::new();
        let mut weights = Vec::new();
        for (number, class) in spec.classes.iter().enumerate().filter(|(_, class)| class.weight > 0.0) {
            let spans = match &spec.sizes {
                Sizes::One(bytes) => &[Span { from: *bytes, to: *bytes, weight: 1.0 }][..],
                Sizes::Spread(spans) if class.kind.is_elastic() => spans,
                // The length of its kind.
                Sizes::Spread(_) => &own,
            };
            let variants = (MOST_TEMPLATES / (spec.classes.len() * spans.len())).clamp(1, VARIANTS);
            let sum: f64 = spans.iter().map(|span| span.weight).sum();
            for (at, span) in spans.iter().enumerate().filter(|(_, span)| span.weight > 0.0) {
                // Each class has its own random numbers, so that a change of one class does not change the others.
                let mut random = Random::new(crate::draw::random(seed, (1 << 32 | number << 8 | at) as u64));
                for variant in 0..variants {
                    let bytes = size_in(span, variant, variants, &mut random).saturating_sub(FCS_BYTES.into());
                    let bytes = frame(class.kind, variant, bytes, &mut random, target.as_ref());
                    templates.push(Template { class: number, numbered: class.kind == Kind::Stream, bytes });
                    weights.push(class.weight * span.weight / sum / variants as f64);
                }
            }
        }
        let weight: f64 = weights.iter().sum();
        let bytes: f64 = templates.iter().zip(&weights).map(|(t, weight)| t.bytes.len() as f64 * weight).sum();
        let mean_bytes = bytes / weight + f64::from(FCS_BYTES);
        Ok(Self { alias: Alias::new(&weights), spec, seed, target, templates, mean_bytes })
    }

    /// The index of the template of the frame with `number` (from 0).
    #[inline]
    pub fn choice(&self, number: u64) -> usize {
        draw(&self.alias, self.seed, number)
    }

    /// The mean length of a frame, in bytes, FCS included.
    pub fn mean_bytes(&self) -> f64 {
        self.mean_bytes
    }

    /// The length of the longest frame, in bytes without FCS.
    pub fn longest_bytes(&self) -> usize {
        self.templates.iter().map(|template| template.bytes.len()).max().unwrap_or(0)
    }
}

/// A size in the `variant`th of as many parts of `span`: the mean of all is near the span's middle, whatever the seed.
fn size_in(span: &Span, variant: usize, variants: usize, random: &mut Random) -> usize {
    let room = usize::from(span.to - span.from) + 1;
    let (from, to) = (room * variant / variants, (room * (variant + 1) / variants).max(1));
    let within = random.below((to.saturating_sub(from)).max(1) as u32) as usize;
    usize::from(span.from) + (from + within).min(room - 1)
}

/// Turns a template of the stream into a numbered frame.
#[derive(Debug)]
pub struct Numbering;

impl Numbering {
    /// The offset of the probe header in a frame of the stream: after Ethernet, IPv4 or IPv6, and UDP. The checksum of UDP is just before it.
    pub fn probe_at(frame: &[u8]) -> usize {
        if frame.get(12..14) == Some(&[0x86, 0xdd]) { 62 } else { 42 }
    }

    /// Writes the probe header into `frame`, a copy of a numbered template, and updates the checksum (RFC 1624, Eq. 3).
    pub fn write(frame: &mut [u8], probe: &Probe) {
        let at = Self::probe_at(frame);
        let Some(rest) = frame.get_mut(at..) else { return };
        if probe.emit(rest).is_none() {
            return;
        }
        let header = &frame[at..][..longhaul_wire::probe::HEADER_LEN];
        let old = u16::from_be_bytes([frame[at - 2], frame[at - 1]]);
        // The template has zeros there, so that the header is only added.
        let checksum = match Sum::ZERO.add_u16(!old).add_bytes(header).checksum() {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[at - 2..at].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use longhaul_wire::checksum::pseudo_v4;

    use longhaul_wire::probe::Cookie;

    use super::*;

    fn target() -> Target {
        Target {
            mac: [2, 0, 0, 0, 0, 2],
            address: [10, 0, 0, 2].into(),
            port: 5210,
            source: [10, 0, 0, 1].into(),
            source_port: 40_000,
            cookie: Cookie(0x1234_5600),
        }
    }

    fn nima(seed: u64) -> Plan {
        Plan::new(MixSpec::load("nima").unwrap(), seed, Some(target())).unwrap()
    }

    #[test]
    fn the_same_seed_makes_the_same_frames() {
        assert_eq!(nima(1), nima(1));
        let (one, other) = (nima(1), nima(2));
        assert_ne!(one.templates, other.templates);
        let first = |plan: &Plan| (0..1000).map(|number| plan.choice(number)).collect::<Vec<_>>();
        assert_eq!(first(&one), first(&nima(1)));
        assert_ne!(first(&one), first(&other));
    }

    /// The paper: 284 bytes on average, "representative of most networks".
    #[test]
    fn nima_has_the_papers_mean_size() {
        let mean = nima(1).mean_bytes();
        assert!((mean - 284.0).abs() < 6.0, "{mean}");
    }

    #[test]
    fn classes_come_by_their_weights() {
        let plan = nima(5);
        let draws = 500_000;
        let mut counts = vec![0_u64; plan.spec.classes.len()];
        (0..draws).for_each(|number| counts[plan.templates[plan.choice(number)].class] += 1);
        let expected: Vec<f64> = (0..counts.len()).map(|class| plan.spec.share(class) * draws as f64).collect();
        // Pearson's X² with 18 degrees of freedom: beyond 42.31 once in a thousand times.
        let deviation: f64 = counts.iter().zip(&expected).map(|(count, e)| (*count as f64 - e).powi(2) / e).sum();
        assert!(counts.len() == 19 && deviation < 42.31, "{counts:?} {deviation}");
    }

    #[test]
    fn all_frames_have_the_size_that_is_asked() {
        for size in [64, 300, 1518] {
            let spec = MixSpec::load("nima").unwrap().with_size(size).unwrap();
            let plan = Plan::new(spec, 1, Some(target())).unwrap();
            for template in &plan.templates {
                let (class, bytes) = (&plan.spec.classes[template.class].name, template.bytes.len() + 4);
                // 64 bytes do not hold all that these say.
                let longer = size == 64
                    && ["cdp", "vtp", "ipv6", "neighbour-solicitation", "netbeui", "appletalk", "lldp", "disl", "edp"]
                        .contains(&&**class);
                assert!(bytes == usize::from(size) || longer && bytes < 130, "{class}: {bytes}");
            }
        }
    }

    #[test]
    fn a_numbered_frame_has_its_number_and_a_checksum_that_is_right() {
        let plan = nima(3);
        for (number, template) in plan.templates.iter().filter(|template| template.numbered).enumerate() {
            let probe =
                Probe { cookie: target().cookie, sequence: 0xffff_0000_0001 ^ number as u64, sent_ns: u64::MAX - 5 };
            let mut frame = template.bytes.clone();
            Numbering::write(&mut frame, &probe);
            assert_eq!(Probe::parse(&frame[42..]), Some(probe));
            let udp = &frame[34..];
            let length = u32::from(u16::from_be_bytes([udp[4], udp[5]]));
            let sum = pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, length).add_bytes(&udp[..length as usize]);
            assert_eq!(sum.fold(), 0xffff, "frame {number}");
        }
    }

    #[test]
    fn a_stream_takes_a_target() {
        let error = Plan::new(MixSpec::load("nima").unwrap(), 1, None).unwrap_err();
        assert_eq!(error.to_string(), "class `stream` is for a target, and there is none");
        let text = |kind| format!("name = \"a\"\nsize = 64\n[[class]]\nkind = \"{kind}\"\nweight = 1\n");
        let spec = |kind| MixSpec::parse(&text(kind)).unwrap();
        let error = Plan::new(spec("solicitation-for-target"), 1, Some(target())).unwrap_err();
        assert_eq!(error.to_string(), "class `solicitation-for-target` needs an IPv6 target");
        let plan = Plan::new(spec("arp-for-target"), 1, Some(target())).unwrap();
        assert!(plan.templates.iter().all(|template| template.bytes[38..42] == [10, 0, 0, 2]));
    }
}
