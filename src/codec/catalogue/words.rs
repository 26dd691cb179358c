//! Words of catalogue files: enums whose variants a file writes by name.

use super::document::TomlValue;

/// Value of a fact: read from a file, and written for people.
pub(super) trait FactValue: Sized {
    fn read(value: &TomlValue<'_>) -> Option<Self>;
    fn written(&self) -> String;
}

/// Defines an enum whose variants are words of the file.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Returns the word that stands in the file.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl FactValue for $name {
            fn read(value: &TomlValue<'_>) -> Option<Self> {
                let text = value.text()?;
                let found = $name::ALL.iter().copied().find(|word| word.name() == text);
                if found.is_none() {
                    let words: Vec<&str> = $name::ALL.iter().map(|word| word.name()).collect();
                    value.wrong(format!("{text:?} is not known"), format!("write one of {}", words.join(", ")));
                }
                found
            }

            fn written(&self) -> String {
                self.name().to_owned()
            }
        }
    };
}

words! {
    /// What a model does.
    ModelKind {
        /// Conversations.
        Chat = "chat",
        /// Embeddings.
        Embedding = "embedding",
        /// Relevance of documents to a query.
        Rerank = "rerank",
        /// Images.
        Image = "image",
        /// Videos.
        Video = "video",
        /// Spoken conversations over a WebSocket or WebRTC.
        Realtime = "realtime",
        /// Speech from text.
        SpeechSynthesis = "speech",
        /// Text from speech.
        Transcription = "transcription",
        /// Text from pages.
        Ocr = "ocr",
        /// Classification of harmful content.
        Moderation = "moderation",
    }
}

words! {
    /// How far a row has been confirmed.
    RowStatus {
        /// The provider documents it.
        Documented = "documented",
        /// A third party measured it against the provider's API.
        Measured = "measured",
        /// Only catalogues of others state it.
        Listed = "listed",
        /// Inferred, or contested.
        Unverified = "unverified",
    }
}

words! {
    /// How reasoning is configured.
    ReasoningControl {
        /// It cannot be configured, or has a switch only.
        Fixed = "fixed",
        /// An effort name.
        Effort = "effort",
        /// A number of tokens.
        Budget = "budget",
        /// The model decides; an effort name guides it.
        Adaptive = "adaptive",
    }
}

words! {
    /// How reasoning is switched off.
    ReasoningOff {
        /// It cannot be.
        No = "no",
        /// The effort `none`.
        None = "none",
        /// A setting that says disabled, or a budget of 0.
        Disabled = "disabled",
        /// Only before the first tool call of a turn, not between calls.
        BetweenTools = "between_tools",
    }
}

words! {
    /// Value of a setting that may also be `none`.
    DefaultEffort {
        /// No reasoning.
        None = "none",
        /// Lowest effort.
        Minimal = "minimal",
        /// Low effort.
        Low = "low",
        /// Medium effort.
        Medium = "medium",
        /// High effort.
        High = "high",
        /// Above high.
        XHigh = "xhigh",
        /// Highest effort.
        Max = "max",
    }
}

words! {
    /// Sampling parameters that a model accepts.
    SamplingRule {
        /// All of the format.
        All = "all",
        /// `temperature` or `top_p`, not both.
        One = "one",
        /// Only while reasoning is off.
        IfOff = "if_off",
        /// None.
        No = "no",
    }
}

words! {
    /// Support of structured output.
    SchemaSupport {
        /// The parameter of the format.
        Native = "native",
        /// The parameter of the format, in requests without tools.
        NativeWithoutTools = "native_without_tools",
        /// JSON without a schema.
        Json = "json",
        /// By a forced tool call.
        Tool = "tool",
        /// By instructions only.
        Hint = "hint",
    }
}

words! {
    /// Support of conversations that end with the beginning of the response.
    PrefillRule {
        /// Refused.
        No = "no",
        /// Accepted.
        Yes = "yes",
        /// Accepted at the provider's address of preview features.
        Beta = "beta",
    }
}

words! {
    /// Role of the instructions in chat completions.
    InstructionsRole {
        /// `system`
        System = "system",
        /// `developer`
        Developer = "developer",
    }
}

words! {
    /// Name of the output token limit in chat completions.
    LimitMember {
        /// `max_tokens`
        MaxTokens = "max_tokens",
        /// `max_completion_tokens`
        MaxCompletionTokens = "max_completion_tokens",
    }
}

words! {
    /// API of a provider, by its format.
    ApiFormat {
        /// Any that the provider offers.
        Any = "any",
        /// Chat completions.
        Chat = "chat",
        /// Responses.
        Responses = "responses",
        /// Messages.
        Messages = "messages",
    }
}

words! {
    /// Kind of content that a model reads or writes.
    ContentKind {
        /// Text.
        Text = "text",
        /// Images.
        Image = "image",
        /// PDF documents.
        Pdf = "pdf",
        /// Sound.
        Audio = "audio",
        /// Videos.
        Video = "video",
    }
}
