// What has just ended? One row for each request: its shape, timing and price, never its text.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { bytes, clock, count, duration, money } from "../lib/format.js";
import { live, setPaused } from "../lib/live.js";
import { Facts, Table } from "../lib/table.js";
import { Badge, Card, Choice, Empty, Failed, Field, Notice, Page, useLive, useLoad } from "../lib/ui.js";
import { adviceOn } from "./errors.js";

export const statusTone = (row) => (row.status >= 500 ? "bad" : row.status >= 400 || row.error ? "warn" : "good");

const matches = (row, filter) => {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [row.request_id, row.key, row.account, row.model, row.provider, row.upstream_model, row.endpoint, row.status, row.error].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
};

// Time as a bar: waiting for the provider, the first token, the rest.
function Phases({ row }) {
  const whole = Math.max(row.duration_ms, 0.001);
  const head = Math.min(row.upstream_ms ?? whole, whole);
  const first = Math.min(row.first_token_ms ?? head, whole);
  const at = (ms) => Math.round(Math.max(0, Math.min(1000, (1000 * ms) / whole)));
  return html`<div class="phases">
    <svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="Phases of the request">
      <rect class="wait" x="0" width=${at(Math.min(head, first))} height="10" /><rect class="begin" x=${at(Math.min(head, first))} width=${at(Math.abs(first - head))} height="10" /><rect class="rest" x=${at(Math.max(head, first))} width=${1000 - at(Math.max(head, first))} height="10" />
    </svg>
    <ul class="legend"><li><span class="key wait"></span>provider's head <b>${duration(row.upstream_ms)}</b></li><li><span class="key begin"></span>first content <b>${duration(row.first_token_ms)}</b></li><li><span class="key rest"></span>end <b>${duration(row.duration_ms)}</b></li></ul>
  </div>`;
}

function Detail({ row }) {
  const advice = row.error && adviceOn(row.error);
  return html`<div class="opened">
    ${row.error && html`<${Notice} tone=${statusTone(row)} title=${row.error}>${advice}<//>`}
    <${Phases} row=${row} />
    <${Facts} facts=${[
      ["Request id", html`<code>${row.request_id}</code>`],
      ["Provider", row.provider && `${row.provider} / ${row.upstream_model || row.model}`],
      ["Provider's status", row.upstream_status],
      ["Attempts", row.attempts],
      ["Tried before", row.tried],
      ["Finish reason", row.finish],
      ["Input", `${count(row.input_tokens)} tokens${row.cached_input_tokens ? `, ${count(row.cached_input_tokens)} from the cache` : ""}`],
      ["Output", `${count(row.output_tokens)} tokens${row.reasoning_tokens ? `, ${count(row.reasoning_tokens)} of reasoning` : ""}`],
      ["Speed", row.stream && row.output_tokens > 1 && row.first_token_ms < row.duration_ms ? `${Math.round((1000 * row.output_tokens) / (row.duration_ms - row.first_token_ms))} tokens per second` : null],
      ["Body", row.request_bytes != null && `${bytes(row.request_bytes)} in, ${bytes(row.response_bytes)} out${row.frames ? `, ${count(row.frames)} frames` : ""}`],
      ["Account", row.account],
      ["Cost", money(row.cost)],
    ]} />
  </div>`;
}

const COLUMNS = [
  { name: "time", label: "Began", cell: (row) => clock(row.time_ms), sort: (row) => row.time_ms },
  { name: "status", label: "Status", cell: (row) => html`<${Badge} tone=${statusTone(row)}>${row.status}<//>`, sort: (row) => row.status },
  { name: "key", label: "Key", cell: (row) => row.key || html`<span class="muted">none</span>`, sort: (row) => row.key || "" },
  { name: "model", label: "Model", wide: true, cell: (row) => html`${row.model || html`<span class="muted">none</span>`}${row.upstream_model && row.upstream_model !== row.model && html` <span class="muted">→ ${row.upstream_model}</span>`}`, sort: (row) => row.model || "" },
  { name: "provider", label: "Provider", kind: "minor", cell: (row) => row.provider || html`<span class="muted">none</span>`, sort: (row) => row.provider || "" },
  { name: "endpoint", label: "Format", kind: "minor", cell: (row) => html`${row.endpoint}${row.stream && html` <span class="tag">stream</span>`}`, sort: (row) => row.endpoint },
  { name: "first", label: "First token", number: true, kind: "minor", cell: (row) => duration(row.first_token_ms), sort: (row) => row.first_token_ms ?? -1 },
  { name: "duration", label: "Duration", number: true, cell: (row) => duration(row.duration_ms), sort: (row) => row.duration_ms },
  { name: "tokens", label: "In / out", number: true, cell: (row) => (row.input_tokens == null && row.output_tokens == null ? "–" : `${count(row.input_tokens)} / ${count(row.output_tokens)}`), sort: (row) => (row.input_tokens || 0) + (row.output_tokens || 0) },
  { name: "cost", label: "Cost", number: true, cell: (row) => money(row.cost), sort: (row) => Number(row.cost || 0) },
];

