//! Types of channels: the numbers of New API and One API, which are the same up to 27 only, and what they are in the
//! configuration.
//!
//! Sources: `constant/channel.go` of <https://github.com/QuantumNous/new-api> (formerly `common/constants.go`) and
//! `relay/channeltype/define.go` of <https://github.com/songquanpeng/one-api>, with the base URLs beside them;
//! November 2026.

use super::ChannelSource;
use codec::provider::ProviderKind;

/// Type of a channel with a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelKind {
    /// Name of the provider in the result, if the channel has none that fits.
    pub(super) name: &'static str,
    pub(super) kind: ProviderKind,
    /// Root without a version; empty if the channel must have an address.
    pub(super) root: &'static str,
    /// What follows the root in the base URL of the configuration.
    pub(super) suffix: &'static str,
    pub(super) dialect: Option<&'static str>,
}

const fn native(
    name: &'static str,
    kind: ProviderKind,
    root: &'static str,
    suffix: &'static str,
) -> ChannelKind {
    ChannelKind { name, kind, root, suffix, dialect: None }
}

const fn compatible(name: &'static str, root: &'static str, suffix: &'static str) -> ChannelKind {
    native(name, ProviderKind::OpenAiCompatible, root, suffix)
}

const fn preset(name: &'static str, root: &'static str, suffix: &'static str) -> ChannelKind {
    ChannelKind { dialect: Some(name), ..compatible(name, root, suffix) }
}

const OPENAI: ChannelKind = native("openai", ProviderKind::OpenAi, "https://api.openai.com", "/v1");
const AZURE: ChannelKind = native("azure", ProviderKind::Azure, "", "");
const ANTHROPIC: ChannelKind =
    native("anthropic", ProviderKind::Anthropic, "https://api.anthropic.com", "/v1");
const GEMINI: ChannelKind =
    native("gemini", ProviderKind::Gemini, "https://generativelanguage.googleapis.com", "/v1beta");
const DASHSCOPE: ChannelKind =
    native("dashscope", ProviderKind::DashScope, "https://dashscope.aliyuncs.com", "/compatible-mode/v1");
const ARK: ChannelKind = native("ark", ProviderKind::Ark, "https://ark.cn-beijing.volces.com", "/api/v3");
const JINA: ChannelKind = native("jina", ProviderKind::Jina, "https://api.jina.ai", "/v1");
const COHERE: ChannelKind = compatible("cohere", "https://api.cohere.ai", "/compatibility/v1");
const OLLAMA: ChannelKind = preset("ollama", "http://localhost:11434", "/v1");
const OPENROUTER: ChannelKind = preset("openrouter", "https://openrouter.ai/api", "/v1");
const MOONSHOT: ChannelKind = preset("moonshot", "https://api.moonshot.cn", "/v1");
const ZHIPU: ChannelKind = preset("glm", "https://open.bigmodel.cn", "/api/paas/v4");
const MISTRAL: ChannelKind = preset("mistral", "https://api.mistral.ai", "/v1");
const GROQ: ChannelKind = preset("groq", "https://api.groq.com/openai", "/v1");
const DEEPSEEK: ChannelKind = preset("deepseek", "https://api.deepseek.com", "/v1");
const XAI: ChannelKind = preset("xai", "https://api.x.ai", "/v1");
const TOGETHER: ChannelKind = preset("together", "https://api.together.xyz", "/v1");
const PERPLEXITY: ChannelKind = compatible("perplexity", "https://api.perplexity.ai", "");
const LINGYI: ChannelKind = compatible("lingyiwanwu", "https://api.lingyiwanwu.com", "/v1");
const MINIMAX: ChannelKind = compatible("minimax", "https://api.minimax.chat", "/v1");
const SILICON: ChannelKind = compatible("siliconflow", "https://api.siliconflow.cn", "/v1");
const BAIDU: ChannelKind = compatible("qianfan", "https://qianfan.baidubce.com", "/v2");
const STEPFUN: ChannelKind = compatible("stepfun", "https://api.stepfun.com", "/v1");
const BAICHUAN: ChannelKind = compatible("baichuan", "https://api.baichuan-ai.com", "/v1");
const NOVITA: ChannelKind = compatible("novita", "https://api.novita.ai", "/v3/openai");
const XUNFEI: ChannelKind = compatible("xunfei", "https://spark-api-open.xf-yun.com", "/v2");
const SERVER: ChannelKind = compatible("openai-compatible", "", "/v1");
const WHOLE: ChannelKind = compatible("openai-compatible", "", "");

