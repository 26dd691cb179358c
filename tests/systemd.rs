//! The systemd unit: sound, confined, and in agreement with the production example.

#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use model_gateway::config::{self, AccessLog, Sealed, Store};

/// Exposure up to which `systemd-analyze security` says OK, in tenths.
const EXPOSURE: &str = "20";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn unit() -> String {
    std::fs::read_to_string(root().join("systemd/model-gateway.service")).unwrap()
}

fn setting(name: &str) -> String {
    let unit = unit();
    let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("the unit has no {name}=")).to_owned()
}

/// Runs systemd-analyze over the unit, as it would be with this build installed. Nothing where there is none.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model-gateway.service");
    let installed = unit().replace("/usr/local/bin/model-gateway", env!("CARGO_BIN_EXE_model-gateway"));
    std::fs::write(&file, installed).unwrap();
    match Command::new("systemd-analyze").args(arguments).arg(&file).output() {
        Ok(output) => Some(output),
        Err(error) => {
            let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
            assert!(!required, "systemd-analyze: {error}, and GATEWAY_REQUIRE_ALL=1");
            // Not through eprintln, which is shown for failed tests alone.
            let _ = writeln!(std::io::stderr(), "SKIPPED: systemd-analyze is not on this machine");
            None
        }
    }
}

#[test]
fn systemd_finds_no_fault() {
    let Some(output) = analyze(&["verify", "--man=no"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("model-gateway"), "{said}");
}

#[test]
fn the_service_is_confined() {
    let threshold = format!("--threshold={EXPOSURE}");
    let Some(output) = analyze(&["security", "--offline=true", "--no-pager", &threshold]) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("exposure level"), "{said}");
}

#[test]
fn the_unit_leaves_room_for_the_production_example() {
    let file = root().join("conf/production/gateway.toml");
    let settings = config::load(&file, &Sealed).unwrap().settings;
    let stop: u64 = setting("TimeoutStopSec").trim_end_matches('s').parse().unwrap();
    assert!(stop > settings.drain.as_secs() + 10, "systemd would kill a gateway that still drains");
    let descriptors: usize = setting("LimitNOFILE").parse().unwrap();
    assert!(descriptors > 2 * settings.limits.connections + settings.limits.pool);
    assert!(settings.upgrade_socket.starts_with(format!("/run/{}", setting("RuntimeDirectory"))));
    let AccessLog::File(access) = &settings.log.access else { panic!("no access log") };
    assert!(access.starts_with(format!("/var/log/{}", setting("LogsDirectory"))));
    let rotation = std::fs::read_to_string(root().join("systemd/logrotate")).unwrap();
    assert!(rotation.contains(&format!("\n{} {{", access.display())), "{rotation}");
    let Store::Sqlite(state) = &settings.store else { panic!("no state") };
    assert!(state.starts_with(format!("/var/lib/{}", setting("StateDirectory"))));
}
