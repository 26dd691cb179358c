//! Table of the console's files.

/// The page, with a place for the hash of all files.
pub(super) const INDEX: &str = include_str!("assets/index.html");

/// File that the page loads.
pub(super) struct Asset {
    /// Path below the hash.
    pub(super) path: &'static str,
    /// Content.
    pub(super) bytes: &'static [u8],
}

impl Asset {
    /// Returns the media type, by the end of the path.
    pub(super) fn media(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}

macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        &[$(Asset { path: $path, bytes: include_bytes!(concat!("assets/", $path)) }),*]
    };
}

/// All files that the page loads.
pub(super) const ASSETS: &[Asset] = assets![
    "app.css",
    "icon.svg",
    "app.js",
    "shell.js",
    "lib/api.js",
    "lib/format.js",
    "lib/html.js",
    "lib/icons.js",
    "lib/live.js",
    "lib/plot.js",
    "lib/table.js",
    "lib/ui.js",
    "pages/accounts.js",
    "pages/cache.js",
    "pages/config.js",
    "pages/errors.js",
    "pages/key_form.js",
    "pages/keys.js",
    "pages/limit_use.js",
    "pages/limits.js",
    "pages/models.js",
    "pages/overview.js",
    "pages/playground.js",
    "pages/playground_key.js",
    "pages/playground_run.js",
    "pages/requests.js",
    "pages/setup.js",
    "pages/targets.js",
    "pages/usage.js",
    "vendor/LICENSE.htm",
    "vendor/LICENSE.preact",
    "vendor/hooks.js",
    "vendor/htm.js",
    "vendor/preact.js",
];
