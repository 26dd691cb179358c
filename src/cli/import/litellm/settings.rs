//! Settings of LiteLLM that are no deployments: routing, retries, time-outs, logs.

use super::Context;
use crate::import::document::{Field, FieldResult};
use crate::import::draft::limit;
use routing::account::Losses;

const LEDGER: &str = "the gateway has a ledger of its own (store.sqlite, store.valkey)";
const KEYS_IN_DATABASE: &str =
    "the gateway has a ledger of its own (store.sqlite); --keys imports the keys of the database";
const NO_CACHE: &str =
    "the gateway does not cache responses; model.prompt_cache uses the caches of the providers";
const CALLBACK: &str = "no callbacks: the gateway has metrics for Prometheus, an access log, and usage records (docs/operations.md)";
const REDIS: &str = "gateways that work together share a server: store.valkey (docs/operations.md)";
const ALERTS: &str = "alerts are rules of Prometheus (docs/metrics.md)";
const LOGIN: &str = "keys.toml is the only list of keys";
const NO_TAGS: &str = "usage is recorded by day, account, key and model";
const BUDGET: &str = "budgets are limits of keys and accounts, or their balance (docs/accounts.md)";
const CONTENT: &str =
    "there is nothing to switch off: the gateway never stores or logs what requests and responses say";

/// Fields of `litellm_settings` and `general_settings` that need no code: name, whether nothing is lost, note.
const SETTINGS: &[(&str, bool, &str)] = &[
    (
        "telemetry",
        true,
        "the gateway sends nothing to its makers; [telemetry] exports to a collector of yours",
    ),
    ("json_logs", true, "log.format is \"json\" by default"),
    ("turn_off_message_logging", true, CONTENT),
    ("redact_messages_in_exceptions", true, CONTENT),
    ("redact_user_api_key_info", true, "the log shows names of keys, and never the keys"),
    ("return_response_headers", true, "the gateway's own headers are always sent"),
    ("store_prompts_in_spend_logs", false, CONTENT),
    ("set_verbose_logger", true, ""),
    ("suppress_debug_info", true, "there is no such output"),
    ("use_responses_api", true, "the gateway serves the responses format for every model"),
    ("enable_pre_call_checks", true, "limits of targets are always checked"),
    ("enable_pre_call_check", true, "limits of targets are always checked"),
    ("database_url", false, KEYS_IN_DATABASE),
    ("database_connection_pool_limit", true, LEDGER),
    ("database_connection_timeout", true, LEDGER),
    ("proxy_batch_write_at", true, "store.flush is the interval of the gateway's ledger"),
    ("store_model_in_db", false, "models are in routes.toml; those of the database are not imported"),
    ("disable_error_logs", true, LEDGER),
    ("disable_spend_logs", true, LEDGER),
    (
        "allow_requests_on_db_unavailable",
        false,
        "store.away is the policy while the server of a fleet is unreachable",
    ),
    ("maximum_spend_logs_retention_period", false, "store.record_lifetime is the retention of usage records"),
    ("maximum_spend_logs_retention_interval", true, "usage records are removed continuously"),
    ("cache", false, NO_CACHE),
    ("cache_params", false, NO_CACHE),
    ("enable_caching_on_provider_specific_optional_params", false, NO_CACHE),
    ("ttl", false, NO_CACHE),
    ("callbacks", false, CALLBACK),
    ("success_callback", false, CALLBACK),
    ("failure_callback", false, CALLBACK),
    ("service_callback", false, CALLBACK),
    ("callback_settings", false, CALLBACK),
    ("s3_callback_params", false, CALLBACK),
    ("langfuse_default_tags", false, CALLBACK),
    ("middleware", false, CALLBACK),
    (
        "require_auth_for_metrics_endpoint",
        false,
        "metrics are on server.admin, which should not be reachable from outside",
    ),
    ("alerting", false, ALERTS),
    ("alerting_threshold", false, ALERTS),
    ("alert_types", false, ALERTS),
    ("alerting_args", false, ALERTS),
    ("alert_to_webhook_url", false, ALERTS),
    ("max_budget", false, BUDGET),
    ("budget_duration", false, BUDGET),
    ("max_end_user_budget", false, "end users have no budgets: give each of them a key"),
    ("default_end_user_params", false, "end users have no budgets: give each of them a key"),
    ("max_internal_user_budget", false, BUDGET),
    ("internal_user_budget_duration", false, BUDGET),
    ("default_internal_user_params", false, LOGIN),
    ("default_team_settings", false, "accounts have no settings of their own but limits"),
    ("timezone", false, "days and months of limits are UTC"),
    ("extra_spend_tag_headers", false, NO_TAGS),
    ("user_header_name", false, NO_TAGS),
    ("user_header_mappings", false, NO_TAGS),
    ("disable_end_user_cost_tracking", true, NO_TAGS),
    ("custom_auth", false, LOGIN),
    ("custom_key_generate", false, LOGIN),
    ("enable_jwt_auth", false, LOGIN),
    ("litellm_jwtauth", false, LOGIN),
    ("allow_user_auth", false, LOGIN),
    ("allowed_routes", false, "key.endpoints restricts a key to APIs"),
    ("public_routes", false, "only the admin port serves without a key"),
    ("admin_only_routes", true, "there are no administrative routes"),
    ("allowed_ips", false, "key.networks restricts a key to networks"),
    ("allow_client_side_credentials", false, "clients cannot bring credentials of providers"),
    (
        "forward_client_headers_to_llm_api",
        false,
        "provider.forward_client forwards x-forwarded-*; others are not forwarded",
    ),
    ("pass_through_endpoints", false, "the gateway has no pass-through endpoints"),
    ("completion_model", false, "a request must name its model"),
    ("background_health_checks", false, "provider.check = {} enables health checks"),
    ("health_check_interval", false, "provider.check.every is the interval of health checks"),
    ("use_shared_health_check", true, ""),
    ("key_management_system", false, "credentials are environment variables or files"),
    ("key_management_settings", false, "credentials are environment variables or files"),
    ("num_workers", true, "server.threads is one for each core by default"),
    ("disable_reset_budget", false, BUDGET),
    ("enforce_user_param", false, "the gateway does not require parameters"),
    ("infer_model_from_keys", false, "the models are those of routes.toml"),
    ("max_request_size_mb", false, "limits.body is the largest request"),
    ("max_response_size_mb", false, "limits.answer is the largest response that is no stream"),
    ("modify_params", false, "docs/translation.md lists how a request is adapted to its provider"),
    ("additional_drop_params", false, "docs/translation.md lists what is dropped"),
    ("ssl_verify", false, "certificates are always verified: put the CA into provider.ca"),
    ("aiohttp_trust_env", false, "the gateway does not use HTTP proxies"),
    ("force_ipv4", false, "addresses of providers are resolved by the system"),
    ("guardrails", false, "the gateway has no guardrails"),
    ("mcp_aliases", false, "the gateway is no MCP server"),
    ("ui_access_mode", true, ""),
    ("redis_host", false, REDIS),
    ("redis_port", false, REDIS),
    ("redis_password", false, REDIS),
    ("redis_url", false, REDIS),
    ("redis_db", false, REDIS),
    (
        "retry_after",
        true,
        "the wait before a retry is that of the provider's answer; another target is tried at once",
    ),
    ("retry_policy", false, "docs/routing.md lists after which failures another target is tried"),
    ("model_group_retry_policy", false, "docs/routing.md lists after which failures another target is tried"),
    ("allowed_fails_policy", false, "docs/routing.md lists which failures count against a target"),
    ("routing_strategy_args", false, "docs/routing.md describes the policies"),
    ("disable_cooldowns", false, "breakers cannot be disabled; breaker.failures is their threshold"),
    ("polling_interval", true, ""),
    ("client_ttl", true, "limits.pool_idle is the time-out of idle connections"),
    ("cache_responses", false, NO_CACHE),
    ("caching_groups", false, NO_CACHE),
    ("tag_filtering_policy", false, "targets are not chosen by tags"),
    ("enable_tag_filtering", false, "targets are not chosen by tags"),
    ("provider_budget_config", false, BUDGET),
];

