// Who is out, and why? Each target with its state, the reason in words, and what an operator can do.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, duration, span } from "../lib/format.js";
import { live } from "../lib/live.js";
import { Table } from "../lib/table.js";
import { Act, Badge, Card, Confirm, Empty, Failed, Field, Notice, Page, say, useLive, useLoad } from "../lib/ui.js";
import { useParameters } from "./usage.js";

const TONES = { closed: "good", half_open: "warn", waiting: "warn", drained: "warn", open: "bad", provider_open: "bad", off: "off" };
const WORDS = { closed: "well", half_open: "probing", waiting: "waiting", drained: "drained", open: "left alone", provider_open: "provider left alone", off: "off" };
export const toneOf = (state) => TONES[state] || "off";
export const wordOf = (state) => WORDS[state] || state;

// States of an open breaker, which an operator may close.
const OPEN = ["open", "provider_open", "half_open"];

const pathOf = (target) => `/targets/${api.segment(target.provider)}/${api.segment(target.model)}`;

// What a target has done since this page was opened.
function seen(target) {
  const rows = live.requests.filter((row) => row.provider === target.provider && row.upstream_model === target.model);
  return { requests: rows.length, errors: rows.filter((row) => row.status >= 500).length };
}

// States in which a target gets requests.
const TAKES = ["closed", "half_open"];

// Returns the models that a target serves and no other target could serve at present.
const onlyAt = (target, models) =>
  models.filter((model) => {
    const isIt = (one) => one.provider === target.provider && one.model === target.model;
    const takes = (one) => TAKES.includes(one.target.state);
    return model.targets.some((one) => isIt(one) && takes(one)) && !model.targets.some((one) => !isIt(one) && takes(one));
  });

// Times after which a drained target is resumed by itself, in hours.
const UNTIL = [
  { value: "", label: "until it is resumed" },
  { value: "1", label: "for an hour" },
  { value: "8", label: "for 8 hours" },
  { value: "24", label: "for a day" },
];

function DrainForm({ target, drain, onClose }) {
  const [reason, setReason] = useState("");
  const [hours, setHours] = useState("");
  const [models] = useLoad(() => api.all("/models").catch(() => []), []);
  const alone = models && onlyAt(target, models).map((model) => model.id);
  const run = () => {
    const body = {};
    if (reason.trim()) body.reason = reason.trim();
    if (hours) body.until = `${new Date(Date.now() + Number(hours) * 3_600_000).toISOString().slice(0, 19)}Z`;
    return drain(body);
  };
  const under = target.in_flight === 0 ? "no request is under way." : `${count(target.in_flight)} ${target.in_flight === 1 ? "request is under way and ends" : "requests are under way and end"} as usual.`;
  const isLast = alone?.length > 0;
  const others = target.models.filter((model) => !alone?.includes(model));
  return html`<${Confirm} title=${isLast ? "Drain the last target?" : "Drain this target?"} verb=${isLast ? "Drain, and refuse requests" : "Drain"} waiting=${!models} onClose=${onClose} run=${run}>
    <p><b>${target.provider}/${target.model}</b>: ${under} ${others.length > 0 && `New requests for ${others.join(", ")} go to other targets.`}</p>
    ${isLast && html`<${Notice} tone="bad" title=${`No other target is left for ${alone.join(", ")}.`}>All new requests for ${alone.length === 1 ? "this model" : "these models"} are refused until a target is resumed.<//>`}
    <div class="fields">
      <${Field} label="Reason" value=${reason} onValue=${setReason} placeholder="maintenance, for example" maxlength="200" />
      <${Field} label="It stays drained" kind="select" options=${UNTIL} value=${hours} onValue=${setHours} />
    </div>
    <p class="muted">Also over restarts and upgrades of this gateway. Other gateways of a fleet are not drained.</p>
  <//>`;
}

