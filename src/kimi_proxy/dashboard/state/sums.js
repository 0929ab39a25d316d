// Totals of requests, in a session or overall, updated as they end.
const SUMMED = ["input_tokens", "cached_tokens", "output_tokens", "tokens_saved", "net_saved_tokens"];
const PRICED = ["cost_usd", "net_saved_usd", "cost_before_usd"]; // null until a price is known

/** A sum that the server does not give is not begun here: it would lack what came before. */
export function withRequest(sums, metric) {
  const next = { ...sums, requests: sums.requests + 1 };
  for (const name of SUMMED) if (name in sums) next[name] = (sums[name] ?? 0) + (metric[name] ?? 0);
  for (const name of PRICED) {
    if (name in sums && typeof metric[name] === "number") next[name] = (sums[name] ?? 0) + metric[name];
  }
  return next;
}

export function withoutSession(sums, session) {
  const next = { ...sums, sessions: sums.sessions - 1, requests: sums.requests - session.requests };
  for (const name of [...SUMMED, ...PRICED]) if (typeof sums[name] === "number") next[name] -= session[name] ?? 0;
  return next;
}
