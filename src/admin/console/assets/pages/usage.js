// What did it cost? Sums of the ledger by day, model, key and account. Days are UTC; rows and others add up to the total.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, day, money, percent, short } from "../lib/format.js";
import { Bars, Share } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Card, Choice, Empty, Failed, Field, Page, Stat, useLoad } from "../lib/ui.js";

export const PERIODS = [
  { value: "today", label: "Today", from: () => day() },
  { value: "7", label: "7 days", from: () => day(6) },
  { value: "30", label: "30 days", from: () => day(29) },
  { value: "month", label: "This month", from: () => day().slice(0, 8) + "01" },
  { value: "90", label: "90 days", from: () => day(89) },
];
const GROUPS = [
  { value: "day", label: "Day" },
  { value: "model", label: "Model" },
  { value: "key", label: "Key" },
  { value: "account", label: "Account" },
];
const METRICS = [
  { value: "cost", label: "Cost", read: (row) => Number(row.cost), format: (value) => money(value.toFixed(value && Math.abs(value) < 0.01 ? 6 : 2)) },
  { value: "requests", label: "Requests", read: (row) => row.requests, format: short },
  { value: "tokens", label: "Tokens", read: (row) => (row.input || 0) + (row.output || 0), format: short },
  { value: "failed", label: "Failed", read: (row) => row.failed, format: short },
];

// The parameters of the page are in the address, so that a link shows the same.
export function useParameters(page, given, defaults) {
  const [all, setAll] = useState({ ...defaults, ...given });
  const set = (name, value) => {
    const next = { ...all, [name]: value };
    setAll(next);
    const shown = Object.fromEntries(Object.entries(next).filter(([key, text]) => text !== "" && text !== defaults[key]));
    history.replaceState(null, "", `#/${page}${api.query(shown)}`);
  };
  return [all, set];
}

export const fromOf = (period) => (PERIODS.find((one) => one.value === period) || PERIODS[2]).from();

// All days from the first to today, so that a day without usage is a gap and not missing.
function days(from, rows) {
  const names = [];
  for (let at = Date.parse(from); at <= Date.now() && names.length < 400; at += 86_400_000) names.push(new Date(at).toISOString().slice(0, 10));
  const found = new Map(rows.map((row) => [row.day, row]));
  return names.map((name) => found.get(name) || { day: name, requests: 0, failed: 0, cost: "0" });
}

function Plot({ group, rows, metric, from, total }) {
  const shown = group === "day" ? days(from, rows) : [...rows].sort((a, b) => metric.read(b) - metric.read(a)).slice(0, 20);
  const top = [...shown].sort((a, b) => metric.read(b) - metric.read(a))[0];
  const caption = top && metric.read(top) > 0 ? `${metric.label} by ${group}; most: ${top[group] || "none"} with ${metric.format(metric.read(top))} of ${metric.format(metric.read(total))}.` : `${metric.label} by ${group}: nothing in this period.`;
  if (group === "day") return html`<${Bars} names=${shown.map((row) => row.day)} format=${metric.format} caption=${caption} series=${[{ name: metric.label, color: 0, values: shown.map(metric.read) }]} />`;
  const most = Math.max(1e-12, ...shown.map(metric.read));
  return html`<figure class="plot wide"><ul class="ranks">${shown.map((row) => html`<li><span>${row[group] || "none"}</span><b>${metric.format(metric.read(row))} <span class="muted">${percent(metric.read(row), metric.read(total))}</span></b><${Share} part=${metric.read(row) / most} label=${percent(metric.read(row), metric.read(total))} /></li>`)}</ul><figcaption>${caption}</figcaption></figure>`;
}

