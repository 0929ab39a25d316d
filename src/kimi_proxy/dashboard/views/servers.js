// The MCP servers behind the gateway: how they are doing, what they hid, and a way to start them again.
import { get, post, useAnswer } from "../lib/api.js";
import { codeText } from "../codes/errors.js";
import { bytes, count, duration, NONE } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { listen } from "../state/traffic.js";
import { Card } from "../parts/card.js";
import { Copy } from "../parts/copy.js";
import { Dialog } from "../parts/dialog.js";
import { Icon } from "../parts/icon.js";
import { Answered, Detail, Empty, Failure } from "../parts/notice.js";
import words from "../words/servers.js";

const t = phrases(words);
const LOOK_MS = 5000;
const SOON_MS = 800; // after something happened
const LEVELS = { ready: "ok", starting: "info", degraded: "warning", down: "critical" };

export function View() {
  const [turn, setTurn] = useState(0);
  const look = () => setTurn((n) => n + 1);
  useEffect(() => {
    let soon = 0;
    const timer = setInterval(() => !document.hidden && look(), LOOK_MS);
    const stop = listen((event) => {
      if (event.type !== "gateway_event" || soon) return;
      soon = setTimeout(() => ((soon = 0), look()), SOON_MS);
    });
    return () => {
      clearInterval(timer);
      clearTimeout(soon);
      stop();
    };
  }, []);
  const answer = useAnswer("/api/mcp/servers", turn);
  return html`<div class="view">
    <${Answered} answer=${answer}>${({ servers }) => html`<${Servers} servers=${servers} look=${look} />`}<//>
  </div>`;
}

function Servers({ servers, look }) {
  const on = servers.filter(({ state }) => state !== "off");
  const off = servers.filter(({ state }) => state === "off");
  return html`
    ${on.length === 0 && html`<${Empty}>${t("empty")}<//>`}
    <div class="servers">${on.map((server) => html`<${Server} key=${server.name} server=${server} look=${look} />`)}</div>
    ${off.length > 0 && html`<p class="soft">${t("off")} ${off.map(({ name }) => name).join(", ")}. ${t("off_hint")}</p>`}
  `;
}

function Server({ server, look }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [shows, setShows] = useState(false);
  const restart = async () => {
    setBusy(true);
    setError(null);
    try {
      await post("/api/mcp/servers/restart", { names: [server.name] });
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
      look();
    }
  };
  return html`<${Card} title=${server.name} aside=${html`<${State} state=${server.state} />`}>
    <dl class="facts">
      ${facts(server).map(([name, value]) => html`<div key=${name}><dt>${t(name)}</dt><dd class="number">${value}</dd></div>`)}
    </dl>
    ${(server.last_error || server.last_error_code) && html`<${LastError} server=${server} />`}
    ${server.retry_in_s !== null && server.retry_in_s !== undefined && html`<p class="soft">${t("retry", { time: duration(1000 * server.retry_in_s) })}</p>`}
    ${error && html`<${Failure} error=${error} />`}
    <div class="row-actions">
      ${server.run
        ? html`<button type="button" class="quiet" disabled=${isBusy} onClick=${restart} aria-label=${`${t("restart")}: ${server.name}`}><${Icon} name="refresh" />${t(isBusy ? "restarting" : "restart")}</button>
            <button type="button" class="quiet" onClick=${() => setShows(true)} aria-label=${`${t("log")}: ${server.name}`}><${Icon} name="list" />${t("log")}</button>`
        : html`<span class="soft">${t(server.name === "pruner" ? "our_own" : "elsewhere")}</span>`}
      <${Copy} text=${address(server.name)} label=${t("copy_address")} />
    </div>
    ${shows && html`<${Log} name=${server.name} onClose=${() => setShows(false)} />`}
  <//>`;
}

/** What went wrong by its code; what exactly, in the server's own words, which members of a team do not get. */
function LastError({ server }) {
  const { last_error: said, last_error_code: code } = server;
  const meant = codeText(code, said ? "" : code);
  return html`<div class="servers-error">
    <${Icon} name="alert" />
    <div>
      ${meant ? t("last_error", { what: meant }) : html`<span lang="en">${said}</span>`} <span class="soft">${ago(server.last_error_s_ago)}</span>
      <${Detail} text=${meant && said} />
    </div>
  </div>`;
}

const State = ({ state }) => html`<span class="badge ${LEVELS[state] ?? ""}">${t(`state_${state}`)}</span>`;

const address = (name) => `${location.origin}/api/mcp-gateway/${encodeURIComponent(name)}/mcp`;

const ago = (seconds) => (typeof seconds === "number" ? t("ago", { time: duration(1000 * seconds) }) : "");

function facts(server) {
  const { masked, up_s: up } = server;
  return [
    ["tools", count(server.tools)],
    ["latency", duration(server.latency_ms)],
    ["calls", count(server.calls)],
    ["failures", count(server.failures)],
    ["masked", masked?.texts ? t("masked_of", { n: masked.texts, size: bytes(masked.chars) }) : NONE],
    ["up", typeof up === "number" ? duration(1000 * up) : NONE],
    ["restarts", typeof server.restarts === "number" ? count(server.restarts) : NONE],
    ["transport", t(`way_${server.transport}`)],
  ];
}

function Log({ name, onClose }) {
  const [seen, see] = useState({ log: null, error: null });
  useEffect(() => {
    get(`/api/mcp/servers/${encodeURIComponent(name)}/logs?lines=200`).then(
      ({ log }) => see({ log, error: null }),
      (error) => see({ log: null, error }),
    );
  }, [name]);
  return html`<${Dialog} title=${t("log_of", { name })} onClose=${onClose} wide=${true}>
    ${seen.error && html`<${Failure} error=${seen.error} />`}
    ${seen.log === "" ? html`<${Empty}>${t("log_empty")}<//>` : html`<pre class="servers-log" tabindex="0">${seen.log ?? ""}</pre>`}
  <//>`;
}
