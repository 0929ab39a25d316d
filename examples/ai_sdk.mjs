// A small agent with the AI SDK, through the proxy: node ai_sdk.mjs FILE QUESTION
// npm install ai @ai-sdk/openai-compatible zod
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, tool } from "ai";
import { readFile } from "node:fs/promises";
import { z } from "zod";

const { KIMI_PROXY_URL = "http://127.0.0.1:8000", MODEL = "gpt-5.2-mini", OPENAI_API_KEY } = process.env;
const [file, question] = process.argv.slice(2);

const proxy = createOpenAICompatible({ name: "kimi-proxy", baseURL: `${KIMI_PROXY_URL}/v1`, apiKey: OPENAI_API_KEY });
const read = tool({
  description: "Read a file.",
  inputSchema: z.object({ path: z.string() }),
  execute: ({ path }) => readFile(path, "utf-8"),
});
const prompt = `${question} Look into ${file}.`;
const { text } = await generateText({ model: proxy(MODEL), tools: { read }, stopWhen: stepCountIs(9), prompt });
console.log(text);
