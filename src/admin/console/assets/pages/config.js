// What is loaded, and was my last change taken? Files, the last reload with its faults, a check, and the history.
import { html, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { ago, bytes, count, moment, span } from "../lib/format.js";
import { Table } from "../lib/table.js";
import { Act, Badge, Card, Choice, Code, Confirm, Empty, Failed, Faults, Field, Notice, Page, say, useLoad, usePages } from "../lib/ui.js";
import { useParameters } from "./usage.js";

const nameOf = (path) => path.split("/").pop();

function Reload({ reload }) {
  const refused = reload.result === "refused";
  return html`<${Card} title="Last reload" note=${`${moment(reload.time)}, ${ago(reload.time)}`}>
    ${refused
      ? html`<${Notice} tone="bad" title=${`Refused: ${reload.faults.length} ${reload.faults.length === 1 ? "fault" : "faults"}.`}>
          Configuration ${reload.generation} stays in effect, with ${count(reload.models)} models and ${count(reload.keys)} keys. Mend the files and reload.
          <${Faults} faults=${reload.faults} />
        <//>`
      : html`<${Notice} tone="good" title="Applied.">Configuration ${reload.generation} is in effect: ${count(reload.models)} models and ${count(reload.keys)} keys, read in ${reload.milliseconds} ms.<//>`}
  <//>`;
}

// What a reload or a restart would do, before somebody does it.
function Pending({ versions }) {
  const [found, error] = useLoad(() => api.get("/config/pending"), [versions]);
  if (!found) return html`<${Failed} error=${error} />`;
  const { faults, changes, total, files } = found;
  const verdict = found.reload_ok
    ? total ? `${count(total)} ${total === 1 ? "change" : "changes"} to take` : files.length ? "A reload would change the texts of the files, and no entry by name" : "A reload would change nothing"
    : "A reload would be refused";
  return html`<${Card} flush title="What a reload would change" note="names only; settings of gateway.toml need a restart">
    <div class="inset"><${Notice} tone=${faults.length ? "bad" : total ? "warn" : "info"} title=${`${verdict}.`}>${faults.length > 0 && html`<${Faults} faults=${faults} />`}<//></div>
    ${total > 0 && html`<${Table} compact caption="Changes that are not in effect" id=${(change) => `${change.entry} ${change.name}`} rows=${changes}
      columns=${[
        { name: "entry", label: "What", cell: (change) => change.entry },
        { name: "name", label: "Name", wide: true, cell: (change) => html`<b>${change.name}</b>` },
        { name: "change", label: "Change", cell: (change) => html`<${Badge} tone=${{ added: "good", removed: "bad" }[change.change] || "warn"}>${change.change}<//>` },
        { name: "members", label: "Members", wide: true, cell: (change) => change.members.join(", ") || "–" },
        { name: "effect", label: "With a", cell: (change) => change.effect },
      ]} />`}
    ${total > changes.length && html`<p class="none">The first ${count(changes.length)} are shown.</p>`}
  <//>`;
}

function Files({ files }) {
  return html`<${Card} flush title="Files" note=${files.some((file) => file.kind === "gateway") ? "gateway.toml takes effect with a restart, the others with a reload" : "of routes and keys"}>
    <${Table} caption="Files of the configuration" id=${(file) => file.path} rows=${files}
      columns=${[
        { name: "file", label: "File", cell: (file) => html`<b title=${file.path}>${nameOf(file.path)}</b>` },
        { name: "kind", label: "Has", cell: (file) => file.kind },
        { name: "state", label: "State", cell: (file) => (file.changed ? html`<${Badge} tone="warn">${file.kind === "gateway" ? "changed: a restart applies it" : file.etag ? "changed on disk since it was loaded" : "gone from the disk"}<//>` : html`<${Badge} tone="good">in effect<//>`) },
        { name: "etag", label: "Version", cell: (file) => html`<code>${(file.etag || file.loaded || "–").slice(0, 12)}</code>` },
        ...(files.some((file) => file.modified) ? [
          { name: "modified", label: "Modified", cell: (file) => (file.modified ? moment(file.modified) : "–") },
          { name: "size", label: "Size", number: true, cell: (file) => bytes(file.size) },
        ] : []),
        { name: "writable", label: "The gateway may write it", cell: (file) => (file.writable ? "yes" : "no") },
      ]} />
  <//>`;
}

const states = (gateway) => (gateway.draining ? ["warn", "shuts down"] : gateway.ready ? ["good", "ready"] : ["bad", "not ready"]);

