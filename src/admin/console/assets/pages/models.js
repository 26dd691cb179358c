// What happens if I ask for X? Models with their targets, what is in effect for them, and how a name resolves.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { count, duration, money, priced } from "../lib/format.js";
import { Share } from "../lib/plot.js";
import { Facts, Table } from "../lib/table.js";
import { Badge, Card, Empty, Failed, Field, Page, useLive, useLoad } from "../lib/ui.js";
import { toneOf, wordOf } from "./targets.js";
import { useParameters } from "./usage.js";

const FORMATS = ["chat", "messages", "responses", "generate", "converse"];

const listPrice = (price) => (price ? `${money(price.input)} in, ${money(price.output)} out` : null);

function Route({ targets }) {
  const tiers = [...new Set(targets.map((t) => t.tier))].sort((a, b) => a - b);
  return html`<ol class="route">
    ${tiers.map((tier, index) => html`<li>
      <h4>${index === 0 ? "First" : "If none of these can"}<span class="muted"> tier ${tier}</span></h4>
      <ul>${targets.filter((t) => t.tier === tier).map((t) => html`<li>
        <b>${t.model}</b> <span class="muted">at ${t.provider}</span> <${Badge} tone=${toneOf(t.target.state)}>${wordOf(t.target.state)}<//>
        <span class="muted">${t.share_percent} % of this tier</span><${Share} part=${t.share_percent / 100} label=${`${t.share_percent} % of the tier`} />
      </li>`)}</ul>
    </li>`)}
  </ol>`;
}

