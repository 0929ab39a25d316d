// Questions to the server over HTTP. An error has the server's code for it, and says in its message what the server said.
import { useCallback, useEffect, useState } from "./html.js";
import { signal } from "./signal.js";

const TOKEN = "kimi-proxy.token"; // for this tab only

/** Whether the server wants a token that it has not got. */
export const locked = signal(false);

export const token = () => sessionStorage.getItem(TOKEN) ?? "";

export function unlock(value) {
  sessionStorage.setItem(TOKEN, value);
  locked.set(false);
}

export class ApiError extends Error {
  constructor(status, code, message, body = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
    this.details = {}; // what belongs to the code: a field, a reason
  }

  /** The server has no such route: an older one, or a part that is switched off. */
  get isAbsent() {
    return (this.status === 404 && this.code === "not_found") || this.status === 405 || this.status === 501;
  }

  /** There is such a route, and nothing behind it yet. */
  get isNothing() {
    return this.status === 404 && !this.isAbsent;
  }
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const put = (path, body) => ask("PUT", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const remove = (path, body) => ask("DELETE", path, body);

async function ask(method, path, body) {
  const answer = await send(method, path, body);
  const text = await answer.text();
  const value = parsed(text);
  if (!answer.ok) throw failure(answer, value, text);
  if (value === null) throw new ApiError(0, "unreachable", "what answers is not kimi-proxy");
  return value;
}

/** A file for the viewer to keep: a link could not carry the token. */
export async function download(path, filename) {
  const answer = await send("GET", path);
  if (!answer.ok) {
    const text = await answer.text();
    throw failure(answer, parsed(text), text);
  }
  save(await answer.blob(), filename);
}

export function save(blob, filename) {
  const address = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: address, download: filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Whether a header can carry it: curly quotes that were copied with a token cannot be sent. */
const isSendable = (value) => /^[\x20-\x7e\xa0-\xff]*$/.test(value);

async function send(method, path, body) {
  if (!isSendable(token())) {
    locked.set(true);
    throw new ApiError(401, "token_required", "no header can carry this token");
  }
  const headers = token() ? { authorization: `Bearer ${token()}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0, "unreachable", "kimi-proxy does not answer");
  }
  if (answer.status === 401) locked.set(true);
  return answer;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function failure(answer, value, text) {
  const { error } = value ?? {};
  const [code, message] = typeof error === "string" ? [error, value.hint] : [error?.code, error?.message];
  const said = message ?? (text.slice(0, 300) || answer.statusText);
  const failed = new ApiError(answer.status, code ?? "", said, value);
  if (typeof error === "object") failed.details = { ...error };
  return failed;
}

/**
 * What the server answers to GET `path`, asked again when `path` or `turn` changes; no path is no question.
 * `{value, error, isLoading, again}`: the last value stays while the next one is on its way.
 */
export function useAnswer(path, turn = 0) {
  const [seen, see] = useState({ path: null, value: null, error: null });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    let isWanted = true;
    get(path).then(
      (value) => isWanted && see({ path, value, error: null }),
      (error) => isWanted && see((before) => ({ path, value: before.path === path ? before.value : null, error })),
    );
    return () => {
      isWanted = false;
    };
  }, [path, turn, round]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  const isCurrent = seen.path === path;
  return {
    value: isCurrent ? seen.value : null,
    error: isCurrent ? seen.error : null,
    isLoading: Boolean(path) && !isCurrent,
    again,
  };
}
