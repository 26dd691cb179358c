// What goes wrong most? Errors by kind and by who is at fault, with what to do about them.
import { html } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, day, short } from "../lib/format.js";
import { live, points, window } from "../lib/live.js";
import { Lines } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Badge, Card, Choice, Empty, Failed, Page, useLive, useLoad } from "../lib/ui.js";
import { METRICS, TimePlot, useParameters } from "./usage.js";

// What an operator can do. A kind without a line is explained in docs/operations.md.
const ADVICE = {
  invalid_head: "The client does not send valid HTTP; see its library.",
  head_too_large: "Check the client's headers, often cookies, or raise limits.head.",
  header_timeout: "Check the client's network, or raise limits.header_timeout.",
  invalid_json: "The request's body is not JSON; the message to the client says where.",
  invalid_field: "The request is invalid; the message to the client names the field.",
  unsupported: "The model's providers do not support a feature that the client uses. The playground's Explain shows which.",
  unsupported_media: "The body is multipart; it must be JSON.",
  unsupported_encoding: "The body is compressed in a way that the gateway does not read.",
  missing_key: "The client sends no key.",
  invalid_key: "The client sends a key that does not exist, or a mistyped one. See Keys.",
  disabled_key: "The key is disabled. See Keys.",
  expired_key: "The key has expired. See Keys.",
  model_not_permitted: "The key does not permit this model. See its models under Keys.",
  tier_not_permitted: "The key or its account does not permit this service tier. See tiers under Keys.",
  unpriced_model: "The model has no price, and requests of accounts need one (accounts.unpriced). Give it a price, or free = true.",
  endpoint_not_permitted: "The key does not permit this API. See its endpoints under Keys.",
  certificate_not_permitted: "The key needs a client certificate that it permits. See its certificates in keys.toml.",
  invalid_signature: "The AWS signature is not that of this request: compare access key id, secret, region and the clock of the client.",
  network_not_permitted: "The key does not permit this network. See its networks under Keys.",
  disabled_account: "The key's account is disabled. See Accounts.",
  unknown_account: "The key's account does not exist. Create it under Accounts.",
  rate_limited: "A limit per minute or of concurrent requests, of the key or its account. The table of limits below shows which.",
  over_limit: "The request alone exceeds the tokens per minute of the key.",
  spend_limit: "The spend of the day or month is used up. Raise the limit under Keys or Accounts, or wait.",
  over_spend_limit: "The request alone may cost more than the spend limit of the day or month. Waiting does not help: raise the limit, or let the client lower its output limit (max_tokens).",
  empty_balance: "The account is empty. Credit it under Accounts.",
  ledger_unavailable: "The database of balances cannot be written; see the log.",
  unknown_task: "Another key created the task, or it is too old.",
  task_state: "The result is not ready, has failed, or is no longer stored.",
  unknown_response: "The response is not stored, or belongs to another key.",
  unknown_model: "No model has this name. See Models; the client's setting may be mistyped.",
  unknown_path: "Check the client's base URL. See Client set-up.",
  wrong_method: "Check the client's base URL. See Client set-up.",
  upgrade_required: "A WebSocket was requested where it is not served (server.websocket).",
  body_too_large: "The body exceeds limits.body.",
  body_timeout: "Check the client's network, or raise limits.body_timeout.",
  client_gone: "The client disconnected before the end.",
  overloaded: "The gateway is overloaded; add threads or another gateway.",
  shutting_down: "The gateway shuts down; clients try again elsewhere.",
  upstream_unreachable: "Check address, DNS, firewall and certificate of the provider, and whether all targets are drained under Targets; see detail in the access log.",
  upstream_timeout: "The provider is slow. Check it, or raise provider.timeouts.",
  upstream_broken: "The provider's answer was cut off, too large or not JSON; see detail in the access log.",
  upstream_auth: "The provider rejected the gateway's credential. Renew it.",
  upstream_rate_limit: "The provider's rate limit. Add a target, or a lower weight.",
  upstream_rejected: "The provider rejected the request as invalid; its message went to the client.",
  context_overflow: "The conversation exceeds the model's context window.",
  upstream_failed: "The provider failed. See Targets, and its status page.",
  internal: "A fault of the gateway: report it with the request id and the log around it.",
};

export const adviceOn = (kind) => ADVICE[kind] || "See the table of errors in docs/operations.md.";

const SOURCES = { downstream: ["client", "warn"], upstream: ["provider", "bad"], internal: ["gateway", "bad"] };

// Rows of a list of totals with their number in the last minutes.
function recent(name, labels, totals) {
  const part = window(900);
  const key = (row) => labels.map((label) => row[label]).join("\n");
  const before = new Map((part?.first[name] || []).map((row) => [key(row), row.count]));
  return (totals?.[name] || []).map((row) => ({ ...row, recent: part ? row.count - (before.get(key(row)) || 0) : 0 }));
}

const sum = (reading, source) => reading.errors.reduce((all, row) => all + (row.source === source ? row.count : 0), 0);
const perSecond = (source) => points(5, ({ first, last, seconds }) => (sum(last, source) - sum(first, source)) / seconds);

const COUNTS = [
  { name: "recent", label: "15 min", number: true, cell: (row) => count(row.recent), sort: (row) => row.recent },
  { name: "count", label: "Since the start", number: true, cell: (row) => count(row.count), sort: (row) => row.count },
];