export function Usage({ parameters }) {
  const [at, set] = useParameters("usage", parameters, { group: "day", metric: "cost", period: "30", account: "", key: "", model: "" });
  const from = fromOf(at.period);
  const asked = { group: at.group, from, to: day(), account: at.account, key: at.key, model: at.model };
  const [report, error] = useLoad(() => api.get(`/usage${api.query({ ...asked, limit: 1000 })}`), [JSON.stringify(asked)], 15_000);
  const metric = METRICS.find((one) => one.value === at.metric) || METRICS[0];
  const total = report?.total;
  const export_ = (format) => api.download(`/usage${api.query({ ...asked, format })}`, `usage-${at.group}-${from}.${format}`);
  const rows = report?.group === at.group ? report.rows : [];
  return html`<${Page} title="Usage and cost" lead="Sums of the ledger. Days are UTC."
    actions=${html`<button type="button" class="button" onClick=${() => export_("csv")}>CSV</button><button type="button" class="button" onClick=${() => export_("ndjson")}>NDJSON</button>`}>
    <div class="filters">
      <${Choice} label="By" options=${GROUPS} value=${at.group} onValue=${(value) => set("group", value)} />
      <${Choice} label="Show" options=${METRICS} value=${at.metric} onValue=${(value) => set("metric", value)} />
      <${Field} label="Period" kind="select" options=${PERIODS} value=${at.period} onValue=${(value) => set("period", value)} />
      <${Field} label="Model" value=${at.model} onValue=${(value) => set("model", value)} placeholder="all" data-filter />
      <${Field} label="Key" value=${at.key} onValue=${(value) => set("key", value)} placeholder="all" />
      <${Field} label="Account" value=${at.account} onValue=${(value) => set("account", value)} placeholder="all" />
    </div>
    <${Failed} error=${error} />
    ${total && html`<dl class="stats">
      <${Stat} label="Cost" value=${money(total.cost)} note=${total.requests ? `${money((Number(total.cost) / total.requests).toFixed(6))} per request` : ""} />
      <${Stat} label="Requests" value=${short(total.requests)} note=${`${count(total.failed)} failed, ${percent(total.failed, total.requests)}`} />
      <${Stat} label="Input" value=${short(total.input)} unit="tokens" note=${`${percent(total.cached || 0, total.input)} from caches`} />
      <${Stat} label="Output" value=${short(total.output)} unit="tokens" note=${total.reasoning ? `${percent(total.reasoning, total.output)} reasoning` : ""} />
      <${Stat} label="Saved by caches" value=${money((Number(total.cache_saved) - Number(total.cache_surcharge)).toFixed(9))} note=${html`<a href="#/cache">Cache savings</a>`} />
    </dl>`}
    ${report && !total?.requests
      ? html`<${Card}><${Empty} title="No usage in this period">Each request of a key is summed here, a moment after it has ended. Models without a price cost nothing: <code>[model.price]</code> in routes.toml sets one.<//><//>`
      : html`<${Card} title=${`${metric.label} by ${at.group}`} note=${`${from} to ${day()}, UTC`}>${rows.length > 0 && html`<${Plot} group=${at.group} rows=${rows} metric=${metric} from=${from} total=${total} />`}<//>
        <${Card} flush title="All numbers" note=${report?.others ? "The largest rows; the others are summed in the last line." : `${rows.length} rows`}>
          <${Table} caption=${`Usage by ${at.group}`} id=${(row) => row[at.group]} rows=${rows} order=${at.group === "day" ? { name: "name", down: true } : { name: "cost", down: true }}
            columns=${[
              { name: "name", label: GROUPS.find((g) => g.value === at.group).label, cell: (row) => html`<b>${row[at.group] || "none"}</b>`, sort: (row) => row[at.group] },
              { name: "cost", label: "Cost", number: true, cell: (row) => money(row.cost), sort: (row) => Number(row.cost) },
              { name: "requests", label: "Requests", number: true, cell: (row) => count(row.requests), sort: (row) => row.requests },
              { name: "failed", label: "Failed", number: true, cell: (row) => count(row.failed), sort: (row) => row.failed },
              { name: "input", label: "Input", number: true, cell: (row) => count(row.input), sort: (row) => row.input },
              { name: "cached", label: "Cached", number: true, cell: (row) => count(row.cached), sort: (row) => row.cached },
              { name: "output", label: "Output", number: true, cell: (row) => count(row.output), sort: (row) => row.output },
              { name: "reasoning", label: "Reasoning", number: true, cell: (row) => count(row.reasoning), sort: (row) => row.reasoning },
            ]} />
          ${report?.others && html`<p class="none">Others: ${money(report.others.cost)} in ${count(report.others.requests)} requests.</p>`}
        <//>`}
  <//>`;
}
