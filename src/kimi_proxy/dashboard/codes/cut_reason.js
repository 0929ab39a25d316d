// Why lines were cut. The pruner says it in French, as it stands in the markers; here it is in the viewer's language.
import { has, phrases } from "../lib/i18n.js";
import words from "../words/cut_reason.js";

const t = phrases(words);

/** Words that are unknown here stay as they are. */
export function cutReason(said) {
  const [, times, line] = /^lignes répétées: (\d+) × (.*)$/s.exec(said) ?? [];
  if (times) return t("repeated", { times, line });
  if (said === "hors sujet selon swe-pruner") return t("swe_pruner");
  const [isOff, about] = /^hors focus(?:: (.*))?$/s.exec(said) ?? [];
  if (!isOff) return said;
  return about ? t("off_focus_about", { about: subject(about) }) : t("off_focus");
}

function subject(about) {
  const [, n, names] = /^(\d+) blocs: (.*)$/s.exec(about) ?? [];
  if (n) return t("blocks", { n: Number(n), names });
  const [, name] = /^suite de (.*)$/s.exec(about) ?? [];
  return name ? t("rest", { name }) : named(about);
}

/** `fonction parse_yaml`, or the kind alone. */
function named(about) {
  const kind = [about, "bloc de code", about.split(" ")[0]].find((each) => about.startsWith(each) && has(words, `kind ${each}`));
  return kind ? t(`kind ${kind}`) + about.slice(kind.length) : about;
}