function List({ title, note, name, labels, heads, none, wide }) {
  const rows = recent(name, labels, live.totals);
  return html`<${Card} flush title=${title} note=${note} wide=${wide}>
    <${Table} caption=${title} id=${(row) => labels.map((label) => row[label]).join("\n")} rows=${rows} order=${{ name: "count", down: true }}
      empty=${html`<p class="none">${none}</p>`}
      columns=${[...labels.map((label, i) => ({ name: label, label: heads[i], cell: (row) => row[label] || "–", sort: (row) => row[label] })), ...COUNTS]} />
  <//>`;
}

// Periods of the plot by kind, with the time that a bar has.
const SPANS = [
  { value: "today", label: "Today", group: "hour", back: 0 },
  { value: "7", label: "7 days", group: "day", back: 6 },
  { value: "30", label: "30 days", group: "day", back: 29 },
];
const FAILED = METRICS.find((metric) => metric.value === "failed");

// Errors by kind over time, as the ledger has them: also those before this page was opened and before the start of the process.
function ByTime({ span, setSpan }) {
  const { group, back } = SPANS.find((one) => one.value === span) || SPANS[1];
  const from = day(back);
  const [loaded, error] = useLoad(async () => ({ group, from, report: await api.get(`/usage${api.query({ group: `${group},error`, from, to: day(), top: 5, order: FAILED.order, limit: 10_000 })}`) }), [group, from], 15_000);
  const report = loaded?.group === group && loaded.from === from ? loaded.report : null;
  return html`<${Card} title="By kind over time" note="of keys, from the ledger, UTC" wide
    actions=${html`<${Choice} label="Period of the plot" hideLabel value=${span} onValue=${setSpan} options=${SPANS} />`}>
    <${Failed} error=${error} />
    ${!report
      ? html`<div class="skeleton plain" role="status"><span class="hidden">Loading: errors by kind</span><div></div></div>`
      : report.total.failed > 0
        ? html`<${TimePlot} group=${group} split="error" rows=${report.rows} metric=${FAILED} from=${from} total=${report.total} />`
        : html`<${Empty} title=${`None of ${count(report.total.requests)} requests has failed`}>Requests of keys that are refused or fail show here by kind, a moment after they have ended.<//>`}
  <//>`;
}

export function Errors({ parameters }) {
  useLive();
  const [at, set] = useParameters("errors", parameters, { span: "7" });
  const rows = recent("errors", ["kind", "source"], live.totals);
  return html`<${Page} title="Errors" lead="What goes wrong, who is at fault, and what to do about it.">
    <${Card} title="Errors per second" note="by who is at fault" wide>
      <${Lines} format=${(value) => `${short(value)}/s`} caption="Errors per second, by the side at fault: client, provider, gateway."
        series=${[
          { name: "client", color: 5, dash: "5 3", points: perSecond("downstream") },
          { name: "provider", color: 3, points: perSecond("upstream"), fill: true },
          { name: "gateway", color: 4, dash: "2 3", points: perSecond("internal") },
        ]} />
    <//>
    <${ByTime} span=${at.span} setSpan=${(span) => set("span", span)} />
    <${Card} flush title="By kind" wide note="since the start of the process">
      <${Table} caption="Errors by kind" id=${(row) => row.kind + row.source} rows=${rows} order=${{ name: "count", down: true }}
        empty=${html`<${Empty} title="No errors since the start">Requests that are refused or fail show here by kind, each with what to do about it.<//>`}
        detail=${(row) => html`<div class="opened"><p>${adviceOn(row.kind)}</p><p><a href=${`#/requests?only=errors&q=${encodeURIComponent(row.kind)}`}>Requests with this error</a></p></div>`}
        columns=${[
          { name: "kind", label: "Kind", cell: (row) => html`<b>${row.kind}</b>`, sort: (row) => row.kind },
          { name: "source", label: "At fault", cell: (row) => html`<${Badge} tone=${SOURCES[row.source]?.[1] || "off"}>${SOURCES[row.source]?.[0] || row.source}<//>`, sort: (row) => row.source },
          { name: "advice", label: "What to do", wide: true, cell: (row) => html`<span class="muted">${adviceOn(row.kind)}</span>` },
          ...COUNTS,
        ]} />
    <//>
    <div class="grid two">
      <${List} title="Providers" note="exchanges that failed, also those that another target saved" name="upstream_errors" labels=${["provider", "kind"]} heads=${["Provider", "Kind"]} none="No exchange with a provider has failed." />
      <${List} title="Retries" note="exchanges that were tried again" name="retries" labels=${["provider", "reason"]} heads=${["Provider", "Reason"]} none="Nothing was tried again." />
      <${List} title="Limits" note="requests that a limit has refused" name="limit_refusals" labels=${["scope", "limit"]} heads=${["Of", "Limit"]} none="No limit has refused a request." />
      <${List} title="Broken streams" note="on routes that continue them" name="continued" labels=${["outcome"]} heads=${["Outcome"]} none="No stream was continued." />
      <${List} title="Lost in translation" note="elements that a format cannot carry" name="losses" labels=${["from", "to", "element", "policy"]} heads=${["From", "To", "Element", "Policy"]} none="Nothing was lost in translation." wide />
    </div>
  <//>`;
}