// The gateways that share a store, and where they differ.
function Fleet() {
  const [fleet, error] = useLoad(() => api.get("/fleet"), [], 5000);
  const first = fleet?.gateways[0];
  const many = fleet && fleet.gateways.length > 1;
  const differs = (gateway, name) => many && gateway[name] !== first[name];
  const mark = (gateway, name, text) => (differs(gateway, name) ? html`<${Badge} tone="warn">${text} differs<//>` : text);
  const same = [fleet?.same_config ? "the same configuration" : "", fleet?.same_version ? "the same version" : ""].filter(Boolean).join(" and ");
  return html`<${Card} flush title=${many ? `${fleet.gateways.length} gateways` : "Gateways"} note=${many ? "that share a store, this one first" : ""}>
    <${Failed} error=${error} />
    ${many && (same.includes(" and ") ? "" : html`<div class="inset"><${Notice} tone="warn" title="The gateways differ.">${fleet.same_config ? "" : "They have different files of routes or keys, so that a client may be answered differently by each. Give all the same files and reload them. "}${fleet.same_version ? "" : "They have different versions: an upgrade is under way, or one was left out."}<//></div>`)}
    <${Table} caption="Gateways of the fleet" id=${(gateway) => gateway.id} rows=${fleet && fleet.gateways}
      columns=${[
        { name: "address", label: "Gateway", cell: (g) => html`<b>${g.address}</b>${g.self && html` <span class="tag">this one</span>`}<small class="under">${g.id}, process ${g.pid}</small>` },
        { name: "state", label: "State", cell: (g) => html`<${Badge} tone=${states(g)[0]}>${states(g)[1]}<//>` },
        { name: "config", label: "Configuration", cell: (g) => html`<code>${g.config_hash.slice(0, 12)}</code> <span class="muted">generation ${g.generation}</span>${differs(g, "config_hash") && html` <${Badge} tone="warn">differs<//>`}` },
        { name: "version", label: "Version", cell: (g) => mark(g, "version", g.version) },
        { name: "started", label: "Up for", cell: (g) => span(Date.now() - new Date(g.started)) },
        { name: "drained", label: "Drained targets", wide: true, cell: (g) => g.drained.join(", ") || html`<span class="muted">none</span>` },
      ]} />
    ${fleet && !fleet.shared && html`<p class="none">This gateway is alone. Gateways with the same <code>store.valkey</code> share balances and limits, and show here with their configuration.</p>`}
  <//>`;
}

function Effective({ filter, setFilter }) {
  const [text, error] = useLoad(() => api.text("/config"), []);
  const lines = (text || "").split("\n");
  const shown = filter ? lines.filter((line) => line.startsWith("[") || line.toLowerCase().includes(filter.toLowerCase())).filter((line, i, all) => !line.startsWith("[") || !(all[i + 1] || "[").startsWith("[")) : lines;
  return html`<${Card} title="In effect" note="all files and defaults together, secrets masked">
    <${Failed} error=${error} />
    <div class="filters"><${Field} label="Lines with" grow value=${filter} onValue=${setFilter} placeholder="timeout, model id, a key of the configuration" data-filter /></div>
    ${text && html`<${Code} text=${shown.join("\n")} label="Configuration in effect" />`}
  <//>`;
}

function CheckTexts() {
  const [kind, setKind] = useState("routes");
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const check = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      setFound(await api.post("/config/validate", { [kind]: text }));
    } catch (failure) {
      setError(failure);
      setFound(null);
    }
  };
  return html`<${Card} title="Check a text" note="before you write it into a file: nothing is changed">
    <form onSubmit=${check}>
      <${Choice} label="It is the text of" value=${kind} onValue=${setKind} options=${["routes", "keys", "gateway"].map((value) => ({ value, label: `${value}.toml` }))} />
      <${Field} label="Text" kind="textarea" rows="10" value=${text} onValue=${setText} placeholder=${'[[model]]\nid = "gpt-5"\n'} />
      <p class="row"><button class="button primary" type="submit" disabled=${!text.trim()}>Check</button></p>
    </form>
    <${Failed} error=${error} />
    ${found && (found.ok ? html`<${Notice} tone="good" title="Valid.">It would give ${count(found.models)} models and ${count(found.keys)} keys.${found.warnings.length > 0 && html`<${Faults} faults=${found.warnings} />`}<//>` : html`<${Notice} tone="bad" title=${`${found.faults.length} ${found.faults.length === 1 ? "fault" : "faults"}.`}><${Faults} faults=${found.faults} /><//>`)}
  <//>`;
}

const KEPT = new Set(["seq", "time", "actor", "role", "client", "request_id", "action", "object", "outcome", "prev", "code", "change"]);

// Lines of the history: sign-ins are many, and hide the changes.
const TOPICS = [
  { value: "changes", label: "Changes" },
  { value: "sign_ins", label: "Sign-ins" },
  { value: "all", label: "All" },
];