/// Sections without a counterpart, with the reason.
const SECTIONS: &[(&str, &str)] = &[
    ("include", "included files are not read: import one file that has the contents of all"),
    ("guardrails", "the gateway has no guardrails"),
    ("mcp_servers", "the gateway is no MCP server"),
    ("mcp_tools", "the gateway is no MCP server"),
    ("vector_store_registry", "the gateway has no vector stores"),
    ("search_tools", "the gateway runs no searches; providers that search are used by their own tools"),
    ("finetune_settings", "the gateway has no endpoint for fine-tuning"),
    ("files_settings", "the gateway has no endpoint for files"),
    ("agent_list", "the gateway has no agents"),
    ("prompts", "the gateway has no prompts of its own"),
    ("policies", "the gateway has no guardrails"),
    ("assistant_settings", "the gateway has no endpoint for assistants"),
    ("callback_settings", CALLBACK),
];

/// Reads the settings. Deployments, fallbacks and the master key are read elsewhere.
pub(super) fn read(context: &mut Context<'_>, root: &Field<'_>) -> FieldResult<()> {
    let sections = ["router_settings", "litellm_settings", "general_settings"];
    for (section, reason) in SECTIONS {
        if let Some(field) = root.get(section) {
            context.report.impossible(&field, reason);
        }
    }
    let sections: Vec<Field<'_>> = sections.into_iter().filter_map(|name| root.get(name)).collect();
    for section in &sections {
        for (key, field) in section.members()? {
            if let Some((_, harmless, note)) = SETTINGS.iter().find(|(name, _, _)| *name == key) {
                if *harmless {
                    context.report.changed(&field, "", if note.is_empty() { "not needed" } else { note });
                } else if is_off(&field) {
                    context.report.changed(&field, "", "it is switched off");
                } else {
                    context.report.impossible(&field, note);
                }
            }
        }
    }
    read_timeouts(context, &sections)?;
    read_retries(context, &sections)?;
    for section in &sections {
        read_section(context, section)?;
    }
    Ok(())
}

