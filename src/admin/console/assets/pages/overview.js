// Is it well, and if not, what is not? Faults first, then rates, latencies, spend.
import { html } from "../lib/html.js";
import * as api from "../lib/api.js";
import { ago, clock, count, day, duration, money, percent, priced, short, span } from "../lib/format.js";
import { live, points, quantile, rates, window } from "../lib/live.js";
import { Lines, Share, Spark } from "../lib/plot.js";
import { Table } from "../lib/table.js";
import { Badge, Card, Empty, Notice, Page, Stat, useLive, useLoad } from "../lib/ui.js";
import { toneOf } from "./targets.js";
import { statusTone } from "./requests.js";

// State of the process as it was loaded last; the frame shows the number of faults too.
let instance = null;

// Gateways that share a store, as they were loaded last.
let fleet = null;

// Share of failed requests from which it is not well, if there are at least so many of them.
const TOO_MANY = 0.05;
const FEWEST = 3;

// Returns what the errors of the last minute amount to: their share of the requests, the tone of too many of them, and a sentence.
export function troubleOf(minute) {
  const now = minute && rates(minute);
  const of = (rate) => (now?.requests ? rate / now.requests : 0);
  const isMuch = (rate) => of(rate) > TOO_MANY && Math.round(rate * minute.seconds) >= FEWEST;
  if (!now) return { share: 0, tone: "", text: "" };
  if (isMuch(now.faults)) return { share: of(now.errors), tone: "bad", text: `${percent(of(now.faults), 1)} of the requests of the last minute have failed at a provider or the gateway.` };
  if (isMuch(now.errors)) return { share: of(now.errors), tone: "warn", text: `${percent(of(now.errors), 1)} of the requests of the last minute were refused because of the client.` };
  return { share: of(now.errors), tone: "", text: "" };
}

// Returns what is not well, the worst first: [tone, sentence, page].
export function faultsOf() {
  const faults = [];
  if (live.fault && !live.connected) faults.push(["bad", live.fault, "overview"]);
  if (instance && !instance.ready) faults.push(["bad", `The gateway takes no new requests: ${instance.not_ready_because}.`, "overview"]);
  const reload = instance?.last_reload;
  if (reload?.result === "refused")
    faults.push(["bad", `The last reload was refused: ${reload.faults.length} ${reload.faults.length === 1 ? "fault" : "faults"}. Configuration ${reload.generation} stays in effect.`, "config"]);
  for (const target of live.targets.values()) {
    if (toneOf(target.state) === "bad") faults.push(["bad", `${target.provider}/${target.model} gets no requests: ${target.reason}.`, "targets"]);
    if (toneOf(target.state) === "warn") faults.push(["warn", `${target.provider}/${target.model}: ${target.reason}.`, "targets"]);
  }
  const trouble = troubleOf(window(60));
  if (trouble.tone) faults.push([trouble.tone, trouble.text, "errors"]);
  if (fleet && !fleet.same_config) faults.push(["warn", `The ${fleet.gateways.length} gateways of the fleet do not have the same configuration.`, "config"]);
  for (const gateway of fleet?.gateways.slice(1) || []) {
    if (!gateway.ready && !gateway.draining) faults.push(["warn", `The gateway at ${gateway.address} is not ready for requests.`, "config"]);
  }
  if (live.totals?.ledger_failures) faults.push(["warn", `${count(live.totals.ledger_failures)} ledger operations have failed since the start.`, "errors"]);
  if (live.totals?.log_dropped) faults.push(["warn", `${count(live.totals.log_dropped)} lines of the access log were lost since the start.`, "errors"]);
  return faults.sort(([a], [b]) => a.localeCompare(b));
}

