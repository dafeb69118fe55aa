//! A web address that is told each alarm: one POST with JSON.

use std::time::Duration;

use super::Alarm;
use crate::error::Failure;

/// How long it may take in all.
const LASTS: Duration = Duration::from_secs(10);

/// An address that can be told: http or https.
pub(super) fn address(text: &str) -> Result<String, String> {
    let uri: ureq::http::Uri = text.parse().map_err(|error| format!("{error}: use https://HOST/PATH"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(text.to_owned()),
        _ => Err("use an address such as https://HOST/PATH".to_owned()),
    }
}

/// Tells `address` of an alarm.
///
/// # Errors
/// Where it cannot be reached, or does not answer with success.
pub(super) fn post(address: &str, alarm: &Alarm) -> Result<(), Failure> {
    // The address may have a secret in it: it is not part of the message.
    let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("the webhook: {error}"));
    let text = serde_json::to_string(alarm).map_err(|error| failed(&error))?;
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(LASTS))
        .max_redirects(0)
        .user_agent(concat!("longhaul-mesh/", env!("CARGO_PKG_VERSION")))
        .build();
    let answer = ureq::Agent::new_with_config(config).post(address).content_type("application/json").send(text);
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(failed(&answer.status())),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_can_be_told() {
        assert!(address("https://alerts.example/hook?key=1").is_ok());
        assert!(address("http://127.0.0.1:9093/x").is_ok());
        for wrong in ["alerts.example", "ftp://alerts.example/", "file:///etc/passwd", "https://", "not a url", ""] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
