//! Tests of the tables of types, enumerations and ranges, which hold for every provider: what they refuse, and what odd
//! clients may send.

use bytes::Bytes;

use crate::error::ApiError;
use crate::wire::Api;
use crate::wire::request::{Body, BodyReader};

fn read(api: Api, member: &str) -> Result<Body, ApiError> {
    let rest = match api {
        Api::Chat => r#""model":"m","messages":[{"role":"user","content":"Hi"}]"#,
        Api::Messages => r#""model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]"#,
        Api::Responses => r#""model":"m","input":"Hi""#,
        Api::Converse => r#""messages":[{"role":"user","content":[{"text":"Hi"}]}]"#,
        _ => r#""contents":[{"parts":[{"text":"Hi"}]}]"#,
    };
    let mut reader = BodyReader::new(api, false);
    reader.push(Bytes::from(format!("{{{rest},{member}}}"))).unwrap();
    reader.finish()
}

#[test]
fn value_of_a_wrong_type_or_outside_of_its_enumeration_names_its_path() {
    for (api, member, path) in [
        (
            Api::Chat,
            r#""web_search_options":{"search_context_size":"huge"}"#,
            "web_search_options.search_context_size",
        ),
        (Api::Chat, r#""web_search_options":{"user_location":"Berlin"}"#, "web_search_options.user_location"),
        (Api::Chat, r#""web_search_options":[]"#, "web_search_options"),
        (Api::Chat, r#""reasoning":{"max_tokens":-5}"#, "reasoning.max_tokens"),
        (Api::Chat, r#""reasoning":{"max_tokens":"x"}"#, "reasoning.max_tokens"),
        (Api::Chat, r#""reasoning":5"#, "reasoning"),
        (Api::Chat, r#""parameters":"x""#, "parameters"),
        (Api::Chat, r#""tools":{}"#, "tools"),
        (Api::Messages, r#""thinking":"on""#, "thinking"),
        (Api::Messages, r#""system":{}"#, "system"),
        (Api::Messages, r#""tools":"x""#, "tools"),
        (Api::Messages, r#""stop_sequences":"x""#, "stop_sequences"),
        (Api::Messages, r#""mcp_servers":{}"#, "mcp_servers"),
        (Api::Messages, r#""context_management":[]"#, "context_management"),
        (Api::Responses, r#""reasoning":"x""#, "reasoning"),
        (Api::Responses, r#""reasoning":5"#, "reasoning"),
        (Api::Responses, r#""reasoning":{"summary":"long"}"#, "reasoning.summary"),
        (Api::Responses, r#""max_tool_calls":1.5"#, "max_tool_calls"),
        (Api::Responses, r#""max_tool_calls":"3""#, "max_tool_calls"),
        (Api::Responses, r#""tools":"x""#, "tools"),
        (Api::Responses, r#""metadata":[]"#, "metadata"),
        (Api::Generate, r#""systemInstruction":"x""#, "systemInstruction"),
        (Api::Generate, r#""system_instruction":3"#, "system_instruction"),
        (Api::Generate, r#""safetySettings":"x""#, "safetySettings"),
        (Api::Generate, r#""tools":"x""#, "tools"),
        (Api::Generate, r#""toolConfig":[]"#, "toolConfig"),
        (Api::Generate, r#""generationConfig":[]"#, "generationConfig"),
        (Api::Generate, r#""generationConfig":{"stopSequences":"x"}"#, "generationConfig.stopSequences"),
        (Api::Converse, r#""inferenceConfig":"x""#, "inferenceConfig"),
        (Api::Converse, r#""toolConfig":[]"#, "toolConfig"),
        (Api::Converse, r#""system":"x""#, "system"),
    ] {
        let error = read(api, member).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(path)), "{api:?} {member}");
        assert!(error.message.contains(path), "{}", error.message);
    }
}

#[test]
fn value_of_an_odd_client_passes() {
    for (api, members) in [
        (
            Api::Chat,
            &[
                r#""tools":null,"reasoning":null,"parameters":null,"web_search_options":null"#,
                r#""reasoning":"low""#,
                r#""reasoning":true"#,
                r#""reasoning":{"max_tokens":-1}"#,
                r#""reasoning":{"max_tokens":2048.0}"#,
                r#""reasoning":{"max_tokens":null,"effort":"high"}"#,
                r#""web_search_options":{"search_context_size":null}"#,
            ][..],
        ),
        (
            Api::Messages,
            &[
                r#""thinking":null,"system":null,"tools":null,"stop_sequences":null,"metadata":null"#,
                r#""system":[],"tools":[],"stop_sequences":[]"#,
            ],
        ),
        (
            Api::Responses,
            &[
                r#""reasoning":null,"tools":null,"metadata":null,"max_tool_calls":null"#,
                r#""reasoning":{"summary":null,"effort":"ultra"},"max_tool_calls":3.0"#,
                r#""reasoning":{"summary":"concise"}"#,
            ],
        ),
        (
            Api::Generate,
            &[
                // Google's API takes one object for an array of one.
                r#""tools":{"googleSearch":{}},"safetySettings":{"category":"c","threshold":"OFF"}"#,
                r#""systemInstruction":{"parts":{"text":"x"}},"toolConfig":null,"generationConfig":null"#,
                r#""generationConfig":{"stopSequences":null}"#,
            ],
        ),
        (Api::Converse, &[r#""inferenceConfig":null,"toolConfig":null,"system":null"#]),
    ] {
        for member in members {
            assert!(read(api, member).is_ok(), "{api:?} {member}");
        }
    }
}
