//! Configuration of the demo: five files in a temporary folder, which is deleted when the value is dropped.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use super::Providers;
use routing::account::NewKey;

/// Credential of the simulated OpenAI. It differs from the clients' key, to show that the gateway replaces one by the
/// other.
pub(super) const OPENAI_CREDENTIAL: &str = "sk-demo-openai";
/// See [`OPENAI_CREDENTIAL`].
pub(super) const ANTHROPIC_CREDENTIAL: &str = "sk-ant-demo";
/// See [`OPENAI_CREDENTIAL`].
pub(super) const GOOGLE_CREDENTIAL: &str = "demo-google";

/// See [`OPENAI_CREDENTIAL`].
pub(super) const COHERE_CREDENTIAL: &str = "demo-cohere";
/// See [`OPENAI_CREDENTIAL`].
pub(super) const ARK_CREDENTIAL: &str = "demo-ark";
/// See [`OPENAI_CREDENTIAL`].
pub(super) const DASHSCOPE_CREDENTIAL: &str = "demo-dashscope";
/// See [`OPENAI_CREDENTIAL`].
pub(super) const BEDROCK_CREDENTIAL: &str = "demo-bedrock";

/// Signing secret of access tokens; made up like all credentials of the demo.
const TOKEN_SECRET: &str = "demo-secret-that-signs-access-tokens";

/// Prices of the models of the demo that the list prices do not have, made up like everything there: without them, what is
/// spent would be 0.
const DEMO_PRICES: &str = r#"# Made up; the other models have the prices of the catalogue.
[[price]]
models = ["amazon.nova-lite-v1:0"]
input  = 0.06
output = 0.24

[[price]]
models = ["imagen-4.0-generate-001", "doubao-seedream-*", "qwen-image-plus", "text2imageSubmit", "img2imgSubmit"]
image  = 0.04

[[price]]
models       = ["veo-*", "wan2.5-*", "doubao-seedance-*", "vendorImageFirstLast", "videoFaceMergeSubmit"]
video_second = 0.1
"#;

/// Temporary folder with the configuration.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn write(
        [port, admin]: [u16; 2],
        key: &NewKey,
        token: &NewKey,
        providers: &Providers,
    ) -> io::Result<Self> {
        // Readable by the user only: the credentials are made up, but real ones would need it.
        let folder = tempfile::Builder::new().prefix("model-gateway-demo-").tempdir()?;
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        write("gateway.toml", gateway(port, admin))?;
        write("routes.toml", routes(providers))?;
        write("prices.toml", DEMO_PRICES.to_owned())?;
        write("keys.toml", format!("[[key]]\nname = \"demo\"\nsha256 = \"{}\"\n", key.hash().to_hex()))?;
        let hash = token.hash().to_hex();
        write("admin.toml", format!("[[token]]\nname = \"demo\"\nrole = \"admin\"\nsha256 = \"{hash}\"\n"))?;
        Ok(Files(folder))
    }

    /// Returns the path of gateway.toml.
    pub(super) fn gateway(&self) -> PathBuf {
        self.0.path().join("gateway.toml")
    }
}

/// Returns gateway.toml. The drain limit is 0, so that the demo ends at once. Fetches from loopback are allowed,
/// because the simulated providers return media URLs of this machine.
fn gateway(port: u16, admin: u16) -> String {
    format!(
        r#"[server]
listen = ["127.0.0.1:{port}"]
admin  = "127.0.0.1:{admin}"
drain  = "0s"

[admin]
currency = "USD"

[accounts]
unpriced = "refuse"

[limits]
fetch_allow = ["127.0.0.0/8"]

[log]
level  = "warn"
format = "text"
access = "stdout"
"#
    )
}

