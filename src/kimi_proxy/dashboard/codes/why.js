// Why a line stayed or went. The server says it in English; here it is in the viewer's language.
import { language, phrases } from "../lib/i18n.js";
import words from "../words/why.js";

const t = phrases(words);

/** `line.why` without the reason of its cut, which stands beside it already. */
export function why(line, reason = "") {
  const said = line.why ?? "";
  const begun = `cut, ${reason}; `;
  const text = said.startsWith(begun) ? said.slice(begun.length) : said;
  if (language.get() === "en") return text;
  return text.split("; ").map(clause).join(" ; ");
}

function clause(text) {
  const [, outweighed, rest] = /^(outweighed: )?(.*)$/s.exec(text);
  const texts = rest.split(", ").map((part) => t(part));
  return (outweighed ? `${t("outweighed")} ` : "") + texts.join(", ");
}
