// Numbers, money and times as people read them, in the viewer's language.
import { language } from "./i18n.js";

export const NONE = "–";

const made = new Map(); // an Intl format costs more to make than to use

function numbers(options) {
  const key = language.get() + JSON.stringify(options);
  if (!made.has(key)) made.set(key, new Intl.NumberFormat(language.get(), options));
  return made.get(key);
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? numbers({ maximumFractionDigits: 0 }).format(value) : NONE);

/** 1,234 as it is; 128,400 as 128.4k: a window is not counted in ones. */
export function tokens(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size < 10_000) return count(value);
  const [unit, by] = size < 999_500 ? ["k", 1e3] : ["M", 1e6];
  return numbers({ maximumFractionDigits: size / by < 100 ? 1 : 0 }).format(value / by) + "\u202f" + unit;
}

export const percent = (value, digits = 0) =>
  isNumber(value)
    ? numbers({ style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value / 100)
    : NONE;

/** A share of a whole: a little is not nothing. */
export const part = (value) => (value > 0 && value < 1 ? `<\u202f${percent(1)}` : percent(value));

/** A share of the window: 79.9 has not reached 80 yet. */
export const share = (value) => (isNumber(value) && value >= 1 ? percent(Math.floor(value)) : part(value));

let shown = { currency: "USD", currency_per_usd: 1 };

/** The server counts in USD; `[display]` says in which currency people read it. */
export function showMoneyIn(currency) {
  if (currency) shown = currency;
}

/** An amount of USD in the viewer's currency. Cents matter where a request costs a fraction of one. */
export function usd(value) {
  if (!isNumber(value)) return NONE;
  const amount = value * shown.currency_per_usd;
  const size = Math.abs(amount);
  const digits = size === 0 || size >= 1 ? 2 : size >= 0.01 ? 3 : 5;
  const currency = { style: "currency", currency: shown.currency, currencyDisplay: "narrowSymbol" };
  return numbers({ ...currency, minimumFractionDigits: 2, maximumFractionDigits: digits }).format(amount);
}

export function duration(ms) {
  if (!isNumber(ms)) return NONE;
  if (ms < 1000) return `${count(ms)}\u202fms`;
  const unit = ms < 60_000 ? "second" : "minute";
  const value = unit === "second" ? ms / 1000 : ms / 60_000;
  return numbers({ style: "unit", unit, unitDisplay: "narrow", maximumFractionDigits: 1 }).format(value);
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const [unit, by] = value < 1e3 ? ["byte", 1] : value < 1e6 ? ["kilobyte", 1e3] : ["megabyte", 1e6];
  return numbers({ style: "unit", unit, unitDisplay: "short", maximumFractionDigits: 1 }).format(value / by);
}

export const clock = (at) => new Date(at).toLocaleTimeString(language.get(), { hour12: false });

/** The day and the time, today as well. */
export function date(at) {
  const moment = new Date(at);
  if (Number.isNaN(moment.getTime())) return NONE;
  return moment.toLocaleString(language.get(), { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
}

/** The time of today, the day of another. */
export function when(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return NONE;
  if (date.toDateString() === new Date().toDateString()) return clock(at);
  return date.toLocaleString(language.get(), { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}
