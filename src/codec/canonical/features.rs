//! Features of a request that not every model takes: what decides whether the bytes of a client pass unchanged to a target
//! of the client's own format.

use super::request::Effort;

/// First bit of the six efforts.
const EFFORT_BITS: u32 = 32;
/// First bit of the six efforts beside which reasoning is off.
const OFF_BITS: u32 = 40;

/// Set of features: those that a request has, or those that a model refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFeatures(u64);

impl RequestFeatures {
    /// No feature.
    pub const NONE: RequestFeatures = RequestFeatures(0);
    /// An envelope of the gateway around what a provider signed ([`SealedSignature`](super::SealedSignature)), or an id
    /// that carries one.
    pub const ENVELOPE: RequestFeatures = RequestFeatures(1);
    /// Reasoning with an empty signature.
    pub const UNSIGNED: RequestFeatures = RequestFeatures(1 << 1);
    /// An id of a tool call with other characters than letters, digits, `_` and `-`.
    pub const ODD_ID: RequestFeatures = RequestFeatures(1 << 2);
    /// An id of a tool call with other characters than these, `.` and `:`.
    pub const STRANGE_ID: RequestFeatures = RequestFeatures(1 << 3);
    /// An id of a tool call of more than 40 characters.
    pub const LONG_ID: RequestFeatures = RequestFeatures(1 << 4);
    /// An id of a tool call of more than 64 characters.
    pub const OVERLONG_ID: RequestFeatures = RequestFeatures(1 << 5);
    /// Instructions behind the beginning of the conversation.
    pub const LATER_SYSTEM: RequestFeatures = RequestFeatures(1 << 6);
    /// Instructions behind the beginning that do not follow a turn of the user, do not precede one of the model, or stand
    /// in two turns in a row.
    pub const MISPLACED_SYSTEM: RequestFeatures = RequestFeatures(1 << 18);
    /// An image.
    pub const IMAGE: RequestFeatures = RequestFeatures(1 << 7);
    /// A schema of a tool with a union at its root.
    pub const ROOT_UNION: RequestFeatures = RequestFeatures(1 << 8);
    /// A tool choice that requires a call.
    pub const FORCED_TOOL: RequestFeatures = RequestFeatures(1 << 9);
    /// A tool choice that requires a call, beside a reasoning budget.
    pub const FORCED_WITH_BUDGET: RequestFeatures = RequestFeatures(1 << 10);
    /// Reasoning that the model measures out itself.
    pub const ADAPTIVE: RequestFeatures = RequestFeatures(1 << 11);
    /// A reasoning budget.
    pub const BUDGET: RequestFeatures = RequestFeatures(1 << 12);
    /// Reasoning switched off.
    pub const REASONING_OFF: RequestFeatures = RequestFeatures(1 << 13);
    /// A reasoning effort.
    pub const EFFORT: RequestFeatures = RequestFeatures(1 << 14);
    /// A sampling parameter with another value than its default.
    pub const SAMPLING: RequestFeatures = RequestFeatures(1 << 15);
    /// Both `temperature` and `top_p`.
    pub const BOTH_SAMPLING: RequestFeatures = RequestFeatures(1 << 16);
    /// A conversation that ends with the model's turn.
    pub const PREFILL: RequestFeatures = RequestFeatures(1 << 17);

    /// A member that other providers have added to the format of its maker.
    pub const ADDED_MEMBER: RequestFeatures = RequestFeatures(1 << 19);

    /// A member that other providers have added to the messages of a conversation.
    pub const MESSAGE_MEMBER: RequestFeatures = RequestFeatures(1 << 28);

    /// [`ENVELOPE`](RequestFeatures::ENVELOPE) at a target that takes reasoning of any issuer: edits settle it in any case.
    pub const SEALED: RequestFeatures = RequestFeatures(1 << 29);

    /// A call without a result right behind it, or a result without its call.
    pub const UNMATCHED_CALL: RequestFeatures = RequestFeatures(1 << 30);
    /// Features that are looked for only after a refusal, or at a target that the gateway chose: the whole conversation is
    /// read for them.
    pub const SOUGHT_LATE: RequestFeatures = RequestFeatures::UNMATCHED_CALL;

    /// A signature without an envelope.
    pub const SIGNED: RequestFeatures = RequestFeatures(1 << 27);