function History({ topic, setTopic }) {
  const [asked, setAsked] = useState(null);
  const [lines, error, again, more] = usePages("/audit", { topic: topic === "all" ? "" : topic }, 10_000);
  const empty = topic === "sign_ins" ? "No sign-in yet" : "No change yet";
  return html`<${Card} flush title="History" note="of the API, the latest first"
    actions=${html`<${Choice} label="Lines" hideLabel value=${topic} onValue=${setTopic} options=${TOPICS} />`}>
    <${Failed} error=${error} />
    <${Table} compact caption="Audit log" id=${(line) => line.seq} rows=${lines} limit=${Infinity} onMore=${lines?.isCut ? more : null}
      empty=${html`<${Empty} title=${empty}>Each change through the API leaves a line here: who, what, and the entry before and afterwards. Changes by hand are not in it.<//>`}
      detail=${(line) => html`<div class="opened"><${Code} label="Details of the change" text=${JSON.stringify(Object.fromEntries(Object.entries(line).filter(([name, value]) => !KEPT.has(name) && value != null)), null, 2)} /></div>`}
      columns=${[
        { name: "time", label: "Time", cell: (line) => moment(line.time) },
        { name: "actor", label: "Who", cell: (line) => line.actor },
        { name: "action", label: "What", cell: (line) => html`<b>${line.action}</b>` },
        { name: "object", label: "Of", wide: true, cell: (line) => line.object },
        { name: "outcome", label: "Outcome", cell: (line) => html`<${Badge} tone=${line.outcome === "applied" ? "good" : "warn"}>${line.outcome}<//>` },
        { name: "undo", label: "", kind: "act", cell: (line) => ((line.details?.hash_after || line.hash_after) && line.outcome === "applied" ? html`<${Act} role="admin" kind="small" onClick=${() => setAsked(line)}>Undo<//>` : null) },
      ]} />
    ${asked && html`<${Confirm} title=${`Undo change ${asked.seq}?`} verb="Undo" tone="primary" onClose=${() => setAsked(null)} run=${async () => { await api.post(`/audit/${asked.seq}/undo`); say(`Change ${asked.seq} is undone.`); await again(); }}>
      <p>The file gets the text that it had before <b>${asked.action}</b> of <b>${asked.object}</b>. That works if no later change of the file is in between.</p>
    <//>`}
  <//>`;
}

const DEFAULTS = { tab: "state", topic: "changes", q: "" };

export function Configuration({ parameters }) {
  const [at, set] = useParameters("config", parameters, DEFAULTS);
  const { tab } = at;
  const [failed, setFailed] = useState(null);
  const [loaded, error, again] = useLoad(async () => {
    const [instance, files] = await Promise.all([api.get("/instance"), api.get("/config/files")]);
    return { reload: instance.last_reload, files: files.items, writes: instance.writes };
  }, [], 3000);
  const reload = async () => {
    setFailed(null);
    try {
      const answer = await api.post("/config/reload");
      say(answer.reload.result === "applied" ? `Configuration ${answer.reload.generation} is in effect.` : "The files were refused; what was in effect stays.");
      await again();
    } catch (failure) {
      setFailed(failure);
    }
  };
  const differing = loaded?.files.filter((file) => file.changed) || [];
  const changed = differing.filter((file) => file.kind !== "gateway").length;
  return html`<${Page} title="Configuration" lead="What is loaded, and was the last change taken?" actions=${html`<${Act} role="operate" kind=${changed ? "primary" : ""} onClick=${reload}>Reload<//>`}>
    <${Choice} label="Part" hideLabel value=${tab} onValue=${(value) => set("tab", value)} options=${[{ value: "state", label: "State" }, { value: "effective", label: "In effect" }, { value: "check", label: "Check a text" }, { value: "history", label: "History" }]} />
    <${Failed} error=${failed || error} />
    ${tab === "state" && loaded && html`
      ${changed > 0 && html`<${Notice} tone="warn" title=${`${changed} ${changed === 1 ? "file has" : "files have"} changed on disk.`}>A reload reads all files, checks them, and takes all of it or nothing.<//>`}
      ${differing.length > 0 && html`<${Pending} versions=${differing.map((file) => file.etag).join(" ")} />`}
      <${Reload} reload=${loaded.reload} /><${Files} files=${loaded.files} /><${Fleet} />
      ${!loaded.writes && html`<${Notice} tone="info">The API does not change files: <code>admin.writes</code> is false.<//>`}`}
    ${tab === "effective" && html`<${Effective} filter=${at.q} setFilter=${(q) => set("q", q)} />`}
    ${tab === "check" && html`<${CheckTexts} />`}
    ${tab === "history" && html`<${History} topic=${at.topic} setTopic=${(topic) => set("topic", topic)} />`}
  <//>`;
}
