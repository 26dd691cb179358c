// What do I type? Settings of clients with this gateway's address, a model and the name of the key's variable filled in.
import { html, useEffect, useState } from "../lib/html.js";
import * as api from "../lib/api.js";
import { Card, Choice, Code, Field, Page, useLoad } from "../lib/ui.js";

let base = "";
// Returns the address of the gateway for clients, as it was found or typed last.
export const baseUrl = () => base || `${location.protocol}//${location.hostname}:8080`;

// Reads the first address that clients reach from the configuration in effect.
async function findBase() {
  const text = await api.text("/config");
  const host = (address) => address.replace(/^(0\.0\.0\.0|127\.0\.0\.1|\[::\]|\[::1\])/, location.hostname || "127.0.0.1");
  const plain = /^listen\s*=\s*\[\s*"([^"]+)"/m.exec(text)?.[1];
  const tls = /\[\[server\.tls\]\][^[]*?listen\s*=\s*"([^"]+)"/m.exec(text)?.[1];
  return tls ? `https://${host(tls)}` : plain ? `http://${host(plain)}` : baseUrl();
}

const COMMANDS = ["claude", "codex", "gemini", "opencode", "qwen", "crush", "aider"];
const command = (name) => ({ base: url, model }) => [
  ["With the program of the gateway", `export MODEL_GATEWAY_URL=${url} MODEL_GATEWAY_KEY=…\nmodel-gateway run ${name} -m ${model}         # starts it; no file of yours is changed\nmodel-gateway configure ${name} -m ${model}   # or: writes its settings`],
];

const CLIENTS = [
  { id: "curl", name: "curl", parts: ({ base: url, model }) => [
    ["Chat", `curl ${url}/v1/chat/completions \\\n  -H "authorization: Bearer $MODEL_GATEWAY_KEY" -H 'content-type: application/json' \\\n  -d '{"model":"${model}","messages":[{"role":"user","content":"Hello"}]}'`],
    ["Models that the key may use", `curl ${url}/v1/models -H "authorization: Bearer $MODEL_GATEWAY_KEY"`],
  ] },
  { id: "python", name: "Python SDKs", parts: ({ base: url, model }) => [
    ["OpenAI", `from openai import OpenAI\n\nclient = OpenAI(base_url="${url}/v1", api_key=os.environ["MODEL_GATEWAY_KEY"])\nanswer = client.chat.completions.create(model="${model}", messages=[{"role": "user", "content": "Hello"}])`],
    ["Anthropic", `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${url}", api_key=os.environ["MODEL_GATEWAY_KEY"])\nanswer = client.messages.create(model="${model}", max_tokens=1024, messages=[{"role": "user", "content": "Hello"}])`],
    ["Google", `from google import genai\n\nclient = genai.Client(api_key=os.environ["MODEL_GATEWAY_KEY"], http_options={"base_url": "${url}"})\nanswer = client.models.generate_content(model="${model}", contents="Hello")`],
  ] },
  { id: "javascript", name: "JavaScript SDKs", parts: ({ base: url, model }) => [
    ["OpenAI", `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${url}/v1", apiKey: process.env.MODEL_GATEWAY_KEY });\nconst answer = await client.responses.create({ model: "${model}", input: "Hello" });`],
    ["Anthropic", `import Anthropic from "@anthropic-ai/sdk";\n\nconst client = new Anthropic({ baseURL: "${url}", apiKey: process.env.MODEL_GATEWAY_KEY });\nconst answer = await client.messages.create({ model: "${model}", max_tokens: 1024, messages: [{ role: "user", content: "Hello" }] });`],
  ] },
  { id: "claude", name: "Claude Code", parts: (at) => [...command("claude")(at), ["By hand", `export ANTHROPIC_BASE_URL=${at.base}\nexport ANTHROPIC_AUTH_TOKEN=$MODEL_GATEWAY_KEY\nexport ANTHROPIC_MODEL=${at.model}\nclaude`]] },
  { id: "codex", name: "Codex", parts: (at) => [...command("codex")(at), ["By hand, ~/.codex/config.toml", `model = "${at.model}"\nmodel_provider = "gateway"\n\n[model_providers.gateway]\nname = "gateway"\nbase_url = "${at.base}/v1"\nenv_key = "MODEL_GATEWAY_KEY"\nwire_api = "responses"`]] },
  { id: "gemini", name: "Gemini CLI", parts: (at) => [...command("gemini")(at), ["By hand", `export GOOGLE_GEMINI_BASE_URL=${at.base}\nexport GEMINI_API_KEY=$MODEL_GATEWAY_KEY\ngemini -m ${at.model}`]] },
  { id: "opencode", name: "OpenCode", parts: command("opencode") },
  { id: "qwen", name: "Qwen Code", parts: command("qwen") },
  { id: "crush", name: "Crush", parts: command("crush") },
  { id: "aider", name: "Aider", parts: (at) => [...command("aider")(at), ["By hand", `export OPENAI_API_BASE=${at.base}/v1 OPENAI_API_KEY=$MODEL_GATEWAY_KEY\naider --model openai/${at.model}`]] },
  { id: "editors", name: "Editors and others", parts: ({ base: url, model }) => [
    ["Cursor, Cline, Continue, Zed, Open WebUI, LibreChat: kind “OpenAI compatible”", `Base URL   ${url}/v1\nAPI key    the text of your key\nModel      ${model}`],
    ["Those that speak Anthropic's format", `Base URL   ${url}\nAPI key    the text of your key\nModel      ${model}`],
  ] },
];

export function Setup({ parameters }) {
  const [url, setUrl] = useState(base);
  const [client, setClient] = useState(parameters.client || "curl");
  const [model, setModel] = useState(parameters.model || "");
  const [models] = useLoad(() => api.all("/models"), []);
  useEffect(() => {
    if (!base) findBase().then((found) => { base = found; setUrl(found); }, () => setUrl(baseUrl()));
  }, []);
  const chosen = CLIENTS.find((one) => one.id === client) || CLIENTS[0];
  const names = (models || []).filter((m) => m.targets.some((t) => t.apis.chat)).map((m) => m.id);
  const at = { base: (url || baseUrl()).replace(/\/+$/, ""), model: model || names[0] || "MODEL" };
  return html`<${Page} title="Client set-up" lead="One address and one key for every client, in the format that it speaks.">
    <${Card}>
      <div class="filters">
        <${Field} label="Address of the gateway for clients" grow value=${url} onValue=${(text) => { base = text; setUrl(text); }} hint="Behind a proxy or in another network, write the address that clients use." />
        <${Field} label="Model" kind="select" value=${at.model} onValue=${setModel} options=${names.length ? names : [at.model]} />
      </div>
      <p>The key: make one under <a href="#/keys">Keys</a>, and put it into the environment of the client, never into a file of a repository.</p>
      <${Code} label="Key in the environment" text="export MODEL_GATEWAY_KEY=mgw_…" />
    <//>
    <div class="tabs"><${Choice} label="Client" hideLabel options=${CLIENTS.map((one) => ({ value: one.id, label: one.name }))} value=${client} onValue=${setClient} /></div>
    <${Card} title=${chosen.name} note=${COMMANDS.includes(chosen.id) ? "tested with this gateway" : ""}>
      ${chosen.parts(at).map(([title, text]) => html`<h3>${title}</h3><${Code} text=${text} label=${`${chosen.name}, ${title}`} />`)}
    <//>
  <//>`;
}
