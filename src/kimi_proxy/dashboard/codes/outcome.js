// How a request ended, in words, and what to do if it did not end well.
import { codeText } from "./errors.js";
import { has, phrases } from "../lib/i18n.js";
import words from "../words/outcome.js";

const t = phrases(words);
const WELL = ["ok", "running", "client_gone"];

export const hasFailed = (metric) => metric.status >= 400 || !WELL.includes(metric.outcome);

/** `{level, text, advice}`; a code without words is shown as it is. */
export function outcomeOf(metric) {
  const { outcome, status } = metric;
  if (outcome === "ok" && status >= 400) {
    return { level: "critical", text: t("status", { status: String(status) }), advice: byStatus(status) };
  }
  if (!hasFailed(metric)) return { level: { ok: "ok", running: "info" }[outcome] ?? "", text: t(outcome), advice: "" };
  if (!has(words, outcome)) return { level: "critical", text: codeText(outcome), advice: t("unknown_advice") };
  return { level: "critical", text: t(outcome), advice: t(`${outcome}_advice`) };
}

function byStatus(status) {
  if (status === 401 || status === 403) return t("key_advice");
  if (status === 404) return t("model_advice");
  if (status === 413) return t("long_advice");
  if (status === 429) return t("rate_limited_advice");
  return t(status >= 500 ? "provider_advice" : "request_advice");
}