export function Targets({ parameters }) {
  useLive();
  const [at, set] = useParameters("targets", parameters, { q: "" });
  const filter = at.q;
  const [asked, setAsked] = useState(null);
  const [failed, setFailed] = useState(null);
  const [list, error, again] = useLoad(() => api.get("/targets"), [], 1000);
  const [providers] = useLoad(() => api.get("/providers").catch(() => ({ items: [] })), [], 10_000);
  const items = list && list.items.filter((t) => `${t.provider} ${t.model} ${t.models.join(" ")} ${t.state}`.toLowerCase().includes(filter.toLowerCase()));
  const out = (list?.items || []).filter((t) => toneOf(t.state) !== "good" && t.state !== "off").length;
  const act = async (target, verb, body) => {
    await api.post(`${pathOf(target)}/${verb}`, body);
    say(`${target.provider}/${target.model} ${verb === "drain" ? "gets no further requests." : "gets requests again."}`);
    await again();
  };
  // Without a question before: what is refused shows above the table.
  const now = (target, verb) => act(target, verb).then(() => setFailed(null), setFailed);
  const checks = (providers?.items || []).filter((provider) => provider.last_check || provider.check);
  return html`<${Page} title="Targets" lead="Models at their providers. All models of the gateway that lead to a target share its state.">
    <div class="filters"><${Field} label="Filter" grow value=${filter} onValue=${(q) => set("q", q)} placeholder="provider, model, state" data-filter /></div>
    <${Failed} error=${failed || error} />
    <${Card} flush title=${items ? `${items.length} targets` : "Targets"} note=${out ? `${out} ${out === 1 ? "is" : "are"} not fully in use` : "all in use"}>
      <${Table} caption="Targets" id=${(t) => `${t.provider}\n${t.model}`} rows=${items} order=${{ name: "state" }}
        empty=${list && html`<${Empty} title=${filter ? "No target matches" : "No targets"}>A model's <code>targets</code> in routes.toml name the providers that serve it.<//>`}
        columns=${[
          { name: "target", label: "Target", cell: (t) => html`<b>${t.model}</b> <span class="muted">at ${t.provider}</span>${t.models.some((model) => model !== t.model) && html`<small class="under">for ${t.models.join(", ")}</small>`}`, sort: (t) => `${t.provider} ${t.model}` },
          { name: "state", label: "State", cell: (t) => html`<${Badge} tone=${toneOf(t.state)}>${wordOf(t.state)}<//>`, sort: (t) => ["bad", "warn", "off", "good"].indexOf(toneOf(t.state)) },
          { name: "reason", label: "Reason", wide: true, kind: "reason", cell: (t) => html`${t.reason}${t.for_ms != null && t.for_ms > 0 && html`<span class="muted">, for another ${span(t.for_ms)}</span>`}${t.drain_reason && html`<small class="under">${t.drain_reason}</small>`}${t.drained_until && html`<small class="under">resumed by itself in ${span(new Date(t.drained_until) - Date.now())}</small>`}` },
          { name: "flight", label: "In flight", number: true, cell: (t) => count(t.in_flight), sort: (t) => t.in_flight },
          { name: "latency", label: "Mean to head", number: true, cell: (t) => (t.latency_us ? duration(t.latency_us / 1000) : "–"), sort: (t) => t.latency_us ?? -1 },
          ...(items?.some((t) => t.failures_percent != null) ? [{ name: "failures", label: "Failures", number: true, cell: (t) => (t.failures_percent == null ? "–" : html`<span class=${t.failures_percent >= 20 ? "bad" : ""}>${t.failures_percent}\u2009%</span>`), sort: (t) => t.failures_percent ?? -1 }]
            : [{ name: "seen", label: "Seen here", number: true, cell: (t) => { const s = seen(t); return s.requests ? `${count(s.requests)}${s.errors ? `, ${s.errors} failed` : ""}` : "–"; } }]),
          { name: "act", label: "", kind: "act", cell: (t) => html`${OPEN.includes(t.state) && html`<${Act} role="operate" kind="small" onClick=${() => now(t, "close")}>Ask again now<//> `}${t.drained
            ? html`<${Act} role="operate" kind="small" onClick=${() => now(t, "resume")}>Resume<//>`
            : html`<${Act} role="operate" kind="small" onClick=${() => setAsked(t)} disabled=${t.state === "off"}>Drain<//>`}` },
        ]} />
    <//>
    ${checks.length > 0 && html`<${Card} flush title="Health checks" note="of providers that have [provider.check]">
      <${Table} caption="Health checks of providers" id=${(p) => p.name} rows=${checks} columns=${[
        { name: "provider", label: "Provider", cell: (p) => p.name },
        { name: "result", label: "Last check", cell: (p) => (p.last_check ? html`<${Badge} tone=${p.last_check.outcome === "well" ? "good" : "bad"}>${p.last_check.outcome}${p.last_check.status ? ` (${p.last_check.status})` : ""}<//>` : "not yet") },
      ]} />
    <//>`}
    ${asked && html`<${DrainForm} target=${asked} drain=${(body) => act(asked, "drain", body)} onClose=${() => setAsked(null)} />`}
  <//>`;
}
