//! Every control loads, is there for all, and goes.

use longhaul_bpf::BpfError;
use longhaul_bpf::congestion::{CongestionError, Control};
use longhaul_congestion::{Algorithm, Settings, Variant};

/// Loads; `None` where that cannot be here, and says why.
fn load(settings: &Settings) -> Option<Control> {
    match Control::load(settings) {
        Ok(control) => Some(control),
        Err(
            error @ (CongestionError::NoStructOps
            | CongestionError::Bpf(BpfError::NoBtf { .. } | BpfError::Denied { .. })),
        ) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn every_control_loads_and_goes() {
    for algorithm in Algorithm::ALL {
        let mut settings = Settings::new(algorithm, Variant::Paper).unwrap();
        settings.rename(&format!("lht_{}", algorithm.name())).unwrap();
        let Some(control) = load(&settings) else { return };
        assert!(available().contains(&control.name().to_owned()), "{}", control.name());
        drop(control);
        assert!(!available().contains(&settings.name().to_owned()), "{algorithm}");
    }
}
