//! The colour of each location of losses, in every figure.
//!
//! Colours are those of Okabe and Ito, *Color Universal Design* (2008), which people with any colour vision tell apart. There are
//! eight, so places at the sender have the colour of their counterpart at the receiver, hatched.

use longhaul_result::Location;

/// How a place is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Red, green, blue.
    pub(crate) rgb: [u8; 3],
    pub(crate) hatched: bool,
}

/// The fill of `location`.
pub(crate) const fn fill(location: Location) -> Fill {
    let (rgb, hatched) = match location {
        Location::SenderSocket => ([213, 94, 0], true),
        Location::SenderStack => ([86, 180, 233], true),
        Location::SenderQdisc => ([230, 159, 0], true),
        Location::SenderDevice => ([240, 228, 66], true),
        Location::Network => ([0, 114, 178], false),
        Location::ReceiverRing => ([240, 228, 66], false),
        Location::ReceiverBacklog => ([230, 159, 0], false),
        Location::ReceiverFilter => ([0, 158, 115], false),
        Location::ReceiverStack => ([86, 180, 233], false),
        Location::ReceiverSocketBuffer => ([213, 94, 0], false),
        Location::ReceiverApplication => ([204, 121, 167], false),
        Location::Unexplained => ([120, 120, 120], false),
    };
    Fill { rgb, hatched }
}

impl Fill {
    /// The value of `fill` in SVG. A hatched location refers to [`patterns`].
    pub(crate) fn svg(self, location: Location) -> String {
        if self.hatched { format!("url(#hatch-{location})") } else { self.hex() }
    }

    pub(crate) fn hex(self) -> String {
        let [r, g, b] = self.rgb;
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

/// The patterns of the hatched ones of `locations`, as an SVG without size.
pub(crate) fn patterns(locations: &[Location]) -> String {
    let pattern = |location: &Location| {
        let fill = fill(*location);
        fill.hatched.then(|| {
            format!(
                "<pattern id=\"hatch-{location}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                 patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"{0}\" fill-opacity=\".3\"/>\
                 <rect width=\"3\" height=\"6\" fill=\"{0}\"/></pattern>",
                fill.hex()
            )
        })
    };
    let patterns: String = locations.iter().filter_map(pattern).collect();
    match patterns.is_empty() {
        true => String::new(),
        false => format!(
            "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>{patterns}</defs></svg>\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear RGB as protanopes, deuteranopes and tritanopes see it, at severity 1.0 (Machado, Oliveira, Fernandes 2009, table 1).
    const VISIONS: [(&str, [[f64; 3]; 3]); 4] = [
        ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        ),
        (
            "deuteranopia",
            [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        ),
        (
            "tritanopia",
            [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
        ),
    ];

    /// CIE L*a*b* of an sRGB colour seen through `vision` (IEC 61966-2-1, CIE 15, D65).
    fn lab(rgb: [u8; 3], vision: &[[f64; 3]; 3]) -> [f64; 3] {
        let linear = rgb.map(|value| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        let times = |rows: &[[f64; 3]; 3], v: [f64; 3]| rows.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2]);
        let seen = times(vision, linear).map(|value| value.clamp(0.0, 1.0));
        let xyz = times(&[[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], seen);
        let white = [0.9505, 1.0, 1.089];
        let f = |t: f64| if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 };
        let [x, y, z] = [0, 1, 2].map(|i| f(xyz[i] / white[i]));
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn everyone_can_tell_the_places_apart() {
        let difference = |a: Location, b: Location, vision| {
            let (a, b) = (lab(fill(a).rgb, vision), lab(fill(b).rgb, vision));
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        };
        // Red against green: far apart for most, near each other for some. So the measure measures.
        let red_green = |vision| {
            let (a, b) = (lab([200, 60, 40], vision), lab([110, 120, 40], vision));
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        };
        assert!(red_green(&VISIONS[0].1) > 50.0 && red_green(&VISIONS[2].1) < 30.0);
        for (name, vision) in &VISIONS {
            for (i, a) in Location::ALL.into_iter().enumerate() {
                for b in Location::ALL.into_iter().skip(i + 1).filter(|b| fill(*b).hatched == fill(a).hatched) {
                    // A difference of 2.3 is just noticed.
                    let apart = difference(a, b, vision);
                    assert!(apart > 10.0, "{a} and {b} with {name}: {apart:.1}");
                }
            }
            // Those that a figure of this paper always has.
            let main = [Location::Network, Location::ReceiverRing, Location::ReceiverSocketBuffer];
            for (a, b) in [(main[0], main[1]), (main[0], main[2]), (main[1], main[2])] {
                let apart = difference(a, b, vision);
                assert!(apart > 25.0, "{a} and {b} with {name}: {apart:.1}");
            }
        }
    }
}
