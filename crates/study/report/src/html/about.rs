//! The parts that every report of an experiment has: subject, caveats, hosts. And those of the pages about a measurement of one host.

use longhaul_result::{Caveat, Envelope};
use longhaul_units::Bytes;
use serde_json::Value;

use crate::html::page::{escape, heading};

/// An experiment, without its figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// What it is about.
    pub title: String,
    /// The paper and figure that it repeats.
    pub source: String,
    /// How it differs from the source.
    pub note: String,
    /// The path of all series, in words.
    pub path: String,
    /// Rates, buffers, windows and queues are this many times those of the experiment. `None` or 1: as it says.
    pub factor: Option<f64>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// The hosts.
    pub hosts: Vec<Host>,
}

/// A measurement of a host, without its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct AboutHost<'a> {
    /// The host, as it was named.
    pub host: String,
    /// The version of longhaul.
    pub longhaul: String,
    /// When the measurement began, RFC 3339.
    pub started_at: String,
    /// Its caveats.
    pub caveats: &'a [Caveat],
}

impl<'a> AboutHost<'a> {
    /// What `envelope` says of the measurement of `host`.
    pub fn of<P, R, H>(host: &str, envelope: &'a Envelope<P, R, H>) -> Self {
        Self {
            host: host.to_owned(),
            longhaul: envelope.longhaul.to_owned(),
            started_at: envelope.started_at.clone(),
            caveats: &envelope.caveats,
        }
    }

    /// The head of a page of it with this `title`.
    pub(super) fn heading(&self, title: &str) -> String {
        heading(title, &self.longhaul, &self.started_at)
    }
}

/// A host and its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
}

impl Host {
    /// Client and server, if known, from their snapshots in the form of `longhaul host --json`. Unknown facts are left out.
    pub fn of_snapshots(snapshots: &Value) -> Vec<Self> {
        let host = |name: &str| {
            let snapshot = snapshots.get(name).filter(|snapshot| snapshot.is_object())?;
            Some(Host { name: name.to_owned(), facts: facts(snapshot) })
        };
        ["client", "server"].into_iter().filter_map(host).collect()
    }
}

fn facts(snapshot: &Value) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_owned(), value)));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    fact("kernel", text(&snapshot["kernel"]["release"]).map(|release| format!("Linux {release}")));
    let cpus = snapshot["cpu"]["online_cpus"].as_array().map(Vec::len);
    let model = text(&snapshot["cpu"]["model"]).unwrap_or_default();
    fact("CPUs", cpus.map(|count| format!("{count} × {model}")));
    fact("machine", text(&snapshot["kernel"]["virtualization"]).map(|kind| format!("virtual ({kind})")));
    fact("clock", text(&snapshot["kernel"]["clocksource"]));
    let interfaces = snapshot["interfaces"].as_array();
    if let Some(link) = interfaces.and_then(|links| links.iter().find(|link| link["name"] != "lo")) {
        let name = text(&link["name"]).unwrap_or_default();
        let driver = text(&link["driver"]).unwrap_or_else(|| "unknown driver".into());
        fact("interface", Some(format!("{name}, {driver}, MTU {}", link["mtu_bytes"])));
        let offloads: Vec<String> =
            [("TSO", "tx-tcp-segmentation"), ("UDP GSO", "tx-udp-segmentation"), ("GRO", "rx-gro")]
                .into_iter()
                .filter_map(|(short, name)| {
                    let offload = link["offloads"].as_array()?.iter().find(|offload| offload["name"] == name)?;
                    Some(format!("{short} {}", if offload["active"].as_bool()? { "on" } else { "off" }))
                })
                .collect();
        fact("offloads", (!offloads.is_empty()).then(|| offloads.join(", ")));
    }
    for (key, bytes) in [
        ("net.core.rmem_max", true),
        ("net.core.rmem_default", true),
        ("net.core.wmem_max", true),
        ("net.core.netdev_max_backlog", false),
    ] {
        let value = snapshot["sysctls"][key].as_u64();
        fact(key, value.map(|value| if bytes { Bytes(value).to_string() } else { format!("{value} packets") }));
    }
    facts
}

impl About {
    /// Title and origin.
    pub(crate) fn head(&self, body: &mut String) {
        *body += &format!("<h1>{}</h1>\n", escape(&self.title));
        let after = if self.source.is_empty() { String::new() } else { format!("After {}. ", escape(&self.source)) };
        *body += &format!(
            "<p class=\"quiet\">{after}Path {}. Measured {} by longhaul {}.</p>\n",
            escape(&self.path),
            escape(&self.started_at),
            escape(&self.longhaul)
        );
        if let Some(factor) = self.factor.filter(|factor| *factor != 1.0) {
            *body += &format!(
                "<p>Rates, buffers, windows and queues are {factor} times those of the experiment: as much as this machine can do, by a calibration. \
                 Names of series and findings keep the experiment's figures. Durations are unchanged, so tests send fewer packets.</p>\n"
            );
        }
        if self.interrupted {
            *body += "<p class=\"alert\">The experiment was interrupted. Missing tests were not measured, and the last test may be incomplete.</p>\n";
        }
    }

    pub(crate) fn note(&self, body: &mut String) {
        let paragraphs = self.note.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
        for paragraph in paragraphs {
            // Commands stand between backticks.
            let parts = paragraph.split('`').zip([false, true].into_iter().cycle());
            let marked = parts.map(|(part, is_command)| match is_command {
                true => format!("<code>{}</code>", escape(part)),
                false => escape(part),
            });
            *body += &format!("<p>{}</p>\n", marked.collect::<String>());
        }
    }

    pub(crate) fn hosts(&self, body: &mut String) {
        if self.hosts.is_empty() {
            return;
        }
        *body += "<h2>Hosts</h2>\n<table class=\"facts\">\n<thead><tr><th></th>";
        for host in &self.hosts {
            *body += &format!("<th scope=\"col\">{}</th>", escape(&host.name));
        }
        *body += "</tr></thead>\n<tbody>\n";
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.hosts.iter().flat_map(|host| &host.facts) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in names {
            *body += &format!("<tr><th scope=\"row\">{}</th>", escape(name));
            for host in &self.hosts {
                let value = host.facts.iter().find(|(known, _)| known == name).map_or("?", |(_, value)| value);
                *body += &format!("<td data-label=\"{}\">{}</td>", escape(&host.name), escape(value));
            }
            *body += "</tr>\n";
        }
        *body += "</tbody>\n</table>\n";
    }
}

/// A quantity with a space before its unit, as in prose.
pub(crate) fn spaced(quantity: impl std::fmt::Display) -> String {
    let text = quantity.to_string();
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_by_how_much_its_experiment_was_scaled() {
        let head = |factor: Option<f64>| {
            let mut body = String::new();
            About { factor, ..About::default() }.head(&mut body);
            body
        };
        let (scaled, said) = (head(Some(0.125)), "queues are 0.125 times those of the experiment");
        assert!(scaled.contains(said), "{scaled}");
        assert_eq!(head(Some(1.0)), head(None));
        assert!(!head(None).contains("times those of the experiment"));
    }

    #[test]
    fn commands_of_a_note_are_code() {
        let about = About { note: "One.\n\n`a <b>` then `c`".into(), ..About::default() };
        let mut body = String::new();
        about.note(&mut body);
        assert_eq!(body, "<p>One.</p>\n<p><code>a &lt;b&gt;</code> then <code>c</code></p>\n");
    }
}
