//! The JSON Schemas in `schemas/`: written from the types that `--json` prints, and compared with them.
//!
//! `make schemas` writes the files; `make check` fails where they differ. Doc comments become descriptions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longhaul_capture::{CaptureResult, LogResult};
use longhaul_congestion::description::Description;
use longhaul_diagnosis::{Diagnosed, DiagnosedFlows, LongPathTest};
use longhaul_emulator::Status;
use longhaul_filter::FilterStatus;
use longhaul_flows::AnalyzeResult;
use longhaul_flows::compare::CompareResult;
use longhaul_host::HostSnapshot;
use longhaul_mesh_model::printed as mesh;
use longhaul_profile::{Profile, Verification};
use longhaul_report::saved::{DiagnoseAsked, DiagnoseFlowsAsked, HopsAsked, RttAsked, SweepAsked, TcpAsked, UdpAsked};
use longhaul_report::side_by_side::SideBySide;
use longhaul_result::{Envelope, Hosts};
use longhaul_rtt::{HopsResult, RttResult};
use longhaul_sweep::SweepResult;
use longhaul_tcp::{TcpResult, WatchResult};
use longhaul_terms::Directions;
use longhaul_udp::{UdpAccounts, UdpResult, UdpWatchResult};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use crate::cmd::{
    analyze, capture, cc, compare, convert, emulate, filter, host, lab, log, mix, paths, profile, report, tcp, tune,
    udp, verify, watch,
};
use crate::output::{NothingAsked, PrintedFailure};

/// Where the files claim to stand.
const BASE: &str = "https://schemas.longhaul.example";

/// What a command prints that has hosts.
type WithHosts<P, R, H> = Envelope<P, R, Hosts<H>>;

/// Each form of `--json`: the name and the text of its file.
fn schemas() -> BTreeMap<String, String> {
    let error =
        "The error that every command prints with `--json` if it fails; the exit code is 1, or 2 for wrong usage";
    BTreeMap::from([
        schema::<PrintedFailure<'_>>("longhaul.error/1", error.into()),
        schema::<tcp::live::Interval>("longhaul.tcp.interval/1", stream("tcp")),
        schema::<udp::live::Interval>("longhaul.udp.interval/1", stream("udp")),
        result::<WithHosts<TcpAsked, Directions<TcpResult>, crate::cmd::test::Hosts<'_>>>("tcp"),
        result::<WithHosts<UdpAsked, Directions<UdpResult>, crate::cmd::test::Hosts<'_>>>("udp"),
        result::<WithHosts<RttAsked, RttResult, crate::cmd::rtt::ProbingHosts>>("rtt"),
        result::<Envelope<HopsAsked, HopsResult>>("rtt.hops"),
        result::<Envelope<SweepAsked, SweepResult>>("sweep"),
        result::<Envelope<DiagnoseAsked, Directions<Diagnosed>>>("diagnose"),
        result::<WithHosts<lab::run::Parameters<'_>, lab::run::Ended<'_>, &Option<longhaul_experiment::Hosts>>>(
            "lab.run",
        ),
        result::<Envelope<lab::run::planned::PlanParameters<'_>, lab::run::planned::PlannedRuns>>("lab.run.plan"),
        result::<Envelope<report::Parameters<'_>, &SideBySide>>("report"),
        result::<Envelope<lab::run::faults::Parameters, lab::run::faults::Ran>>("lab.run.faults"),
        result::<Envelope<mesh::StatusAsked, mesh::Status>>("mesh.status"),
        result::<Envelope<mesh::ShowAsked, mesh::Shown>>("mesh.show"),
        result::<Envelope<lab::printed::MadeLab<'_>, Status>>("lab.status"),
        result::<Envelope<NothingAsked, lab::printed::ListedLabs<'_>>>("lab.list"),
        result::<Envelope<lab::printed::DownParameters, lab::printed::EndedLabs<'_>>>("lab.down"),
        result::<Envelope<emulate::Parameters<'_>, Status>>("emulate"),
        result::<Envelope<NothingAsked, paths::KnownPaths<'_>>>("paths"),
        result::<Envelope<host::Parameters, HostSnapshot>>("host"),
        result::<Envelope<profile::Parameters, Profile>>("profile"),
        result::<Envelope<verify::Parameters, Verification>>("verify"),
        result::<Envelope<mix::Parameters, mix::Reported>>("mix"),
        result::<Envelope<tune::planned::Parameters, tune::planned::Tuned>>("tune"),
        result::<Envelope<DiagnoseAsked, LongPathTest>>("diagnose.long-path"),
        result::<Envelope<DiagnoseFlowsAsked, DiagnosedFlows>>("diagnose.flows"),
        result::<Envelope<NothingAsked, tune::keeping::Shown>>("tune.status"),
        result::<Envelope<NothingAsked, tune::keeping::Confirmed>>("tune.confirm"),
        result::<Envelope<NothingAsked, tune::keeping::Undone>>("tune.undo"),
        result::<Envelope<filter::status::Parameters<'_>, FilterStatus>>("filter.status"),
        result::<Envelope<NothingAsked, cc::list::Listed>>("cc.list"),
        result::<Envelope<cc::load::LoadParameters<'_>, cc::load::LoadResult<'_>>>("cc.load"),
        result::<Envelope<cc::load::UnloadParameters<'_>, cc::load::UnloadResult>>("cc.unload"),
        result::<Envelope<cc::show::Parameters, Description>>("cc.show"),
        result::<Envelope<cc::table::Parameters, cc::table::Printed>>("cc.table"),
        result::<Envelope<watch::WatchParameters, WatchResult>>("watch"),
        result::<Envelope<watch::WatchParameters, UdpWatchResult>>("watch.udp"),
        result::<Envelope<compare::udp::Parameters, UdpAccounts>>("compare.udp"),
        schema::<watch::live::WatchInterval<'_>>("longhaul.watch.interval/1", interval_of("watch")),
        schema::<watch::udp::UdpWatchInterval<'_>>("longhaul.watch.udp.interval/1", interval_of("watch --udp")),
        schema::<capture::live::Interval>("longhaul.capture.interval/1", interval_of("capture")),
        schema::<mix::live::Interval>("longhaul.mix.interval/1", interval_of("mix")),
        result::<Envelope<capture::Parameters<'_>, CaptureResult>>("capture"),
        result::<Envelope<log::Parameters, LogResult>>("log"),
        result::<Envelope<convert::Parameters<'_>, convert::Converted<'_>>>("convert"),
        result::<Envelope<analyze::AnalyzeParameters, AnalyzeResult>>("analyze"),
        result::<Envelope<compare::CompareParameters, CompareResult>>("compare"),
    ])
}

