//! Where the shipped clients are installed, by `scripts/clients`.

use std::io::Write as _;
use std::path::PathBuf;

use super::client::Client;

/// Folder of the installed clients: that of the variable `GATEWAY_CLIENTS`, or else the one that `scripts/clients`
/// installs into by default.
pub(super) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("GATEWAY_CLIENTS") {
        return folder.into();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("model-gateway/clients")
}

/// Whether a client is installed. If it is not, prints SKIPPED, or panics if `GATEWAY_REQUIRE_ALL=1`: except for a
/// client that `scripts/clients` found this machine cannot have.
pub(super) fn is_installed(client: Client) -> bool {
    let (name, folder) = (client.name(), folder());
    if folder.join("bin").join(name).exists() {
        assert!(client.is_pinned_version(&folder), "another version of {name} is installed: make clients");
        return true;
    }
    let unavailable = std::fs::read_to_string(folder.join("unavailable")).unwrap_or_default();
    let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(
        !required || unavailable.lines().any(|line| line == name),
        "{name} is not installed in {}, and GATEWAY_REQUIRE_ALL=1: see scripts/clients",
        folder.display()
    );
    // The test harness captures the output of eprintln and shows it for failed tests only.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed: make clients");
    false
}
