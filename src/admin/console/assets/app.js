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
    api.setCsrf(found.csrf);
    return found;
  } catch {
    return null;
  }
}

// Returns where single sign-on begins, relative to the page; null if it is not configured.
const signOn = (found) => (found?.oidc_start ? `..${found.oidc_start}` : null);

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
    await api.remove("/session").catch(() => null);
    api.setCsrf(null);
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