/// The schema of what `command` prints with `--json`; a dot stands for a space.
fn result<T: JsonSchema>(command: &str) -> (String, String) {
    let title = match command {
        "lab.run.plan" => "What `longhaul lab run --plan --json` prints".into(),
        "rtt.hops" => "What `longhaul rtt --to-each-hop --json` prints".into(),
        "diagnose.long-path" => "What `longhaul diagnose --rtt` prints with `--json`".into(),
        "diagnose.flows" => "What `longhaul diagnose --watch` and `longhaul diagnose trace` print with `--json`".into(),
        "watch.udp" => "What `longhaul watch --udp --json` prints".into(),
        "compare.udp" => "What `longhaul compare --json` prints of two results of `longhaul watch --udp`".into(),
        "lab.run.faults" => "What `longhaul lab run faults --json` prints".into(),
        _ => format!("What `longhaul {} --json` prints", command.replace('.', " ")),
    };
    // Points with runs in place of tests.
    let version = if command == "lab.run" { 2 } else { 1 };
    schema::<T>(&format!("longhaul.{command}/{version}"), title)
}

fn interval_of(command: &str) -> String {
    format!("An interval, as `longhaul {command} --json-stream` prints it")
}

fn stream(command: &str) -> String {
    format!("An interval of a test, as `longhaul {command} --json-stream` prints it")
}

/// The name and the text of the file for the form `name`, which `T` prints.
fn schema<T: JsonSchema>(name: &str, title: String) -> (String, String) {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(plain));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let file = format!("{}.json", name.replace('/', "-"));
    schema.insert("$id".into(), format!("{BASE}/{file}").into());
    schema.insert("title".into(), title.into());
    schema.remove("description");
    if let Some(properties) = schema.get_mut("properties") {
        let description = properties["schema"]["description"].take();
        properties["schema"] = json!({ "const": name, "description": description });
    }
    (file, format!("{:#}\n", schema.as_value()))
}

/// Makes a schema say what longhaul prints, in words for people who do not read its code.
fn plain(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = plain_text(text);
    }
    // What a reader may leave out; longhaul writes all.
    schema.remove("default");
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default().to_owned();
    if format == "ip" {
        schema.remove("format");
        schema.insert("anyOf".into(), json!([{ "format": "ipv4" }, { "format": "ipv6" }]));
    }
    // Rust's names of numbers; `minimum` and `maximum` say what matters.
    if ["int", "uint", "float", "double"].iter().any(|of_rust| format.starts_with(of_rust)) {
        schema.remove("format");
    }
    let required: Vec<_> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        // What is left out where there is none is never null.
        for (_, property) in properties.iter_mut().filter(|(name, _)| !required.contains(&json!(name))) {
            never_null(property);
        }
    }
    if schema.get("type").is_some_and(|kind| kind == "object") {
        schema.ensure_object().entry("additionalProperties").or_insert(false.into());
    }
}

