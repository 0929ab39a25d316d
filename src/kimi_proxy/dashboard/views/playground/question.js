// What the playground asks, as a program would, and something to ask about.

/** The kind of text that a file's name promises. */
export function guess(name) {
  if (/\.(log|out|err)$/i.test(name)) return "logs";
  return /\.(md|markdown|rst|txt|adoc)$/i.test(name) ? "docs" : "code";
}

/** The same question for a shell: single quotes keep everything but themselves. */
export function curl(pruner, question) {
  // Members of a team do not see the address that it listens on, and reach it where they reach this page.
  const where = pruner ? `http://${host(pruner.host ?? location.hostname)}:${pruner.port}` : "http://127.0.0.1:8006";
  const message = { jsonrpc: "2.0", id: 1, method: "prune_text", params: question };
  return `curl -s ${where}/rpc -H 'Content-Type: application/json' -d '${JSON.stringify(message).replaceAll("'", "'\\''")}'`;
}

const host = (name) => (name.includes(":") && !name.startsWith("[") ? `[${name}]` : name);

/** A log with one thing wrong in it. */
export function example() {
  const rows = [];
  for (let n = 0; n < 90; n++) {
    const at = `08:${String(Math.floor(n / 6)).padStart(2, "0")}:${String((n * 10) % 60).padStart(2, "0")}`;
    rows.push(`${at} INFO  orders  order ${4100 + n} accepted, ${1 + (n % 5)} lines, ${(n * 37) % 90} ms`);
    if (n % 9 === 4) rows.push(`${at} DEBUG cache   ${(n * 13) % 100} entries renewed`);
    if (n === 61) {
      rows.push(`${at} ERROR billing invoice 1147 cannot be booked: 0.01 is missing from the VAT`);
      rows.push("Traceback (most recent call last):", '  File "shop/booking.py", line 88, in book');
      rows.push("    raise Unbalanced(invoice.id, missing)", "shop.booking.Unbalanced: invoice 1147 is off by 0.01");
    }
  }
  return { text: rows.join("\n"), goal: "why can invoice 1147 not be booked?", type: "logs", ratio: 0.8, keep: 10 };
}
