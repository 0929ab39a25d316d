// Why nothing was done, in words.
import { has, phrases } from "../lib/i18n.js";
import words from "../words/reasons.js";

const t = phrases(words);

export function reasonText(code) {
  if (has(words, code)) return t(code);
  const stage = /^(\w+)_failed$/.exec(code);
  return stage ? t("stage_failed", { name: stage[1] }) : t("other", { code });
}