/// `text` without links of rustdoc and line breaks; JSON has null where Rust has `None`, always without backticks.
fn plain_text(text: &str) -> String {
    let text = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    let (mut plain, mut rest) = (String::new(), text.as_str());
    while let Some((before, (inside, after))) =
        rest.split_once("[`").and_then(|(before, after)| Some((before, after.split_once("`]")?)))
    {
        plain += &format!("{before}`{inside}`");
        rest = after.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(after, |(_, after)| after);
    }
    (plain + rest).replace("`None`", "null").replace("`null`", "null")
}

/// Takes null from what a property may be.
fn never_null(property: &mut Value) {
    if let Some(types) = property.get_mut("type").filter(|types| types.is_array()) {
        let other = types.as_array().and_then(|types| types.iter().find(|one| *one != "null")).cloned();
        *types = other.unwrap_or_default();
    }
    if let Some(Value::Array(forms)) = property.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [Value::Object(form)] = &mut forms[..] {
            let form = std::mem::take(form);
            if let Some(property) = property.as_object_mut() {
                property.remove("anyOf");
                property.extend(form);
            }
        }
    }
}

/// With `LONGHAUL_WRITE_SCHEMAS` set it writes the files.
#[test]
fn schemas_are_those_of_the_types() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let schemas = schemas();
    if std::env::var_os("LONGHAUL_WRITE_SCHEMAS").is_some() {
        for (file, text) in &schemas {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }
    for file in std::fs::read_dir(&folder).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        assert!(schemas.contains_key(&file), "schemas/{file} is of no type: remove it, or add its type to schemas.rs");
    }
    for (file, text) in &schemas {
        let stored = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let line = text.lines().zip(stored.lines()).position(|(new, stored)| new != stored);
        let line = line.unwrap_or_else(|| text.lines().count().min(stored.lines().count()));
        let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").trim().to_owned();
        assert!(
            *text == stored,
            "schemas/{file} is not what its type says: run `make schemas`. It differs first in line {}:\n  file: {}\n  type: {}",
            line + 1,
            at(&stored),
            at(text),
        );
    }
}

/// Paths and constants of Rust say nothing to those who read JSON. Constants of the kernel do.
fn is_of_rust(word: &str) -> bool {
    let kernel = ["CLOCK_", "LINKTYPE_", "SCHED_", "SO_", "TCP_", "UDP_"];
    let shouts = word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    // An address of IPv6 goes on with a digit.
    let path = word.split_once("::").is_some_and(|(_, after)| after.starts_with(|c: char| c.is_ascii_alphabetic()));
    path || (shouts && !kernel.iter().any(|of| word.starts_with(of)))
}

#[test]
fn descriptions_have_no_names_of_rust() {
    for (file, text) in schemas() {
        for description in text.lines().filter(|line| line.trim_start().starts_with("\"description\": ")) {
            let mut words = description.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
            let found = words.find(|word| is_of_rust(word.trim_matches(':')));
            assert!(found.is_none(), "schemas/{file}: {found:?} in {description}");
        }
    }
    assert!(is_of_rust("UdpParameters::default") && is_of_rust("CAUSES_MOST"));
    assert!(!["TCP_INFO", "rtt_ns", "RFC", "fd77::1:N"].into_iter().any(is_of_rust));
}

#[test]
fn what_rust_alone_knows_is_left_out() {
    let text = "See [`Self::a`](crate::a) and\n[`B`]; `None` or `null`.\n\nNext";
    assert_eq!(plain_text(text), "See `Self::a` and `B`; null or null.\n\nNext");
    let string = json!({ "type": "string" });
    for (option, plain) in [
        (json!({ "type": ["string", "null"] }), string.clone()),
        (json!({ "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "null" }] }), json!({ "$ref": "#/$defs/A" })),
        (
            json!({ "anyOf": [string, { "$ref": "#/$defs/A" }, { "type": "null" }] }),
            json!({ "anyOf": [string, { "$ref": "#/$defs/A" }] }),
        ),
        (string.clone(), string),
    ] {
        let mut property = option;
        never_null(&mut property);
        assert_eq!(property, plain);
    }
}
