//! Writing path files.

use std::fmt::{Display, Write as _};
use std::str::FromStr;

use longhaul_units::{BitRate, Nanos};

use super::{
    DelayStep, DelaySteps, HopSpec, HostSpec, JitterSpec, Law, Layer, LossSpec, Order, Outage, PathSpec, QueueLimit,
    short,
};

impl PathSpec {
    /// The path as a path file that names no other file; [`PathSpec::parse`] of it gives an equal path. Hops that
    /// backward mirrors are written as `[[both]]`, loss lists as short text, tables as quantiles.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (key, value) in [("name", &self.name), ("source", &self.source)] {
            if !value.is_empty() {
                line(&mut text, key, &toml::Value::String(value.clone()).to_string());
            }
        }
        for (key, hosts) in [("client", &self.clients), ("server", &self.servers)] {
            for host in hosts {
                host_table(&mut text, key, host);
            }
        }
        let shared =
            self.forward.iter().zip(self.backward.iter().rev()).take_while(|(there, back)| there == back).count();
        let own_backward = self.backward.len() - shared;
        let tables = [
            ("both", &self.forward[..shared]),
            ("forward", &self.forward[shared..]),
            ("backward", &self.backward[..own_backward]),
        ];
        for (key, hops) in tables {
            for hop in hops {
                hop_table(&mut text, key, hop);
            }
        }
        text
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "{key} = {value}");
}

fn host_table(text: &mut String, key: &str, host: &HostSpec) {
    let default = HostSpec::default();
    let _ = writeln!(text, "\n[[{key}]]");
    if let Some(name) = &host.name {
        line(text, "name", &toml::Value::String(name.clone()).to_string());
    }
    if let Some(rate) = host.rate {
        line(text, "rate", &rate_text(rate));
    }
    if host.delay != default.delay {
        line(text, "delay", &time(host.delay));
    }
    if host.queue != default.queue {
        line(text, "queue", &queue(host.queue));
    }
    if let Some(mtu) = host.mtu {
        line(text, "mtu", &mtu.to_string());
    }
}

fn hop_table(text: &mut String, key: &str, hop: &HopSpec) {
    let default = HopSpec::default();
    let _ = writeln!(text, "\n[[{key}]]");
    if let Some(name) = &hop.name {
        line(text, "name", &toml::Value::String(name.clone()).to_string());
    }
    if hop.loss != default.loss {
        line(text, "loss", &loss(&hop.loss));
    }
    if !hop.outages.is_empty() {
        let outages: Vec<String> = hop.outages.iter().map(outage).collect();
        line(text, "outages", &format!("[{}]", outages.join(", ")));
    }
    if hop.duplicate != default.duplicate {
        line(text, "duplicate", &format!("{:?}", hop.duplicate.0));
    }
    if hop.corrupt != default.corrupt {
        line(text, "corrupt", &format!("{:?}", hop.corrupt.0));
    }
    if let Some(mtu) = hop.mtu {
        let silent = format!("{{ bytes = {}, icmp = false }}", mtu.bytes);
        line(text, "mtu", &if mtu.icmp { mtu.bytes.to_string() } else { silent });
    }
    if let Some(policer) = hop.policer {
        let burst = exact(policer.burst, || format!("{}B", policer.burst.0));
        line(text, "policer", &format!("{{ rate = {}, burst = {burst} }}", rate_text(policer.rate)));
    }
    if hop.queue != default.queue {
        line(text, "queue", &queue(hop.queue));
    }
    if let Some(rate) = hop.rate {
        line(text, "rate", &rate_text(rate));
    }
    if hop.layer == Layer::L2 {
        line(text, "layer", "\"L2\"");
    }
    if hop.delay != default.delay {
        line(text, "delay", &time(hop.delay));
    }
    if hop.delay_steps != default.delay_steps {
        line(text, "delay-steps", &delay_steps(&hop.delay_steps));
    }
    if let Some(spec) = &hop.jitter {
        line(text, "jitter", &jitter(spec));
    }
    if let Some(coalesce) = hop.coalesce {
        let count = coalesce.count.map(|count| format!(", count = {count}")).unwrap_or_default();
        line(text, "coalesce", &format!("{{ time = {}{count} }}", time(coalesce.time)));
    }
}

fn loss(loss: &LossSpec) -> String {
    match loss {
        LossSpec::None => "\"none\"".into(),
        LossSpec::Random(chance) => format!("{{ random = {:?} }}", chance.0),
        LossSpec::Every(count) => format!("{{ every = {count} }}"),
        LossSpec::GilbertElliott { p, r, h, k } => {
            format!("{{ gilbert-elliott = {{ p = {:?}, r = {:?}, h = {:?}, k = {:?} }} }}", p.0, r.0, h.0, k.0)
        }
        LossSpec::Bursts(bursts) => format!(
            "{{ bursts = {{ for = {}, every = {}, lost = {:?}, otherwise = {:?} }} }}",
            time(bursts.lasting),
            time(bursts.every),
            bursts.lost.0,
            bursts.otherwise.0
        ),
        LossSpec::List(list) => format!("\"list({list})\""),
    }
}

fn outage(outage: &Outage) -> String {
    let every = outage.every.map(|every| format!(", every = {}", time(every))).unwrap_or_default();
    format!("{{ at = {}, for = {}{every} }}", time(outage.at), time(outage.lasting))
}

fn delay_steps(steps: &DelaySteps) -> String {
    let step = |step: &DelayStep| {
        let part = |key: &str, of: Option<Nanos>| of.map(|of| format!(", {key} = {}", time(of))).unwrap_or_default();
        let (lasting, every) = (part("for", step.lasting), part("every", step.every));
        format!("{{ at = {}, delay = {}{lasting}{every} }}", time(step.at), time(step.delay))
    };
    match steps {
        DelaySteps::At(steps) => format!("[{}]", steps.iter().map(step).collect::<Vec<_>>().join(", ")),
        DelaySteps::Random { every, delays } => {
            let delays: Vec<String> = delays.iter().map(|delay| time(*delay)).collect();
            format!("{{ every = {}, delays = [{}] }}", time(*every), delays.join(", "))
        }
    }
}

fn jitter(jitter: &JitterSpec) -> String {
    let order = if jitter.order == Order::Free { "free" } else { "fifo" };
    let quantiles = match &jitter.law {
        Law::Table(table) => format!(", quantiles = {:?}", table.quantiles()),
        _ => String::new(),
    };
    let correlation = jitter.correlation.map(|apart| format!(", correlation = {}", time(apart))).unwrap_or_default();
    let stddev = time(jitter.stddev);
    format!("{{ law = \"{}\", stddev = {stddev}, order = \"{order}\"{correlation}{quantiles} }}", jitter.law)
}

fn queue(queue: QueueLimit) -> String {
    format!("\"{queue}\"")
}

fn time(time: Nanos) -> String {
    exact(time, || format!("{}ns", time.0))
}

fn rate_text(rate: BitRate) -> String {
    exact(rate, || format!("{}bit", rate.0))
}

fn exact<T: Display + FromStr + PartialEq>(quantity: T, plain: impl FnOnce() -> String) -> String {
    format!("\"{}\"", short::exact(&quantity, plain))
}
