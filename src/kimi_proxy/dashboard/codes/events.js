// An event in a sentence, or nothing if it is not worth one.
import { codeText } from "./errors.js";
import { count, share, tokens } from "../lib/format.js";
import { phrases } from "../lib/i18n.js";
import words from "../words/events.js";

const t = phrases(words);

const TEXTS = {
  sanitizer_event: (event) =>
    event.cut_now > 0 && t("sanitized", { n: event.cut_now, tokens: tokens(event.tokens_saved) }),
  prune_event(event) {
    if (event.outcome === "recall_refused") return t("recall_refused");
    if (event.outcome === "observed" || event.pruned_lines <= 0) return null;
    return t("pruned", { n: event.pruned_lines, of: count(event.original_lines) });
  },
  gateway_event(event) {
    if (event.outcome === "ok") return null;
    if (event.outcome === "observed")
      return t("would_mask", { n: event.texts, server: event.server, chars: count(event.chars) });
    if (event.outcome === "masked")
      return t("masked", { n: event.texts, server: event.server, chars: count(event.chars) });
    if (event.outcome === "uncut") return t("uncut", { server: event.server });
    return t("server_failed", { server: event.server, outcome: codeText(event.outcome) });
  },
  compression_event(event) {
    if (event.event === "undone") return t("undone");
    const values = { before: tokens(event.original_tokens), after: tokens(event.compressed_tokens) };
    return t(event.automatic ? "compressed_itself" : "compressed", values);
  },
  model_routed: (event) =>
    event.new !== false && t("routed", { from: event.from, to: event.to, share: share(event.asked_percent) }),
  routing_unavailable: (event) => t("unrouted", { from: event.from }),
  instructions_reinjected: (event) => t("reinjected", { tokens: tokens(event.tokens) }),
  memory_injected: (event) => t("memory_injected", { tokens: tokens(event.tokens) }),
  settings_event: () => t("settings"),
};

export const happening = (event) => (Object.hasOwn(TEXTS, event.type) && TEXTS[event.type](event)) || null;