/// Returns whether a value says that something is not used.
fn is_off(field: &Field<'_>) -> bool {
    field.boolean() == Ok(false) || field.elements().is_ok_and(|elements| elements.is_empty())
}

/// Returns the first of these fields and reports the others as without effect.
fn first<'f>(
    context: &mut Context<'_>,
    sections: &[Field<'f>],
    keys: &[&str],
) -> FieldResult<Option<Field<'f>>> {
    let mut found = None;
    for section in sections {
        for key in keys {
            let Some(field) = context.number(section, key)? else { continue };
            if found.is_none() {
                found = Some(field);
            } else {
                context.report.changed(&field, "", "router_settings has precedence");
            }
        }
    }
    Ok(found)
}

fn read_timeouts(context: &mut Context<'_>, sections: &[Field<'_>]) -> FieldResult<()> {
    if let Some(field) = first(context, sections, &["timeout", "request_timeout"])? {
        context.timeouts.first_byte = Some(field.millis()?.max(1));
        context.report.changed(&field, "provider.timeouts.first_byte", "the time until the response begins");
    }
    if let Some(field) = first(context, sections, &["stream_timeout"])? {
        let idle = field.millis()?;
        if idle >= 1_000 {
            context.timeouts.idle = Some(idle);
            context.report.changed(
                &field,
                "provider.timeouts.idle",
                "the time between two reads of a response",
            );
        } else {
            context
                .report
                .impossible(&field, "responses that are no streams would fail with less than a second");
        }
    }
    Ok(())
}

fn read_retries(context: &mut Context<'_>, sections: &[Field<'_>]) -> FieldResult<()> {
    if let Some(field) = first(context, sections, &["num_retries"])? {
        context.draft.attempts = Some(field.integer()?.saturating_add(1).min(16));
        let note = "the number of targets of a request, at most 16: a target is tried once";
        context.report.changed(&field, "retry.attempts", note);
    }
    if let Some(field) = first(context, sections, &["allowed_fails"])? {
        context.draft.failures = Some(field.integer()?.saturating_add(1).min(1_000_000));
        context.report.changed(
            &field,
            "breaker.failures",
            "failures in a row; LiteLLM counts those of a minute",
        );
    }
    if let Some(field) = first(context, sections, &["cooldown_time"])? {
        context.draft.cooldown = Some(field.millis()?.clamp(1, 86_400_000));
        context.report.changed(
            &field,
            "breaker.cooldown",
            "the first time; it doubles with every failed probe",
        );
    }
    Ok(())
}

fn read_section(context: &mut Context<'_>, section: &Field<'_>) -> FieldResult<()> {
    for (key, field) in section.members()? {
        match key {
            "routing_strategy" => read_policy(context, &field)?,
            "drop_params" => {
                if field.boolean()? {
                    context.losses = Losses::Allow;
                    context.report.changed(&field, "key.losses", "set for each imported key");
                } else {
                    let note =
                        "the default of key.losses drops with a warning; \"refuse\" rejects the request";
                    context.report.changed(&field, "key.losses", note);
                }
            }
            "set_verbose" | "debug" | "detailed_debug" | "verbose" => {
                if field.boolean()? {
                    context.draft.log_level = Some("debug");
                    context.report.taken(&field, "log.level");
                } else {
                    context.report.taken(&field, "log.level");
                }
            }
            "global_max_parallel_requests" => {
                if let Some(field) = context.number(section, key)? {
                    context.draft.requests = limit(field.integer()?).map(|number| number.min(1_000_000));
                    context.report.changed(
                        &field,
                        "limits.requests",
                        "for one process; a request beyond it gets a 503",
                    );
                }
            }
            "max_parallel_requests" | "default_max_parallel_requests" => {
                context.report.impossible(&field, "set model.targets.concurrent, or the limits of keys");
            }
            "port" => {
                let port = field.integer()?;
                if (1..=65_535).contains(&port) {
                    context.draft.listen = format!("127.0.0.1:{port}");
                    context.report.changed(
                        &field,
                        "server.listen",
                        "on this machine only: docs/configuration.md",
                    );
                } else {
                    return Err(field.fault("expected a port from 1 to 65535"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_policy(context: &mut Context<'_>, field: &Field<'_>) -> FieldResult<()> {
    match field.text()? {
        "simple-shuffle" => context.report.taken(field, "model.policy"),
        "least-busy" => {
            context.policy = Some("least");
            context.report.taken(field, "model.policy");
        }
        "latency-based-routing" => {
            context.policy = Some("latency");
            let note = "two targets are drawn by weight, and the quicker one of them is used";
            context.report.changed(field, "model.policy", note);
        }
        _ => {
            let note = "there is no such policy; targets are drawn by weight, within their limits";
            context.report.changed(field, "model.policy", note);
        }
    }
    Ok(())
}
