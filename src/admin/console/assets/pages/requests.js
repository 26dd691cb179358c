// What is under way, what has just ended, and what was used? One row for each request: its shape, timing and price, never its text.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { bytes, clock, count, day, duration, moment, money, priced, span } from "../lib/format.js";
import { live, setPaused, underWay } from "../lib/live.js";
import { Facts, Table } from "../lib/table.js";
import { Badge, Card, Choice, Empty, Failed, Field, Notice, Page, useLive, useSettled } from "../lib/ui.js";
import { adviceOn } from "./errors.js";
import { PERIODS, fromOf, useParameters } from "./usage.js";

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
      ["Cost", priced(row.cost)],
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
  { name: "cost", label: "Cost", number: true, money: true, cell: (row) => money(row.cost), sort: (row) => Number(row.cost || 0) },
];

// Days are needed where more than the last minutes are shown.
const STORED_COLUMNS = COLUMNS.map((column) => (column.name === "time" ? { ...column, cell: (row) => moment(row.time_ms) } : column));

// Records of the ledger have other names for the same things.
const fromRecord = (record) => ({
  time_ms: Date.parse(record.time), request_id: record.request, status: record.status, error: record.error || undefined, key: record.key, account: record.account, model: record.model,
  provider: record.provider, upstream_model: record.target, endpoint: record.endpoint, stream: record.stream, cost: record.cost, attempts: record.attempts,
  input_tokens: record.input, cached_input_tokens: record.cached, output_tokens: record.output, reasoning_tokens: record.reasoning,
  duration_ms: record.total_ms, first_token_ms: record.first_byte_ms ?? undefined,
});

// A page of the gateway has at most this many records; of a narrow filter it may have few, or none, before the end.
const PAGE = 200;
const PAGES_A_STEP = 10;

// The gateway searches one text, and statuses by their first digit; the other words choose among what it has found.
function searchOf(filter, only) {
  const words = filter.split(/\s+/).filter(Boolean);
  const isStatus = (word) => /^[2-5]\d\d$/.test(word);
  const [text = ""] = words.filter((word) => !isStatus(word)).sort((a, b) => b.length - a.length);
  const status = words.find(isStatus);
  return { text, status: only === "errors" ? "error" : status ? `${status[0]}xx` : "" };
}

// Loads stored records, the latest first: [items, error, busy, load more]. Items are null until the first are there; there is no more at
// the end.
function useRecords(parameters, filter) {
  const [state, setState] = useState({ items: null, error: null, cursor: "", busy: true });
  const latest = useRef(0);
  const inputs = JSON.stringify([parameters, filter]);
  const load = async (before, from) => {
    const mine = ++latest.current;
    setState((all) => ({ ...all, items: before, busy: true }));
    const found = [];
    let cursor = from;
    let error = null;
    try {
      for (let pages = 0; pages < PAGES_A_STEP && found.length < PAGE; pages += 1) {
        const page = await api.get(`/usage/records${api.query({ ...parameters, order: "-time", limit: PAGE, cursor })}`);
        if (mine !== latest.current) return;
        found.push(...page.items.map(fromRecord).filter((row) => matches(row, filter)));
        cursor = page.next_cursor || "";
        if (!cursor) break;
      }
    } catch (failure) {
      error = failure;
    }
    if (mine === latest.current) setState({ items: [...(before || []), ...found], error, cursor, busy: false });
  };
  useEffect(() => {
    load(null, "");
    return () => {
      latest.current += 1;
    };
  }, [inputs]);
  return [state.items, state.error, state.busy, state.cursor ? () => load(state.items, state.cursor) : null];
}

function Stored({ filter, only, period, setPeriod }) {
  const text = useSettled(filter.trim());
  const from = fromOf(period);
  const [items, error, busy, more] = useRecords({ from, to: day(), ...searchOf(text, only) }, text);
  const note = `${from} to ${day()} UTC, the latest are loaded first. Times are local.`;
  return html`<div class="filters"><${Field} label="Period" kind="select" options=${PERIODS} value=${period} onValue=${setPeriod} /></div>
    <${Failed} error=${error} />
    <${Card} flush title=${items ? `${count(items.length)}${more ? " and more" : ""} ${items.length === 1 && !more ? "record" : "records"}` : "Records"} note=${note}>
      <${Table} compact caption="Usage records, the latest first" id=${(row) => row.request_id + row.time_ms} columns=${STORED_COLUMNS} rows=${busy && !items?.length ? null : items} limit=${Infinity} onMore=${busy ? null : more}
        detail=${(row) => html`<${Detail} row=${row} />`}
        empty=${more
          ? html`<p class="none">Nothing in the latest records. <button type="button" class="link" onClick=${more}>Search older ones</button></p>`
          : html`<${Empty} title="No usage record matches">Each request of a key leaves a record of its usage as long as <code>store.record_lifetime</code> says. Take words out of the filter, or choose a longer period.<//>`} />
    <//>`;
}

