//! The target that a saved result of `longhaul diagnose` stands for.
//!
//! The file may come from anybody: what is read of it is bounded, and what is not understood is left out.

use longhaul_path::spec::Direction;
use serde_json::Value;

use crate::target::{Cause, End};

/// Causes that are read of one result.
const MOST_CAUSES: usize = 64;
/// Letters of a code or a place that are read.
const MOST_LETTERS: usize = 40;
/// The highest rate that is taken for one: 100 Tb/s.
const MOST_BPS: u64 = 100_000_000_000_000;
/// The longest round trip that is taken for one: a minute.
const MOST_RTT_NS: u64 = 60_000_000_000;

/// What a result of `longhaul diagnose` says of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The rate that was wanted; `None` where nobody knew it.
    pub target_bps: Option<u64>,
    /// The round trip without queues; `None` where it was not measured.
    pub base_rtt_ns: Option<u64>,
    /// What limits the rate, the worst first.
    pub causes: Vec<Cause>,
}

/// Why a text is no diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiagnosisError {
    /// It is no JSON.
    #[error("no JSON: {0}")]
    Json(String),
    /// It is another command's.
    #[error("this is `{found}`, not a result of longhaul diagnose (longhaul.diagnose/1)")]
    Schema {
        /// The schema that it names; empty without one.
        found: String,
    },
    /// It has two directions.
    #[error("the result has both directions, forward and backward: name one")]
    Directions,
    /// It lacks something, or has it in another form.
    #[error("the result of longhaul diagnose has no usable {key}")]
    Key {
        /// The key.
        key: &'static str,
    },
}

impl Diagnosis {
    /// Reads the JSON that `longhaul diagnose` prints; of a result with both directions, `direction`.
    ///
    /// # Errors
    /// Any [`DiagnosisError`].
    pub fn parse(text: &str, direction: Option<Direction>) -> Result<Self, DiagnosisError> {
        let json: Value = serde_json::from_str(text).map_err(|error| DiagnosisError::Json(error.to_string()))?;
        let schema = json["schema"].as_str().unwrap_or_default();
        if schema != "longhaul.diagnose/1" {
            return Err(DiagnosisError::Schema { found: schema.chars().take(MOST_LETTERS).collect() });
        }
        let result = json.get("result").ok_or(DiagnosisError::Key { key: "result" })?;
        let result = match (result.get("forward"), result.get("backward"), direction) {
            (Some(forward), Some(_), Some(Direction::Forward)) => forward,
            (Some(_), Some(backward), Some(Direction::Backward)) => backward,
            (Some(_), Some(_), None) => return Err(DiagnosisError::Directions),
            _ => result,
        };
        let causes = result["causes"].as_array().ok_or(DiagnosisError::Key { key: "causes" })?;
        let causes = causes.iter().take(MOST_CAUSES).map(cause).collect::<Option<Vec<_>>>();
        Ok(Self {
            target_bps: number(&result["target_bps"], MOST_BPS, "target_bps")?,
            base_rtt_ns: number(&result["base_rtt_ns"], MOST_RTT_NS, "base_rtt_ns")?,
            causes: causes.ok_or(DiagnosisError::Key { key: "causes[].code" })?,
        })
    }
}

/// A positive number up to `most`; `None` where there is none.
fn number(value: &Value, most: u64, key: &'static str) -> Result<Option<u64>, DiagnosisError> {
    match value {
        Value::Null => Ok(None),
        value => {
            let number = value.as_u64().filter(|number| (1..=most).contains(number));
            number.map(Some).ok_or(DiagnosisError::Key { key })
        }
    }
}

fn cause(value: &Value) -> Option<Cause> {
    let word = |key: &str| {
        let text = value[key].as_str()?;
        let plain = text.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_');
        (plain && !text.is_empty() && text.len() <= MOST_LETTERS).then(|| text.to_owned())
    };
    Some(Cause {
        code: word("code")?,
        place: word("place"),
        host: match value["host"].as_str() {
            Some("sender") => Some(End::Sender),
            Some("receiver") => Some(End::Receiver),
            _ => None,
        },
        bound_bps: value["bound_bps"]["least"].as_f64().filter(|bps| (1.0..1e14).contains(bps)).map(|bps| bps as u64),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESULT: &str = r#"{"schema":"longhaul.diagnose/1","result":{"target_bps":10000000000,"base_rtt_ns":150000000,"goodput_bps":1,
        "causes":[{"code":"receive_window","place":null,"host":"receiver","bound_bps":{"least":334000000.5,"most":null,"basis":"derived"}},
                  {"code":"loss","place":"network","host":null}],"findings":[]}}"#;

    #[test]
    fn a_result_is_read() {
        let diagnosis = Diagnosis::parse(RESULT, None).unwrap();
        assert_eq!((diagnosis.target_bps, diagnosis.base_rtt_ns), (Some(10_000_000_000), Some(150_000_000)));
        let [window, loss] = &diagnosis.causes[..] else { panic!("{diagnosis:?}") };
        assert_eq!((window.host, window.bound_bps), (Some(End::Receiver), Some(334_000_000)));
        assert!(loss.is_of_network() && !window.is_of_network());
    }

    #[test]
    fn what_is_none_is_refused_with_its_reason() {
        let says = |text: &str| Diagnosis::parse(text, None).unwrap_err().to_string();
        assert!(says("{").starts_with("no JSON"));
        assert!(says(r#"{"schema":"longhaul.tcp/1"}"#).contains("`longhaul.tcp/1`"));
        assert!(says(r#"{"schema":"longhaul.diagnose/1"}"#).contains("no usable result"));
        assert!(says(&RESULT.replace("causes", "reasons")).contains("no usable causes"));
        assert!(says(&RESULT.replace("10000000000", "-1")).contains("no usable target_bps"));
        assert!(says(&RESULT.replace("150000000,", "1e99,")).contains("no usable base_rtt_ns"));
        assert!(says(&RESULT.replace("receive_window", "Receive Window")).contains("no usable causes[].code"));
        assert_eq!(Diagnosis::parse(&RESULT.replace("10000000000", "null"), None).unwrap().target_bps, None);
    }

    #[test]
    fn of_two_directions_one_is_named() {
        let (head, one) = RESULT.split_once(r#""result":"#).unwrap();
        let one = one.strip_suffix('}').unwrap();
        let other = one.replace("receive_window", "send_buffer");
        let both = format!(r#"{head}"result":{{"forward":{one},"backward":{other}}}}}"#);
        assert_eq!(Diagnosis::parse(&both, None), Err(DiagnosisError::Directions));
        let first = |direction| Diagnosis::parse(&both, Some(direction)).unwrap().causes[0].code.clone();
        assert_eq!(
            (first(Direction::Forward), first(Direction::Backward)),
            ("receive_window".into(), "send_buffer".into())
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[ -~]{0,200}"#, at in 0_usize..RESULT.len()) {
            let _ = Diagnosis::parse(&text, None);
            if let Some((before, after)) = RESULT.split_at_checked(at) {
                let _ = Diagnosis::parse(&format!("{before}{text}{after}"), None);
                let _ = Diagnosis::parse(&format!("{before}7{}", after.get(1..).unwrap_or_default()), None);
            }
        }
    }
}