// Which API of each target serves a client's format.
function Formats({ targets }) {
  return html`<div class="scroll"><table class="small">
    <caption class="hidden">API of each target by the client's format</caption>
    <thead><tr><th scope="col">A client that speaks</th>${targets.map((t) => html`<th scope="col">is served by ${t.provider} through</th>`)}</tr></thead>
    <tbody>${FORMATS.map((format) => html`<tr><th scope="row">${format}</th>${targets.map((t) => html`<td>${t.apis[format] ? html`${t.apis[format]}${t.apis[format] === format ? html` <span class="tag good">unchanged</span>` : html` <span class="tag">translated</span>`}` : "–"}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const ORIGINS = { model: "the model's own table", price_file: "the price file", catalogue: "the catalogue", nowhere: null };
const STATUS = { documented: "stated by the provider", measured: "measured", listed: "listed by public catalogues", unverified: "not verified" };
const HOW = { listed: "the name is listed", guessed: "a guess by the name: no price, limit or end" };
const words = (key) => key.replaceAll("_", " ");
const amounts = (rates) => Object.entries(rates).map(([kind, amount]) => `${words(kind)} ${priced(amount)}`).join(", ");

// Where a row of the catalogue comes from, and how far it is confirmed.
function Source({ of }) {
  if (!of.source) return null;
  return html`${of.source} <span class=${of.status === "unverified" ? "tag warn" : "tag"}>${STATUS[of.status] || of.status}</span>${of.disputed ? html` <span class="muted">disputed: ${of.disputed}</span>` : ""}`;
}

const tierPrice = ({ tier, factor, ...rates }) => `${tier} × ${factor}${Object.keys(rates).length ? ` (${amounts(rates)})` : ""}`;
const stepPrice = ({ above, ...rates }) => `above ${count(above)} tokens: ${amounts(rates)}`;

const priceFacts = (price) => [
  ["Price now", price.free ? "free on purpose" : Object.keys(price.rates).length ? `${amounts(price.rates)}; tokens per million` : "none"],
  ["Long requests", price.long && `above ${count(price.long.above)} tokens: input × ${price.long.input}, output × ${price.long.output}`],
  ["Steps", price.steps && price.steps.map(stepPrice).join("; ")],
  ["Service tiers", price.service_tiers && price.service_tiers.map(tierPrice).join(", ")],
  ["Regions", price.regions && price.regions.map((r) => `${r.region} × ${r.factor}`).join(", ")],
  ["Region of this target", price.region],
  ["Outside of peak hours", price.off_peak && `× ${price.off_peak.factor}; peak: ${price.off_peak.peak.join(", ")} UTC`],
  ["Price holds", (price.from || price.until) && `${price.from || "always"} to ${price.until || "further notice"}`],
  ["Next price begins", price.next],
  ["Price comes from", ORIGINS[price.origin] && html`${ORIGINS[price.origin]}${price.file ? html` <span class="muted">(${price.file})</span>` : ""}`],
  ["Source of the price", price.source && html`<${Source} of=${price} />`],
  ["Answered by", price.answered_by],
];

const modelFacts = (known) => [
  ["Family", known.family ? html`${known.family} <span class=${known.found === "guessed" ? "tag warn" : "tag"}>${HOW[known.found]}</span>` : "not known"],
  ...Object.entries(known.facts).map(([key, value]) => [words(key).replace(/^./, (letter) => letter.toUpperCase()), value]),
  ["Context window", known.context_window && `${count(known.context_window)} tokens`],
  ["Most input", known.input_limit && `${count(known.input_limit)} tokens`],
  ["Most output", known.max_output_tokens && `${count(known.max_output_tokens)} tokens`],
  ["Ends", known.retires || (known.retires_not_before && `not before ${known.retires_not_before}`)],
  ["Successor", known.successor],
  ["Source of the facts", known.source && html`<${Source} of=${known} />`],
  ["Edition of the catalogue", `${known.edition}, ${known.age_days === 1 ? "1 day" : `${count(known.age_days)} days`} old`],
];

// What is known of each target: price, facts and end, with their sources.
function Known({ id }) {
  const [model, error] = useLoad(() => api.get(`/models/${api.segment(id)}`), [id]);
  if (error) return html`<${Failed} error=${error} />`;
  return (model?.targets || []).slice(0, 8).map((t) => html`<section>
    <h3>What is known of ${t.model} at ${t.provider}</h3>
    <div class="grid two"><${Facts} facts=${priceFacts(t.price)} /><${Facts} facts=${modelFacts(t.catalogue)} /></div>
  </section>`);
}

function Detail({ model }) {
  const retry = model.retry;
  return html`<div class="opened">
    <div class="grid two">
      <div><h3>Where a request goes</h3><${Route} targets=${model.targets} /></div>
      <div><h3>What is in effect</h3><${Facts} facts=${[
        ["Balancing", model.policy],
        ["Context window", model.context_window && `${count(model.context_window)} tokens`],
        ["Most output", model.max_output_tokens && `${count(model.max_output_tokens)} tokens`],
        ["Prompt cache", model.prompt_cache],
        ["Attempts", `${retry.attempts}, within ${duration(retry.deadline_ms)}`],
        ["Broken streams", retry.continue ? "continued by another target" : "not continued"],
        ["Alias for Claude Code", model.alias],
        ["Owner", model.owned_by],
        ...Object.entries(model.price || {}).map(([kind, amount]) => [`Price, ${kind.replaceAll("_", " ")}`, `${priced(amount)}${["search", "request"].includes(kind) ? " each" : " per million"}`]),
        ["Price", model.price ? null : "none: usage of this model costs nothing"],
      ]} /></div>
    </div>
    ${model.targets.some((t) => FORMATS.some((format) => t.apis[format])) && html`<h3>Formats</h3><${Formats} targets=${model.targets.slice(0, 4)} />`}
    <${Known} id=${model.id} />
    <p class="row"><a class="button small" href=${`#/playground?model=${encodeURIComponent(model.id)}`}>Try in the playground</a> <a class="button small" href=${`#/setup?model=${encodeURIComponent(model.id)}`}>Client set-up</a> <a class="button small" href=${`#/usage?model=${encodeURIComponent(model.id)}`}>Usage</a></p>
  </div>`;
}

function Resolve() {
  const [name, setName] = useState("");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    setFound(null);
    setError(null);
    try {
      setFound(await api.get(`/models/${api.segment(name.trim())}`));
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Card} title="How does a name resolve?" note="an id, an alias, provider/id, or an id with a suffix for reasoning" wide>
    <form class="filters" onSubmit=${ask}>
      <${Field} label="Name that a client sends" grow value=${name} onValue=${setName} placeholder="claude-sonnet-4-6-thinking" />
      <button class="button primary" type="submit" disabled=${!name.trim()}>Resolve</button>
    </form>
    ${error && (error.status === 404 ? html`<p class="none"><b>${name}</b> is no model of this gateway: a client gets a 404 (<code>unknown_model</code>).</p>` : html`<${Failed} error=${error} />`)}
    ${found && html`<div class="opened"><p><code>${found.resolved.requested}</code> is the model <b>${found.id}</b>${found.resolved.provider ? html`, only at <b>${found.resolved.provider}</b>` : ""}${found.resolved.alias ? ", named by its alias" : ""}${found.resolved.reasoning !== "unset" ? html`, with reasoning <b>${found.resolved.reasoning}</b>` : ""}.</p><${Route} targets=${found.resolved.provider ? found.targets.filter((t) => t.provider === found.resolved.provider) : found.targets} /></div>`}
  <//>`;
}

export function Models({ parameters }) {
  useLive();
  const [at, set] = useParameters("models", parameters, { q: "", open: "" });
  const [open, setOpen] = [at.open || null, (id) => set("open", id || "")];
  const filter = at.q;
  const [models, error] = useLoad(() => api.all("/models"), [], 10_000);
  const rows = (models || []).filter((m) => `${m.id} ${m.alias || ""} ${m.owned_by} ${m.targets.map((t) => t.provider).join(" ")}`.toLowerCase().includes(filter.toLowerCase()));
  const worst = (m) => {
    const states = m.targets.map((t) => toneOf(t.target.state));
    const good = states.filter((tone) => tone === "good").length;
    return good === states.length ? ["good", "well"] : good > 0 ? ["warn", `${good} of ${states.length} well`] : states.length ? ["bad", "no target"] : ["bad", "no targets"];
  };
  return html`<${Page} title="Models" lead="What clients can ask for, and where their requests go.">
    <${Resolve} />
    <div class="filters"><${Field} label="Filter" grow value=${filter} onValue=${(q) => set("q", q)} placeholder="model, owner, provider" data-filter /></div>
    <${Failed} error=${error} />
    <${Card} flush title=${`${rows.length} models`}>
      <${Table} caption="Models" id=${(m) => m.id} rows=${rows} open=${open} onOpen=${setOpen} detail=${(m) => html`<${Detail} model=${m} />`}
        empty=${models && html`<${Empty} title=${filter ? "No model matches" : "No models"}>A <code>[[model]]</code> in routes.toml, with a <code>[[provider]]</code> that serves it, is what clients can ask for.<//>`}
        columns=${[
          { name: "id", label: "Model", cell: (m) => html`<b>${m.id}</b>`, sort: (m) => m.id },
          { name: "state", label: "State", cell: (m) => html`<${Badge} tone=${worst(m)[0]}>${worst(m)[1]}<//>`, sort: (m) => worst(m)[0] },
          { name: "targets", label: "Targets", wide: true, cell: (m) => m.targets.map((t) => `${t.provider}/${t.model}`).slice(0, 3).join(", ") + (m.targets.length > 3 ? ` and ${m.targets.length - 3} more` : "") },
          { name: "policy", label: "Balancing", cell: (m) => (m.targets.length > 1 ? m.policy : html`<span class="muted">one target</span>`) },
          { name: "context", label: "Context", number: true, cell: (m) => count(m.context_window), sort: (m) => m.context_window || 0 },
          { name: "price", label: "Price per million", number: true, money: true, cell: (m) => listPrice(m.price) || html`<span class="muted">none</span>`, sort: (m) => Number(m.price?.input || 0) },
        ]} />
    <//>
  <//>`;
}