// Records of the ledger have other names for the same things.
const fromRecord = (record) => ({
  time_ms: Date.parse(record.time), request_id: record.request, status: record.status, error: record.error || undefined, key: record.key, account: record.account, model: record.model,
  provider: record.provider, upstream_model: record.target, endpoint: record.endpoint, stream: record.stream, cost: record.cost, attempts: record.attempts,
  input_tokens: record.input, cached_input_tokens: record.cached, output_tokens: record.output, reasoning_tokens: record.reasoning,
  duration_ms: record.total_ms, first_token_ms: record.first_byte_ms ?? undefined,
});

function Stored({ filter }) {
  const [page, error] = useLoad(async () => {
    const found = [];
    let cursor = "";
    // A page may be empty before the end.
    for (let pages = 0; pages < 5 && found.length < 500; pages += 1) {
      const next = await api.get(`/usage/records${api.query({ limit: 500, cursor })}`);
      found.push(...next.items);
      cursor = next.next_cursor || "";
      if (!cursor) break;
    }
    return found.map(fromRecord).reverse();
  }, []);
  if (error) return html`<${Failed} error=${error} />`;
  if (!page) return html`<p class="muted">Loading …</p>`;
  return html`<${Table} caption="Stored usage records" id=${(row) => row.request_id + row.time_ms} columns=${COLUMNS.filter((c) => page.some((row) => c.name !== "first" || row.first_token_ms != null))} rows=${page.filter((row) => matches(row, filter))} detail=${(row) => html`<${Detail} row=${row} />`}
    empty=${html`<${Empty} title="No usage record matches">Each request of a key leaves a record of its usage as long as <code>store.record_lifetime</code> says.<//>`} />`;
}

export function Requests({ parameters }) {
  useLive();
  const [filter, setFilter] = useState(parameters.q || "");
  const [only, setOnly] = useState(parameters.only || "all");
  const [tab, setTab] = useState("live");
  const rows = live.requests.filter((row) => matches(row, filter) && (only === "all" || (only === "errors" ? row.status >= 400 || row.error : row.stream)));
  const under = live.totals?.in_flight;
  return html`<${Page} title="Requests" lead="One row for each request that ends: its shape and timing, never its text."
    actions=${html`<button type="button" class="button" aria-pressed=${live.paused} onClick=${() => setPaused(!live.paused)}>${live.paused ? "Go on" : "Pause"}</button>`}>
    <div class="filters">
      <${Field} label="Filter" grow value=${filter} onValue=${setFilter} placeholder="key, model, provider, status, request id" data-filter />
      <${Choice} label="Show" value=${only} onValue=${setOnly} options=${[{ value: "all", label: "All" }, { value: "errors", label: "Errors" }, { value: "streams", label: "Streams" }]} />
      <${Choice} label="From" value=${tab} onValue=${setTab} options=${[{ value: "live", label: "Live" }, { value: "stored", label: "This month" }]} />
    </div>
    ${live.lost > 0 && html`<${Notice} tone="warn">${count(live.lost)} requests are missing here, because this browser was slower than the gateway.<//>`}
    <${Card} flush title=${tab === "live" ? `${count(rows.length)} ended` : "Usage records"} note=${tab === "live" ? `since this page was opened, ${count(under)} under way${live.paused ? ", paused" : ""}. Times are local.` : "records of this month, as the ledger has them. Times are local."}>
      ${tab === "stored"
        ? html`<${Stored} filter=${filter} />`
        : html`<${Table} caption="Requests that have ended, the latest first" id=${(row) => row.request_id + row.time_ms} columns=${COLUMNS} rows=${rows} limit=${100} detail=${(row) => html`<${Detail} row=${row} />`}
            empty=${filter || only !== "all"
              ? html`<${Empty} title="No request matches">Take words out of the filter, or wait: the list is live.<//>`
              : html`<${Empty} title="No request since this page was opened">Requests show here as they end. Send one from the <a href="#/playground">playground</a>, or take a command from <a href="#/setup">client set-up</a>.<//>`} />`}
    <//>
  <//>`;
}