    /// An output limit beyond that of the model.
    pub const OUTPUT_LIMIT: RequestFeatures = RequestFeatures(1 << 23);

    /// Reasoning without a signature, in a format in which other models have no signatures.
    pub const BARE_REASONING: RequestFeatures = RequestFeatures(1 << 24);
    /// A mark of the end of a prefix that is to be cached.
    pub const CACHE_MARK: RequestFeatures = RequestFeatures(1 << 25);

    /// A reasoning budget in the middle of a turn that another model has begun: its calls have no reasoning before them.
    pub const BARE_CALL: RequestFeatures = RequestFeatures(1 << 26);

    /// What clients choose for the model that they name: settings, and places of instructions. The rest is what another
    /// model has left in the conversation, or what no provider accepts.
    pub const CHOICES: RequestFeatures = RequestFeatures::LATER_SYSTEM
        .with(RequestFeatures::MISPLACED_SYSTEM)
        .with(RequestFeatures::FORCED_TOOL)
        .with(RequestFeatures::FORCED_WITH_BUDGET)
        .with(RequestFeatures::ADAPTIVE)
        .with(RequestFeatures::BUDGET)
        .with(RequestFeatures::REASONING_OFF)
        .with(RequestFeatures::EFFORT)
        .with(RequestFeatures::SAMPLING)
        .with(RequestFeatures::BOTH_SAMPLING)
        .with(RequestFeatures::PREFILL)
        .with(RequestFeatures::ADDED_MEMBER)
        .with(RequestFeatures::MESSAGE_MEMBER)
        .with(RequestFeatures::SAMPLING_ALONE)
        .with(RequestFeatures::SAMPLING_BESIDE_EFFORT)
        .with(RequestFeatures::NO_EFFORT)
        .with(RequestFeatures::OUTPUT_LIMIT)
        .with(RequestFeatures::CACHE_MARK)
        .with(RequestFeatures::EFFORTS)
        .with(RequestFeatures::OFF_BESIDE_EFFORTS);

    /// Returns the set as bits, for an atomic.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the set of these [`RequestFeatures::bits`].
    pub const fn from_bits(bits: u64) -> RequestFeatures {
        RequestFeatures(bits)
    }

    /// A sampling parameter with another value than its default, without a reasoning effort.
    pub const SAMPLING_ALONE: RequestFeatures = RequestFeatures(1 << 22);
    /// A sampling parameter with another value than its default, beside a reasoning effort other than `none`.
    pub const SAMPLING_BESIDE_EFFORT: RequestFeatures = RequestFeatures(1 << 20);
    /// The reasoning effort `none`.
    pub const NO_EFFORT: RequestFeatures = RequestFeatures(1 << 21);
    /// Any of the six reasoning efforts.
    pub const EFFORTS: RequestFeatures = RequestFeatures(0b11_1111 << EFFORT_BITS);
    /// Reasoning switched off beside any of the six reasoning efforts.
    pub const OFF_BESIDE_EFFORTS: RequestFeatures = RequestFeatures(0b11_1111 << OFF_BITS);

    /// Returns the feature of one reasoning effort.
    pub const fn effort(effort: Effort) -> RequestFeatures {
        RequestFeatures(1 << (EFFORT_BITS + effort as u32))
    }

    /// Returns the feature of reasoning that is switched off beside an effort.
    pub const fn off_beside(effort: Effort) -> RequestFeatures {
        RequestFeatures(1 << (OFF_BITS + effort as u32))
    }

    /// Returns the union of both sets.
    pub const fn with(self, other: RequestFeatures) -> RequestFeatures {
        RequestFeatures(self.0 | other.0)
    }

    /// Returns the features that both sets have.
    pub const fn common(self, other: RequestFeatures) -> RequestFeatures {
        RequestFeatures(self.0 & other.0)
    }

    /// Returns these features without the others.
    pub const fn without(self, other: RequestFeatures) -> RequestFeatures {
        RequestFeatures(self.0 & !other.0)
    }

    /// Returns these features if `holds`, and none otherwise.
    pub const fn when(self, holds: bool) -> RequestFeatures {
        if holds { self } else { RequestFeatures::NONE }
    }

    /// Returns whether the sets have a feature in common.
    pub const fn intersects(self, other: RequestFeatures) -> bool {
        self.0 & other.0 != 0
    }
}