const UNDER_COLUMNS = [
  { name: "age", label: "For", cell: (row) => html`<b>${row.age_ms < 10_000 ? `${(row.age_ms / 1000).toFixed(1)}\u2009s` : span(row.age_ms)}</b>`, sort: (row) => row.age_ms },
  { name: "began", label: "Began", kind: "minor", cell: (row) => clock(row.time_ms) },
  { name: "key", label: "Key", cell: (row) => row.key || html`<span class="muted">none</span>`, sort: (row) => row.key || "" },
  { name: "model", label: "Model", wide: true, cell: (row) => row.model || html`<span class="muted">none</span>`, sort: (row) => row.model || "" },
  { name: "target", label: "Target", cell: (row) => html`${row.upstream_model} <span class="muted">at ${row.provider}</span>`, sort: (row) => `${row.provider} ${row.upstream_model}` },
  { name: "endpoint", label: "Format", cell: (row) => row.endpoint, sort: (row) => row.endpoint },
  { name: "stream", label: "Answer", cell: (row) => (row.stream ? html`<span class="tag">stream</span>` : "whole"), sort: (row) => (row.stream ? 1 : 0) },
  { name: "body", label: "Body", number: true, kind: "minor", cell: (row) => bytes(row.request_bytes), sort: (row) => row.request_bytes },
];

function UnderWay({ filter, only }) {
  const all = underWay();
  const rows = all.filter((row) => matches(row, filter) && (only !== "streams" || row.stream));
  const more = (live.totals?.in_flight || 0) - all.length;
  const note = `${live.paused ? "paused" : "live"}; the target is the one that was asked first${more > 0 ? `; ${count(more)} further ${more === 1 ? "one" : "ones"} began before this page was opened, or ${more === 1 ? "has" : "have"} no target yet` : ""}.`;
  return html`<${Card} flush title=${`${count(rows.length)} under way`} note=${note}>
    <${Table} compact caption="Requests under way, the latest first" id=${(row) => row.request_id + row.time_ms} columns=${UNDER_COLUMNS} rows=${rows} limit=${100}
      detail=${(row) => html`<div class="opened"><${Facts} facts=${[["Request id", html`<code>${row.request_id}</code>`], ["Account", row.account], ["Began", clock(row.time_ms)], ["Body of the request", bytes(row.request_bytes)]]} /></div>`}
      empty=${filter || only !== "all"
        ? html`<${Empty} title="No request under way matches">Take words out of the filter, or wait: the list is live.<//>`
        : html`<${Empty} title="Nothing is under way">Requests show here from the moment at which a provider is asked until their answer has ended. Most are too quick to be seen; long streams stay.<//>`} />
  <//>`;
}

function Ended({ filter, only }) {
  const rows = live.requests.filter((row) => matches(row, filter) && (only === "all" || (only === "errors" ? row.status >= 400 || row.error : row.stream)));
  return html`<${Card} flush title=${`${count(rows.length)} ended`} note=${`since this page was opened, ${count(live.totals?.in_flight)} under way${live.paused ? ", paused" : ""}. Times are local.`}>
    <${Table} compact caption="Requests that have ended, the latest first" id=${(row) => row.request_id + row.time_ms} columns=${COLUMNS} rows=${rows} limit=${100} detail=${(row) => html`<${Detail} row=${row} />`}
      empty=${filter || only !== "all"
        ? html`<${Empty} title="No request matches">Take words out of the filter, or wait: the list is live.<//>`
        : html`<${Empty} title="No request since this page was opened">Requests show here as they end. Send one from the <a href="#/playground">playground</a>, or take a command from <a href="#/setup">client set-up</a>.<//>`} />
  <//>`;
}

// What can be chosen of each list.
const SHOWN = {
  ended: [["all", "All"], ["errors", "Errors"], ["streams", "Streams"]],
  under: [["all", "All"], ["streams", "Streams"]],
  stored: [["all", "All"], ["errors", "Errors"]],
};

export function Requests({ parameters }) {
  useLive();
  const [at, set] = useParameters("requests", parameters, { tab: "ended", q: "", only: "all", period: "month" });
  const shown = SHOWN[at.tab] || SHOWN.ended;
  const only = shown.some(([value]) => value === at.only) ? at.only : "all";
  return html`<${Page} title="Requests" lead="What is under way, and one row for each request that has ended: its shape and timing, never its text."
    actions=${at.tab !== "stored" && html`<button type="button" class="button" aria-pressed=${live.paused} onClick=${() => setPaused(!live.paused)}>${live.paused ? "Go on" : "Pause"}</button>`}>
    <div class="filters">
      <${Choice} label="List" value=${at.tab} onValue=${(tab) => set("tab", tab)} options=${[{ value: "ended", label: "Ended" }, { value: "under", label: "Under way" }, { value: "stored", label: "Stored" }]} />
      <${Field} label="Filter" grow value=${at.q} onValue=${(q) => set("q", q)} placeholder="key, model, provider, status, request id" data-filter />
      <${Choice} label="Show" value=${only} onValue=${(value) => set("only", value)} options=${shown.map(([value, label]) => ({ value, label }))} />
    </div>
    ${live.lost > 0 && at.tab !== "stored" && html`<${Notice} tone="warn">${count(live.lost)} requests are missing here, because this browser was slower than the gateway.<//>`}
    ${at.tab === "stored"
      ? html`<${Stored} filter=${at.q} only=${only} period=${at.period} setPeriod=${(period) => set("period", period)} />`
      : at.tab === "under"
        ? html`<${UnderWay} filter=${at.q} only=${only} />`
        : html`<${Ended} filter=${at.q} only=${only} />`}
  <//>`;
}