/// Returns routes.toml. `gpt-4o` has another name at its provider, to show that the gateway renames the model in
/// requests and responses.
#[expect(clippy::too_many_lines, reason = "the text of one file")]
fn routes(providers: &Providers) -> String {
    let (openai, anthropic, google) =
        (providers.openai.base_url(), providers.anthropic.base_url(), providers.google.base_url());
    let (cohere, ark, dashscope) =
        (providers.cohere.base_url(), providers.ark.base_url(), providers.dashscope.base_url());
    let bedrock = providers.bedrock.base_url();
    format!(
        r#"prices = "prices.toml"

[[provider]]
name       = "openai"
kind       = "openai"
base_url   = "{openai}"
credential = {{ value = "{OPENAI_CREDENTIAL}" }}

[[provider]]
name       = "anthropic"
kind       = "anthropic"
base_url   = "{anthropic}"
credential = {{ value = "{ANTHROPIC_CREDENTIAL}" }}

[[provider]]
name       = "google"
kind       = "gemini"
base_url   = "{google}"
credential = {{ value = "{GOOGLE_CREDENTIAL}" }}

[[provider]]
name       = "cohere"
kind       = "cohere"
base_url   = "{cohere}"
credential = {{ value = "{COHERE_CREDENTIAL}" }}

[[provider]]
name       = "ark"
kind       = "ark"
base_url   = "{ark}"
credential = {{ value = "{ARK_CREDENTIAL}" }}

[[provider]]
name       = "dashscope"
kind       = "dashscope"
base_url   = "{dashscope}"
credential = {{ value = "{DASHSCOPE_CREDENTIAL}" }}

[[provider]]
name       = "bedrock"
kind       = "bedrock"
base_url   = "{bedrock}"
credential = {{ value = "{BEDROCK_CREDENTIAL}" }}

[[model]]
id       = "gpt-4o"
owned_by = "openai"
created  = 1715367049
targets  = [{{ provider = "openai", model = "gpt-4o-2024-11-20" }}]
context_window    = 128000
max_output_tokens = 16384

[[model]]
id       = "claude-sonnet-4-6"
owned_by = "anthropic"
created  = 1771286400
targets  = [{{ provider = "anthropic", model = "claude-sonnet-4-6" }}]
context_window    = 200000
max_output_tokens = 64000

[[model]]
id       = "gemini-2.5-flash"
owned_by = "google"
created  = 1750118400
targets  = [{{ provider = "google", model = "gemini-2.5-flash" }}]
context_window    = 1048576
max_output_tokens = 65536

[[model]]
id       = "amazon.nova-lite-v1:0"
owned_by = "amazon"
created  = 1733184000
targets  = [{{ provider = "bedrock", model = "us.amazon.nova-lite-v1:0" }}]
context_window    = 300000
max_output_tokens = 10000

[[model]]
id       = "text-embedding-3-small"
owned_by = "openai"
created  = 1705948997
targets  = [{{ provider = "openai", model = "text-embedding-3-small" }}]

[[model]]
id       = "gemini-embedding-001"
owned_by = "google"
created  = 1752451200
targets  = [{{ provider = "google", model = "gemini-embedding-001" }}]

[[model]]
id       = "embed-v4.0"
owned_by = "cohere"
created  = 1744675200
targets  = [{{ provider = "cohere", model = "embed-v4.0" }}]

[[model]]
id       = "rerank-v3.5"
owned_by = "cohere"
created  = 1733097600
targets  = [{{ provider = "cohere", model = "rerank-v3.5" }}]

[[model]]
id       = "gpt-image-1"
owned_by = "openai"
created  = 1745517030
targets  = [{{ provider = "openai", model = "gpt-image-1" }}]

[[model]]
id       = "gemini-2.5-flash-image"
owned_by = "google"
created  = 1759363200
targets  = [{{ provider = "google", model = "gemini-2.5-flash-image" }}]

[[model]]
id       = "imagen-4.0-generate-001"
owned_by = "google"
created  = 1755129600
targets  = [{{ provider = "google", model = "imagen-4.0-generate-001" }}]

[[model]]
id       = "doubao-seedream-4-5-251128"
owned_by = "bytedance"
created  = 1764288000
targets  = [{{ provider = "ark", model = "doubao-seedream-4-5-251128" }}]

[[model]]
id       = "qwen-image-plus"
owned_by = "alibaba"
created  = 1758585600
targets  = [{{ provider = "dashscope", model = "qwen-image-plus" }}]

[[model]]
id       = "sora-2"
owned_by = "openai"
created  = 1759708800
targets  = [{{ provider = "openai", model = "sora-2" }}]

[[model]]
id       = "veo-3.1-fast-generate-preview"
owned_by = "google"
created  = 1760486400
targets  = [{{ provider = "google", model = "veo-3.1-fast-generate-preview" }}]

[[model]]
id       = "wan2.5-t2v-preview"
owned_by = "alibaba"
created  = 1758672000
targets  = [{{ provider = "dashscope", model = "wan2.5-t2v-preview" }}]

[[model]]
id       = "doubao-seedance-1-5-pro-251215"
owned_by = "bytedance"
created  = 1765756800
targets  = [{{ provider = "ark", model = "doubao-seedance-1-5-pro-251215" }}]

[[model]]
id       = "doubao-seedance-1-0-lite-t2v-250428"
owned_by = "bytedance"
created  = 1745798400
targets  = [{{ provider = "ark", model = "doubao-seedance-1-0-lite-t2v-250428" }}]

# What serves the task group where a request names no model.
[[model]]
id       = "vendorImageFirstLast"
owned_by = "bytedance"
targets  = [{{ provider = "ark", model = "doubao-seedance-1-5-pro-251215" }}]

[[model]]
id       = "videoFaceMergeSubmit"
owned_by = "alibaba"
targets  = [{{ provider = "dashscope", model = "wan2.2-animate-mix" }}]

[[model]]
id       = "text2imageSubmit"
owned_by = "bytedance"
targets  = [{{ provider = "ark", model = "doubao-seedream-4-0-250828" }}]

[[model]]
id       = "img2imgSubmit"
owned_by = "alibaba"
targets  = [{{ provider = "dashscope", model = "qwen-image-edit-plus" }}]

[tokens]
lifetime = "2h"

[[tokens.key]]
id        = "demo"
algorithm = "HS256"
secret    = {{ value = "{TOKEN_SECRET}" }}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{self, NoSecrets};

    /// The pages about money would show nothing but 0.
    #[tokio::test]
    async fn demo_has_a_price_for_each_of_its_models() {
        let providers = Providers::start().await.unwrap();
        let key = NewKey::generate().unwrap();
        let files = Files::write([18_080, 19_090], &key, &key, &providers).unwrap();
        let loaded = config::load(&files.gateway(), &NoSecrets).unwrap();
        let models = loaded.snapshot.routes.models();
        let free: Vec<_> =
            models.iter().filter(|model| model.price.is_empty()).map(|model| &*model.id).collect();
        assert!(models.len() > 15 && free.is_empty(), "{free:?}");
    }
}
