// An agent of the AI SDK with a shell: `URL TASK`. Prints its answer and writes its history.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { z } from "zod";

const [url, task] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "scripted", baseURL: `${url}/v1`, apiKey: "sk-x" });
const shell = tool({
  description: "Run a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execFileSync("/bin/sh", ["-c", command], { encoding: "utf-8" }),
});
const result = streamText({
  model: provider("kimi-x"),
  tools: { shell },
  stopWhen: stepCountIs(9),
  prompt: task,
});
console.log(await result.text);
const { messages } = await result.response;
writeFileSync(`${process.env.HOME}/history.json`, JSON.stringify(messages));
