//! Routes of the admin API: what the router follows, and what the OpenAPI document describes.

use super::audit::{AuditOutcome, AuditTopic};
use super::events;
use super::resources::{
    accounts, audit, change, config, explain, fleet, instance, keys, limits, models, playground, providers,
    session, targets, totals, usage,
};
pub(super) use super::route::{AdminRoute, AnswerType, Parameter};
use super::route::{CURSOR, LIMIT, NONE, act, get, page, parameter};
use super::schema::BodyType;
use ::config::EntryKind;
use routing::account::AdminRole;

const FORMAT: Parameter = Parameter { name: "format", values: &usage::FORMATS, text: "Form of the answer." };
const FROM: Parameter = parameter("from", "First day or month, UTC; by default the first day of this month.");
const TO: Parameter = parameter("to", "Last day or month, UTC; by default today.");
const ACCOUNT: Parameter = parameter("account", "Only this account; empty for keys without one.");
const KEY: Parameter = parameter("key", "Only this key.");
const MODEL: Parameter = parameter("model", "Only this model, as clients name it.");
const SEARCH: Parameter = parameter("q", "Only entries that have each of these words in a name or state.");

/// All routes.
pub(super) static ROUTES: &[AdminRoute] = &[
    get("", "index", "What the caller may do.", &instance::INDEX, instance::index),
    AdminRoute {
        answers: AnswerType::OpenApi,
        ..get("/openapi.json", "openapi", "This document.", &instance::INDEX, instance::openapi)
    },
    AdminRoute {
        is_open: true,
        ..get(
            "/session",
            "session",
            "Who the caller is, and how one can sign in.",
            &session::SESSION,
            session::read,
        )
    },
    AdminRoute {
        query: NONE,
        is_open: true,
        ..act(
            "POST",
            "/session",
            AdminRole::Read,
            ("signIn", "Begins a session: the answer sets its cookie."),
            (BodyType::Object(&session::SIGN_IN), &session::SESSION),
            session::sign_in,
        )
    },
    AdminRoute {
        query: NONE,
        is_open: true,
        ..act(
            "DELETE",
            "/session",
            AdminRole::Read,
            ("signOut", "Ends the session of the cookie."),
            (BodyType::None, &session::SIGNED_OUT),
            session::sign_out,
        )
    },
    AdminRoute {
        is_open: true,
        answers: AnswerType::Page,
        ..get(
            "/session/oidc",
            "oidcStart",
            "Sends a browser to the issuer of identities to sign in.",
            &session::SESSION,
            session::oidc_start,
        )
    },
    AdminRoute {
        is_open: true,
        answers: AnswerType::Page,
        ..get(
            "/session/oidc/callback",
            "oidcCallback",
            "Where the issuer's page comes back; begins a session.",
            &session::SESSION,
            session::oidc_callback,
        )
    },
    get("/instance", "instance", "State of the process.", &instance::INSTANCE, instance::read),
    get("/totals", "totals", "Totals since the start of the process.", &totals::TOTALS, totals::read),
    AdminRoute {
        method: "POST",
        body: BodyType::Object(&explain::QUESTION),
        ..get(
            "/explain",
            "explainRequest",
            "Shows what each target would get of a request, and sends nothing.",
            &explain::EXPLANATION,
            explain::explain,
        )
    },
    AdminRoute {
        query: NONE,
        answers: AnswerType::Events,
        answer: None,
        ..act(
            "POST",
            "/playground",
            AdminRole::Operate,
            (playground::ID, "Sends a request with a key, as a client does; the response comes as events."),
            (BodyType::Object(&playground::REQUEST), &instance::INDEX),
            instance::index,
        )
    },
    get(
        "/fleet",
        "fleet",
        "Gateways that share a store, and whether they have the same configuration.",
        &fleet::FLEET,
        fleet::read,
    ),
    AdminRoute {
        answers: AnswerType::Text("application/toml"),
        ..get(
            "/config",
            "config",
            "Configuration in effect, with secrets masked.",
            &instance::INDEX,
            config::read,
        )
    },
    get("/config/files", "configFiles", "Files of the configuration.", &config::FILES, config::files),
    get(
        "/config/pending",
        "pendingConfig",
        "What a reload or a restart would change, and the faults of the files. Changes nothing.",
        &config::PENDING,
        config::pending,
    ),
    AdminRoute {
        method: "POST",
        body: BodyType::Object(&config::TEXTS),
        ..get(
            "/config/validate",
            "validateConfig",
            "Checks texts of configuration files and changes nothing.",
            &config::CHECKED,
            config::validate,
        )
    },
    AdminRoute {
        query: NONE,
        ..act(
            "POST",
            "/config/reload",
            AdminRole::Operate,
            ("reloadConfig", "Reads routes, keys and tokens again, as SIGHUP does."),
            (BodyType::None, &config::RELOADED),
            config::reload,
        )
    },
    AdminRoute {
        query: &[LIMIT, CURSOR, ACCOUNT, SEARCH],
        ..get("/keys", "keys", "Keys.", &keys::KEYS, keys::list)
    },
    act(
        "POST",
        "/keys",
        AdminRole::Admin,
        ("createKey", "Creates a key. Its text is in the answer, once."),
        (BodyType::Entry(EntryKind::Key), &change::CHANGE),
        keys::create,
    ),
    get("/keys/{name}", "key", "Key.", &keys::KEY, keys::read),
    act(
        "PATCH",
        "/keys/{name}",
        AdminRole::Admin,
        ("updateKey", "Changes the members that the body has; a null removes one."),
        (BodyType::Entry(EntryKind::Key), &change::CHANGE),
        keys::update,
    ),
    act(
        "DELETE",
        "/keys/{name}",
        AdminRole::Admin,
        ("deleteKey", "Removes a key."),
        (BodyType::None, &change::CHANGE),
        keys::remove,
    ),
    act(
        "POST",
        "/keys/{name}/rotate",
        AdminRole::Admin,
        (
            "rotateKey",
            "Gives a key a new text, which is in the answer, once. The old one is refused from then on, or after a grace period.",
        ),
        (BodyType::Object(&keys::ROTATION), &change::CHANGE),
        keys::rotate,
    ),
    get(
        "/keys/{name}/limits",
        "keyLimits",
        "Limits of a key, with what is used of them.",
        &limits::LIMITS_IN_USE,
        limits::of_key,
    ),
    AdminRoute {
        query: &[
            parameter("over", "Only limits of which at least this share is used, such as 0.8."),
            parameter("limit", "Number of limits, at most 1000."),
        ],
        ..get(
            "/limits",
            "limits",
            "Limits of all keys and accounts, those of which most is used first.",
            &limits::LIMIT_ROWS,
            limits::list,
        )
    },
    AdminRoute {
        query: &[LIMIT, CURSOR, SEARCH],
        ..get("/accounts", "accounts", "Accounts.", &accounts::ACCOUNTS, accounts::list)
    },
    act(
        "POST",
        "/accounts",
        AdminRole::Admin,
        ("createAccount", "Creates an account."),
        (BodyType::Object(&accounts::NEW_ACCOUNT), &accounts::ACCOUNT),
        accounts::create,
    ),
    get("/accounts/{name}", "account", "Account.", &accounts::ACCOUNT, accounts::read),
    act(
        "PATCH",
        "/accounts/{name}",
        AdminRole::Admin,
        ("updateAccount", "Enables, disables or limits an account: all of it, or nothing."),
        (BodyType::Object(&accounts::ACCOUNT_PATCH), &accounts::ACCOUNT),
        accounts::update,
    ),
    page(get(
        "/accounts/{name}/credits",
        "credits",
        "Credits of an account, the latest first.",
        &accounts::CREDITS,
        accounts::credits,
    )),
    act(
        "POST",
        "/accounts/{name}/credits",
        AdminRole::Operate,
        ("creditAccount", "Credits an account; a deduction needs the role admin."),
        (BodyType::Object(&accounts::NEW_CREDIT), &accounts::CREDITED),
        accounts::credit,
    ),
    get(
        "/accounts/{name}/limits",
        "accountLimits",
        "Limits of an account, with what is used of them.",
        &limits::LIMITS_IN_USE,
        limits::of_account,
    ),
    page(get("/models", "models", "Models.", &models::MODELS, models::list)),
    act(
        "POST",
        "/models",
        AdminRole::Admin,
        ("createModel", "Adds a model."),
        (BodyType::Entry(EntryKind::Model), &change::CHANGE),
        models::create,
    ),
    get(
        "/models/{id}",
        "model",
        "Model by its id, or by any name that clients may send: how it resolves.",
        &models::MODEL,
        models::read,
    ),
    act(
        "PATCH",
        "/models/{id}",
        AdminRole::Admin,
        ("updateModel", "Changes the members that the body has; a null removes one."),
        (BodyType::Entry(EntryKind::Model), &change::CHANGE),
        models::update,
    ),
    act(
        "DELETE",
        "/models/{id}",
        AdminRole::Admin,
        ("deleteModel", "Removes a model."),
        (BodyType::None, &change::CHANGE),
        models::remove,
    ),
    get("/providers", "providers", "Providers.", &providers::PROVIDERS, providers::list),
    act(
        "POST",
        "/providers",
        AdminRole::Admin,
        ("createProvider", "Adds a provider, whose credential is an environment variable or a file."),
        (BodyType::Entry(EntryKind::Provider), &change::CHANGE),
        providers::create,
    ),
    get("/providers/{name}", "provider", "Provider.", &providers::PROVIDER, providers::read),
    act(
        "PATCH",
        "/providers/{name}",
        AdminRole::Admin,
        ("updateProvider", "Changes the members that the body has; a null removes one."),
        (BodyType::Entry(EntryKind::Provider), &change::CHANGE),
        providers::update,
    ),
    act(
        "DELETE",
        "/providers/{name}",
        AdminRole::Admin,
        ("deleteProvider", "Removes a provider that no model uses."),
        (BodyType::None, &change::CHANGE),
        providers::remove,
    ),
    get("/targets", "targets", "Targets with their state.", &targets::TARGETS, targets::read_all),
    get("/targets/{provider}/{model}", "target", "Target with its state.", &targets::TARGET, targets::read),
    act(
        "POST",
        "/targets/{provider}/{model}/drain",
        AdminRole::Operate,
        (
            "drainTarget",
            "Sends no further requests to a target; those in progress go on. Lasts until it is resumed, also over restarts.",
        ),
        (BodyType::Object(&targets::DRAIN), &targets::DRAINED),
        targets::drain,
    ),
    act(
        "POST",
        "/targets/{provider}/{model}/resume",
        AdminRole::Operate,
        ("resumeTarget", "Ends the draining of a target."),
        (BodyType::None, &targets::DRAINED),
        targets::resume,
    ),
    act(
        "POST",
        "/targets/{provider}/{model}/close",
        AdminRole::Operate,
        ("closeBreaker", "Closes the breakers of a target and of its provider, which failures have opened."),
        (BodyType::None, &targets::CLOSED),
        targets::close,
    ),
    AdminRoute {
        query: &[
            FROM,
            TO,
            parameter(
                "group",
                "What the rows are: up to three of hour, day, month, account, key, model, provider and error, \
                                with commas in between; by default days.",
            ),
            ACCOUNT,
            KEY,
            MODEL,
            parameter("provider", "Only this provider."),
            parameter("error", "Only this kind of error; empty for requests that succeeded."),
            parameter(
                "top",
                "Number of combinations of names that have rows of their own, at most 1000; the others are one row per time.",
            ),
            Parameter {
                name: "order",
                values: &usage::ORDERS,
                text: "Figure by which the largest come first.",
            },
            parameter("limit", "Number of rows, at most 10000; the others are summed."),
            FORMAT,
        ],
        answers: AnswerType::Export(&usage::USAGE),
        ..get("/usage", "usage", "Sums of usage.", &usage::USAGE, usage::sums)
    },
    AdminRoute {
        query: &[
            FROM,
            TO,
            ACCOUNT,
            KEY,
            MODEL,
            parameter("provider", "Only this provider; empty for requests that none has answered."),
            parameter("error", "Only this kind of error; empty for requests that succeeded."),
            Parameter {
                name: "status",
                values: &usage::RECORD_STATUSES,
                text: "Only requests that have ended with such a status, or with an error.",
            },
            parameter("request", "Only the request with this id."),
            parameter("text", "Only records of which an id, a name or an error has this text, in any case."),
            Parameter { name: "order", values: &usage::RECORD_ORDERS, text: "`-time` for the latest first." },
            LIMIT,
            CURSOR,
            FORMAT,
        ],
        answers: AnswerType::Export(&usage::RECORDS),
        ..get(
            "/usage/records",
            "usageRecords",
            "Usage records: a page, or all of them as a file.",
            &usage::RECORDS,
            usage::records,
        )
    },
    AdminRoute {
        query: &[
            LIMIT,
            CURSOR,
            parameter("actor", "Only this caller."),
            parameter("action", "Only this operation."),
            parameter("object", "Only this thing."),
            Parameter { name: "outcome", values: &AuditOutcome::NAMES, text: "Only this outcome." },
            Parameter { name: "topic", values: &AuditTopic::NAMES, text: "Only changes, or only sign-ins." },
        ],
        ..get("/audit", "audit", "Audit log, the latest lines first.", &audit::LINES, audit::list)
    },
    act(
        "POST",
        "/audit/{seq}/undo",
        AdminRole::Admin,
        ("undoChange", "Undoes a change of a file, if it is the last one of this file."),
        (BodyType::None, &change::CHANGE),
        audit::undo,
    ),
    AdminRoute {
        query: &[
            Parameter {
                name: "topic",
                values: &events::TOPICS,
                text: "Topic; may be given several times. By default all.",
            },
            parameter("key", "Only requests of this key."),
            parameter("account", "Only requests of this account."),
            MODEL,
            parameter("provider", "Only requests to this provider."),
            Parameter {
                name: "status",
                values: &events::STATUSES,
                text: "Only requests that have ended with such a status, or with an error.",
            },
        ],
        answers: AnswerType::Events,
        answer: None,
        ..get(
            "/events",
            "events",
            "Live events: requests that begin and end, targets whose state changes, and totals.",
            &instance::INDEX,
            instance::index,
        )
    },
];