function Health() {
  const faults = faultsOf();
  const used = [...live.targets.values()];
  const serving = used.filter((target) => toneOf(target.state) === "good").length;
  return html`<section class=${`health ${faults.length ? faults[0][0] : "good"}`} aria-label="Faults" aria-live="polite">
    ${faults.length === 0
      ? html`<p class="well"><span class="shape" aria-hidden="true">●</span> <b>All is well.</b> ${live.totals ? `${serving} of ${used.length} targets take requests, up for ${span(Date.now() - new Date(live.totals.started))}` : "Connecting …"}${instance ? `, configuration ${instance.last_reload.generation} of ${ago(instance.last_reload.time)}.` : "."}</p>`
      : html`<ul>${faults.slice(0, 6).map(([tone, text, page]) => html`<li class=${tone}><span class="shape" aria-hidden="true">${tone === "bad" ? "■" : "▲"}</span> <a href=${`#/${page}`}>${text}</a></li>`)}
        ${faults.length > 6 && html`<li>and ${faults.length - 6} more</li>`}</ul>`}
  </section>`;
}

function Stats({ today }) {
  const minute = window(60);
  const now = minute && rates(minute);
  const first = minute && quantile("first_token", 0.5, minute);
  const slow = minute && quantile("duration", 0.95, minute);
  const own = (minute && quantile("overhead", 0.5, minute)) ?? null;
  const series = (read) => points(5, read).slice(-36).map(([, value]) => value);
  const { share, tone } = troubleOf(minute);
  const total = today?.total;
  return html`<dl class="stats">
    <${Stat} label="Requests" value=${now ? short(now.requests) : "–"} unit="per second" note=${`${count(live.totals?.in_flight)} under way`}><${Spark} values=${series((w) => rates(w).requests)} /><//>
    <${Stat} label="Errors" value=${now ? percent(share, 1, share && share < 0.1 ? 1 : 0) : "–"} unit="of requests" tone=${tone} note=${now?.faults > 0 ? `${short(now.faults)}/s not by the client` : now?.errors > 0 ? "all by the client" : "none"}><${Spark} values=${series((w) => rates(w).errors)} color=${3} /><//>
    <${Stat} label="First token, median" value=${duration(first)} note=${`the gateway adds ${duration(own)}`}><${Spark} values=${series((w) => quantile("first_token", 0.5, w))} color=${1} /><//>
    <${Stat} label="Answer, 95th percentile" value=${duration(slow)} note=${`${duration(minute && quantile("duration", 0.5, minute))} median`}><${Spark} values=${series((w) => quantile("duration", 0.95, w))} color=${1} /><//>
    <${Stat} label="Tokens" value=${now ? short(now.input + now.output) : "–"} unit="per second" note=${now ? `${short(now.input)} in, ${short(now.output)} out` : ""}><${Spark} values=${series((w) => rates(w).input + rates(w).output)} color=${2} /><//>
    <${Stat} money label="Spend today" value=${total ? money(total.cost) : "–"} unit="UTC" note=${now && now.cost > 0 ? `${priced((now.cost * 3600).toFixed(4))} per hour at present` : total ? `${count(total.requests)} requests` : ""}><${Spark} values=${series((w) => rates(w).cost)} color=${4} /><//>
  </dl>`;
}

function Latest() {
  const rows = live.requests.slice(0, 8);
  return html`<${Card} title="Latest requests" actions=${html`<a href="#/requests">All</a>`} flush>
    <${Table} compact caption="Latest requests" id=${(row) => row.request_id + row.time_ms} rows=${rows}
      empty=${html`<${Empty} title="No request since this page was opened">Requests show here as they end. Send one from the <a href="#/playground">playground</a>, or take a command from <a href="#/setup">client set-up</a>.<//>`}
      columns=${[
        { name: "time", label: "Ended", cell: (row) => clock(row.time_ms + row.duration_ms) },
        { name: "status", label: "Status", cell: (row) => html`<${Badge} tone=${statusTone(row)}>${row.error || row.status}<//>` },
        { name: "model", label: "Model", wide: true, cell: (row) => row.model || "–" },
        { name: "key", label: "Key", cell: (row) => row.key || "–" },
        { name: "duration", label: "Duration", number: true, cell: (row) => duration(row.duration_ms) },
        { name: "cost", label: "Cost", number: true, money: true, cell: (row) => money(row.cost) },
      ]} />
  <//>`;
}

function Spenders({ report }) {
  const rows = [...(report?.rows || [])].filter((row) => row.model).sort((a, b) => Number(b.cost) - Number(a.cost) || b.requests - a.requests).slice(0, 7);
  const paid = rows.some((row) => Number(row.cost) > 0);
  const value = (row) => (paid ? Number(row.cost) : row.requests);
  const most = Math.max(1e-12, ...rows.map(value));
  return html`<${Card} title="Models today" note=${paid ? "by cost" : "by requests"} actions=${html`<a href="#/usage?group=model">Usage</a>`}>
    ${rows.length === 0
      ? html`<${Empty} title="No usage today">Sums of the day (UTC) show here, a moment after a request has ended.<//>`
      : html`<ul class="ranks">${rows.map((row) => html`<li><span>${row.model || "–"}</span><b>${paid ? priced(row.cost) : `${count(row.requests)} requests`}</b><${Share} part=${value(row) / most} label=${`${Math.round((100 * value(row)) / most)} % of the highest`} /></li>`)}</ul>`}
  <//>`;
}

export function Overview() {
  useLive();
  const [loaded, error] = useLoad(async () => {
    const from = day();
    let report;
    [instance, fleet, report] = await Promise.all([
      api.get("/instance"),
      api.get("/fleet").catch(() => null),
      api.get(`/usage${api.query({ group: "model", from, to: from })}`).catch(() => null),
    ]);
    return { report };
  }, [], 5000);
  const perSecond = (value) => `${short(value)}/s`;
  return html`<${Page} title="Overview" lead="Is it well, and if not, what is not?">
    <${Health} />
    ${error && error.status !== 0 && html`<${Notice} tone="bad">${error.message}<//>`}
    <${Stats} today=${loaded?.report} />
    <div class="grid two">
      <${Card} title="Requests" note="per second, by result">
        <${Lines} format=${perSecond} caption="Requests per second that ended: well, refused because of the client, or failed at a provider or the gateway."
          series=${[
            { name: "well", color: 0, fill: true, points: points(5, (w) => Math.max(0, rates(w).requests - rates(w).errors)) },
            { name: "client's fault", color: 5, dash: "5 3", points: points(5, (w) => Math.max(0, rates(w).errors - rates(w).faults)) },
            { name: "failed", color: 3, dash: "2 3", points: points(5, (w) => rates(w).faults) },
          ]} />
      <//>
      <${Card} title="Latency" note="of answers that ended">
        <${Lines} format=${duration} caption="Time to the first token (median), and to the end of an answer (median and 95th percentile)."
          series=${[
            { name: "first token", color: 1, points: points(10, (w) => quantile("first_token", 0.5, w)) },
            { name: "median", color: 0, dash: "5 3", points: points(10, (w) => quantile("duration", 0.5, w)) },
            { name: "95th percentile", color: 4, dash: "2 3", points: points(10, (w) => quantile("duration", 0.95, w)) },
          ]} />
      <//>
    </div>
    <div class="grid lead">
      <${Latest} />
      <${Spenders} report=${loaded?.report} />
    </div>
  <//>`;
}
