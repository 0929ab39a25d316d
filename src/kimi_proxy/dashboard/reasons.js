// Why nothing was done, in words.
import { has, phrases } from "./i18n.js";
import words from "./words/reasons.js";

const t = phrases(words);

export const reasonText = (code) => (has(words, code) ? t(code) : t("other", { code }));
