// What a request is made of, from the newest of the two: the request itself, or an event about it.
export const PARTS = ["system", "memory", "tools", "chat"];

/** `{system, memory, tools, chat}` in tokens, or null if they were not counted. */
export function composition(metric, event) {
  return fields(metric) ?? event?.composition ?? fields(event);
}

function fields(from) {
  if (typeof from?.chat_tokens !== "number") return null;
  return Object.fromEntries(PARTS.map((name) => [name, from[`${name}_tokens`] ?? 0]));
}