/// Returns the type of a channel.
///
/// # Errors
/// Returns the reason if it has no counterpart.
pub(super) fn find(origin: ChannelSource, number: i64) -> Result<ChannelKind, String> {
    let reason = |name: &str| Err(format!("the gateway has no provider kind for {name}"));
    let own = match origin {
        ChannelSource::NewApi => new_api(number),
        ChannelSource::OneApi => one_api(number),
    };
    match (own, number) {
        (Some(kind), _) => Ok(kind),
        (None, 33) => {
            Err("keys of AWS are not copied: add a [[provider]] of kind \"bedrock\" (docs/providers.md)"
                .to_owned())
        }
        (None, 42) if origin == ChannelSource::OneApi => vertex(),
        (None, 41) if origin == ChannelSource::NewApi => vertex(),
        (None, 15) => reason("the native API of Baidu; use its second version"),
        (None, 16) => reason("the native API of Zhipu; use its fourth version"),
        (None, 18) => reason("the native API of Xunfei"),
        (None, 23) => reason("the native API of Tencent"),
        (None, 2 | 5..=7 | 9..=13 | 19 | 21 | 22) => reason("this service"),
        (None, number) => Err(format!(
            "the channel type {number} is not known: add a [[provider]] by hand, with kind = \"openai-compatible\" if it has that API"
        )),
    }
}

fn vertex() -> Result<ChannelKind, String> {
    Err("credentials of Google Cloud are not copied: add a provider of kind \"vertex\" or \"vertex-anthropic\" with `google` \
         (docs/providers.md)"
        .to_owned())
}

fn common(number: i64) -> Option<ChannelKind> {
    Some(match number {
        1 => OPENAI,
        3 => AZURE,
        8 => WHOLE,
        14 => ANTHROPIC,
        17 => DASHSCOPE,
        20 => OPENROUTER,
        24 => GEMINI,
        25 => MOONSHOT,
        31 => LINGYI,
        _ => return None,
    })
}

fn new_api(number: i64) -> Option<ChannelKind> {
    Some(match number {
        4 => OLLAMA,
        26 => ZHIPU,
        27 => PERPLEXITY,
        34 => COHERE,
        35 => MINIMAX,
        38 => JINA,
        40 => SILICON,
        42 => MISTRAL,
        43 => DEEPSEEK,
        45 => ARK,
        46 => BAIDU,
        47 => SERVER,
        48 => XAI,
        number => return common(number),
    })
}

fn one_api(number: i64) -> Option<ChannelKind> {
    Some(match number {
        26 => BAICHUAN,
        27 => MINIMAX,
        28 => MISTRAL,
        29 => GROQ,
        30 => OLLAMA,
        32 => STEPFUN,
        35 => COHERE,
        36 => DEEPSEEK,
        39 => TOGETHER,
        40 => ARK,
        41 => NOVITA,
        44 => SILICON,
        45 => XAI,
        47 => BAIDU,
        48 => XUNFEI,
        49 => DASHSCOPE,
        50 => WHOLE,
        51 => compatible("gemini-openai", "https://generativelanguage.googleapis.com", "/v1beta/openai"),
        number => return common(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_means_another_provider_in_each_source() {
        let name = |origin, number| find(origin, number).map(|kind| kind.name);
        assert_eq!(name(ChannelSource::OneApi, 28), Ok("mistral"));
        assert!(name(ChannelSource::NewApi, 28).is_err());
        assert_eq!(name(ChannelSource::NewApi, 42), Ok("mistral"));
        assert!(name(ChannelSource::OneApi, 42).is_err());
        assert_eq!(
            (name(ChannelSource::NewApi, 45), name(ChannelSource::OneApi, 45)),
            (Ok("ark"), Ok("xai"))
        );
        for origin in [ChannelSource::NewApi, ChannelSource::OneApi] {
            for number in [33, 999, -1] {
                assert!(find(origin, number).is_err(), "{number}");
            }
        }
    }
}
