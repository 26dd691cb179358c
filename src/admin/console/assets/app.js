// Start of the console: who the caller is, the page that the address names, and the keyboard.
import { html, render, useEffect, useState } from "./lib/html.js";
import * as api from "./lib/api.js";
import * as live from "./lib/live.js";
import { session } from "./lib/ui.js";
import { Login, Shell } from "./shell.js";

// Returns the page and its parameters: #/keys?name=ci.
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

// Older gateways have no sessions: their answer is a 404.
async function readSession() {
  try {
    const found = await api.get("/session");
    api.setCsrf(found.csrf || found.csrf_token);
    return found;
  } catch {
    return null;
  }
}

// Returns where single sign-on begins; null if it is not configured.
function signOn(found) {
  const oidc = found && (found.oidc ?? found.sso);
  if (!oidc) return null;
  const url = typeof oidc === "object" ? oidc.login || oidc.url || oidc.login_url : typeof oidc === "string" ? oidc : found.login_url;
  return url || "../admin/v1/session/oidc";
}

function App() {
  const [state, setState] = useState({ known: null, error: null });
  const [at, setAt] = useState(place());
  const identify = async () => {
    session.oidc = signOn(await readSession());
    try {
      const index = await api.get("");
      Object.assign(session, { caller: index.caller, role: index.role, version: index.version });
      setState({ known: true, error: null });
      live.start();
    } catch (error) {
      if (error.status === 401) api.setToken(null);
      setState({ known: false, error });
    }
  };
  useEffect(() => {
    identify();
    const go = () => setAt(place());
    addEventListener("hashchange", go);
    return () => removeEventListener("hashchange", go);
  }, []);
  useEffect(() => {
    scrollTo(0, 0);
    document.getElementById("title")?.focus({ preventScroll: true });
  }, [at.page]);
  const leave = async () => {
    live.stop();
    api.setToken(null);
    await fetch("../admin/v1/session", { method: "DELETE" }).catch(() => null);
    await identify();
  };
  if (state.known === null) return html`<p class="loading">Loading the console …</p>`;
  if (!state.known) return html`<${Login} error=${state.error} onDone=${identify} />`;
  return html`<${Shell} key=${session.caller} at=${at} onSignIn=${identify} onLeave=${leave} />`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
performance.mark("interactive");
