// Errors of the server in the viewer's words. The server's own words, which are English, stand in for a code that is
// unknown here, and are there to unfold where they say more than the code.
import { has, phrases } from "../lib/i18n.js";
import words from "../words/errors.js";

const t = phrases(words);
const TELLS_LITTLE = [
  "bad_request",
  "invalid_params",
  "invalid_range",
  "unknown_server",
  "call_refused",
  "config_error",
  "file_refused",
  "tool_failed",
  "refused",
];

/** What a code means, or `said` where it means nothing here. */
export function codeText(code, said = code, details = {}) {
  const exact = `${code} ${details.reason}`;
  const key = [exact, code].find((each) => has(words, each));
  return key ? t(key, details) : said;
}

/** `error` is an ApiError. */
export const errorText = (error) => codeText(error.code, error.message, error.details);

/** The server's own words, where they say more than the code does. */
export const detailOf = (error) => (TELLS_LITTLE.includes(error.code) ? error.message : "");
