// Is anything wrong? Each alert says what to do; when there is none, that is said too.
import { patch } from "../../lib/api.js";
import { titleOf } from "../../state/focus.js";
import { percent, share } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { dismiss, known } from "../../state/traffic.js";
import { hasFailed, outcomeOf } from "../../codes/outcome.js";
import { Banner } from "../../parts/banner.js";
import { Copy } from "../../parts/copy.js";
import { Fold } from "../../parts/fold.js";
import { levelOf } from "../../parts/gauge.js";
import { link } from "../../lib/route.js";
import words from "../../words/live.js";

const t = phrases(words);
const LOOKED_AT = 20; // the newest requests of other sessions
const LEVELS = ["critical", "warning", "caution", "info"];
const RECENT_MS = 15 * 60_000;

export function Alerts({ newest, id, sanitizer, unknown = [], threshold = null }) {
  const own = ofSession(newest, id, threshold).map((alert) => ({ ...alert, isOwn: true }));
  const found = [...ofServer(sanitizer), ...unknown.map(ofModel), ...own, ...ofOthers(id)].sort(ownThenWorst);
  const [worst, ...others] = found;
  return html`<div class="banners">
    ${!worst && known.isReady && html`<${Calm} hasPassed=${Boolean(newest)} />`}
    ${worst && drawn(worst)}
    ${
      others.length > 0 &&
      html`<${Fold} title=${t("more_alerts", { n: others.length })}>
      <div class="banners">${others.map(drawn)}</div>
    <//>`
    }
  </div>`;
}

// What the viewer looks at comes first: the full window of another session must not hide that of this one.
const ownThenWorst = (a, b) => Number(Boolean(b.isOwn)) - Number(Boolean(a.isOwn)) || LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level);

const drawn = ({ key, level, title, what, onClose }) =>
  html`<${Banner} key=${key} level=${level} title=${title} onClose=${onClose}>${what}<//>`;

const Calm = ({ hasPassed }) =>
  html`<${Banner} level="ok" title=${t(hasPassed ? "well" : "ready")}>${t(hasPassed ? "well_why" : "ready_why")}<//>`;

function ofServer(sanitizer) {
  const found = [];
  if (known.state === "away") found.push({ key: "away", level: "critical", title: t("away"), what: t("away_what") });
  if (known.store) found.push({ key: "store", level: "critical", title: t("store"), what: t("store_what") });
  if (sanitizer?.mode === "observe") found.push({ key: "observe", level: "info", title: t("observing"), what: html`<${TurnOn} />` });
  if (sanitizer && !sanitizer.enabled) found.push({ key: "off", level: "info", title: t("off"), what: toSettings() });
  return found;
}

function TurnOn() {
  const turnOn = () => patch("/api/settings", { "sanitizer.observe": false }).catch(() => {});
  return html`${t("observing_what")} <button type="button" class="quiet" onClick=${turnOn}>${t("turn_on")}</button>`;
}

const toSettings = () => html`${t("off_what")} <a href=${link("settings")}>${t("to_settings")}</a>`;

/** How to make room: the button, which is there from the threshold on, and the command. */
function howToCompress(id, share, threshold) {
  const command = html`<code>kimi-proxy compress ${id}</code>`;
  const isOffered = threshold !== null && share >= threshold;
  const how = isOffered || threshold === null ? t("compress_now") : t("compress_from", { threshold: percent(threshold) });
  return html`${how} ${command} <a href=${link("compression")}>${t("to_compression")}</a>`;
}

const ofModel = ({ provider, model, lines }) => ({
  key: `model ${provider} ${model}`,
  level: "info",
  title: t("model_unknown", { model }),
  what: html`${t("model_unknown_what")}<pre class="mono">${lines}</pre><${Copy} text=${lines} label=${t("copy_lines")} />`,
});

function ofSession(newest, id, threshold) {
  if (!newest) return [];
  const found = [];
  if (hasFailed(newest)) {
    const { text, advice } = outcomeOf(newest);
    found.push({ key: "failed", level: "critical", title: t("last_failed", { text }), what: advice });
  }
  const level = levelOf(newest.percent);
  if (["caution", "warning", "critical"].includes(level)) {
    const title = t(`full_${level}`, { share: share(newest.percent) });
    found.push({ key: "full", level, title, what: html`${t(`full_${level}_what`)} ${howToCompress(id, newest.percent, threshold)}` });
  }
  const buried = known.alerts.get(id)?.get("attention_sink_alert");
  if (buried) {
    const what = html`${t("buried_what")} <a href=${link("map")}>${t("to_map")}</a>`;
    const onClose = () => dismiss(id, "attention_sink_alert");
    found.push({ key: "buried", level: "caution", title: t("buried"), what, onClose });
  }
  return found;
}

function ofOthers(id) {
  const others = known.requests.slice(-LOOKED_AT).filter((metric) => metric.session_id !== id && isRecent(metric));
  const failed = others.filter(hasFailed).length;
  const newest = new Map(others.map((metric) => [metric.session_id, metric]));
  const full = [...newest.values()].filter((metric) => metric.percent >= 90).sort((a, b) => b.percent - a.percent).slice(0, 1);
  return [...(failed ? [othersFailed(failed)] : []), ...full.map(otherFull)];
}

const othersFailed = (n) => ({
  key: "others",
  level: "warning",
  title: t("others_failed", { n }),
  what: t("others_failed_what"),
});

const otherFull = ({ session_id: id, percent }) => ({
  key: id,
  level: levelOf(percent),
  title: t("other_full", { title: titleOf(known.sessions.get(id)), share: share(percent) }),
  what: t("other_full_what"),
});

const isRecent = (metric) => Date.now() - Date.parse(metric.at) < RECENT_MS;
