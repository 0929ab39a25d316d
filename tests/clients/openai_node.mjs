// Streams words and a tool call through a base URL with OpenAI's library for Node, and prints what it saw.
import { createRequire } from "node:module";
const [place, baseURL] = process.argv.slice(2);
const OpenAI = createRequire(`${place}/`)("openai").default;
const client = new OpenAI({ baseURL, apiKey: "sk-of-the-client", timeout: 30000 });

const said = (content) => [{ role: "user", content }];
const tools = [{ type: "function", function: { name: "read", parameters: { type: "object" } } }];

const seen = { words: "", arguments: "", bare: 0, events: [] };
for await (const chunk of await client.chat.completions.create({ model: "m", messages: said("hi"), tools, stream: true })) {
  if (!chunk.choices.length) seen.bare += 1;
  const delta = chunk.choices[0]?.delta ?? {};
  seen.words += delta.content ?? "";
  for (const call of delta.tool_calls ?? []) seen.arguments += call.function?.arguments ?? "";
}
const completion = await client.chat.completions.stream({ model: "m", messages: said("hi"), tools }).finalChatCompletion();
seen.collected = completion.choices[0].message.tool_calls[0].function.arguments;
for await (const event of await client.responses.create({ model: "m", input: "hi", stream: true })) seen.events.push(event.type);
try {
  for await (const _ of await client.chat.completions.create({ model: "m", messages: said("break off"), stream: true }));
  seen.broken = "no error";
} catch (error) {
  seen.broken = `${error.constructor.name}: ${error.message}`;
}
console.log(JSON.stringify(seen));
