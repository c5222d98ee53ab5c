// @ai-sdk/openai-compatible with ai, on which opencode and many others are built.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, generateObject, generateText, jsonSchema, streamText, tool } from 'ai';
import { all, errorOf, expectWeather, weather } from './harness.mjs';

const prompt = 'Tell me a story about a dragon.';

export default async function (check, { v1, key, model }) {
  const kin = createOpenAICompatible({ name: 'kin', baseURL: v1, apiKey: key, includeUsage: true, supportsStructuredOutputs: true });
  const common = { model: kin(model), prompt, maxRetries: 0 };
  const tools = { get_weather: tool({ description: weather.description, inputSchema: jsonSchema(weather.parameters) }) };

  await check('ai: a text is generated, with usage', async () => {
    const r = await generateText({ ...common, maxOutputTokens: 12 });
    assert.equal(typeof r.text, 'string');
    assert.ok(['stop', 'length'].includes(r.finishReason));
    assert.ok(r.usage.inputTokens > 0 && r.usage.outputTokens > 0);
  });
  await check('ai: a text is streamed, with usage', async () => {
    const r = streamText({ ...common, maxOutputTokens: 12 });
    const pieces = await all(r.textStream);
    assert.equal(pieces.join(''), await r.text);
    assert.ok((await r.usage).outputTokens > 0);
  });
  await check('ai: a tool is called', async () => {
    const r = await generateText({ ...common, tools, toolChoice: { type: 'tool', toolName: 'get_weather' }, maxOutputTokens: 200 });
    assert.equal(r.toolCalls[0].toolName, 'get_weather');
    expectWeather(r.toolCalls[0].input);
  });
  await check('ai: a call is streamed', async () => {
    const r = streamText({ ...common, tools, toolChoice: 'required', maxOutputTokens: 200 });
    const parts = await all(r.fullStream);
    assert.ok(!parts.some((p) => p.type === 'error'), JSON.stringify(parts.find((p) => p.type === 'error')?.error));
    expectWeather((await r.toolCalls)[0].input);
  });
  await check('ai: an object of a schema is generated', async () => {
    const { object } = await generateObject({ ...common, schema: jsonSchema(weather.parameters), maxOutputTokens: 200 });
    expectWeather(object);
  });
  await check('ai: a text is embedded', async () => {
    const { embedding } = await embed({ model: kin.textEmbeddingModel(model), value: 'a dragon', maxRetries: 0 });
    assert.ok(embedding.length > 0);
  });
  await check('ai: an error has its status', async () => {
    const err = await errorOf(() => generateText({ ...common, prompt: undefined, messages: [{ role: 'user', content: [{ type: 'image', image: new Uint8Array([137, 80, 78, 71]) }] }] }));
    assert.equal(err.statusCode, 501);
  });
}
