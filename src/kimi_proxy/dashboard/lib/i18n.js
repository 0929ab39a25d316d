// French or English: by the browser, unless the viewer chose.
import { keep, kept } from "./storage.js";
import { signal } from "./signal.js";

export const LANGUAGES = ["en", "fr"];

export const language = signal(first());

function first() {
  const wanted = [kept("language"), ...navigator.languages].map((tag) => tag.slice(0, 2));
  return wanted.find((tag) => LANGUAGES.includes(tag)) ?? "en";
}

export function choose(tag) {
  keep("language", tag);
  language.set(tag);
}

/**
 * `t` for the words of one file: `t("rows", {n: 3})` fills `{n}` in; where the words are `{one, other}`, `n` decides.
 * Values are text: they are filled in, never read as words or markup.
 */
export function phrases(words) {
  return (key, values = {}) => {
    const found = words[language.get()][key] ?? words.en[key] ?? key;
    return fill(typeof found === "string" ? found : found[plural(values.n)], values);
  };
}

export const has = (words, key) => Object.hasOwn(words.en, key);

function plural(n) {
  const number = typeof n === "number" ? n : 2;
  return new Intl.PluralRules(language.get()).select(number) === "one" ? "one" : "other";
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? value.toLocaleString(language.get()) : String(value);
  });
}
